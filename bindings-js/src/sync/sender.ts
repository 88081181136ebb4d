// Sending records of the outbox to the log.
import type { KvError } from '../base/errors.ts';
import type { LocalCommits } from './local-commits.ts';
import type { Parts } from './parts.ts';
import type { OutboxRow, SyncState } from './rows.ts';
import { deviceOf } from './tables.ts';
import { blobKey, toStream } from './wire.ts';

export class Sender {
  /** Whether there may be large values to put into the object store. */
  mayHaveBlobs = true;
  readonly #parts: Parts;
  readonly #local: LocalCommits;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#local = parts.local;
  }

  /** Sequence numbers of an id begin with 1, at the first ticket that it sends. */
  async withOffset(state: SyncState, ticket: number): Promise<SyncState> {
    if (state.offset !== undefined) return state;
    return this.#local.change('strict', async (_, before) => {
      const next = before.offset === undefined ? { ...before, offset: ticket - 1 } : before;
      return { state: next, result: next };
    });
  }

  async append(state: SyncState, ticket: number, row: OutboxRow, expect: number | undefined, signal?: AbortSignal): Promise<number> {
    await this.#uploadBlobs(signal);
    const seq = ticket - (state.offset as number);
    const record = await this.#parts.wire.pack(row.flags, deviceOf(state), seq, row.body);
    return this.#parts.log.append(record, { idempotencyKey: `${state.device}:${seq}`, expect, signal });
  }

  /** Objects come before the records that refer to them. */
  async #uploadBlobs(signal?: AbortSignal): Promise<void> {
    if (!this.mayHaveBlobs) return;
    for (let next = await this.#local.tables.blobs.first(); next !== undefined; next = await this.#local.tables.blobs.first()) {
      const [hash, bytes] = next;
      await this.#parts.snapshots?.put(blobKey(hash), toStream(bytes), signal).catch((error: unknown) => {
        // The same content is there already: keys are hashes.
        if ((error as Partial<KvError>).code !== 'KV_LOG_CONFLICT') throw error;
      });
      await this.#local.change('relaxed', async (tx, state) => {
        await tx.collection(this.#local.tables.blobs).delete(hash);
        return { state: { ...state }, result: undefined };
      });
    }
    // While no commit is under way that would add one.
    await this.#local.run(async () => {
      if (await this.#local.tables.blobs.first() === undefined) this.mayHaveBlobs = false;
    });
  }
}
