// Sending records of the outbox to the log.
import type { KvError } from 'mangrove-kv';
import type { LocalCommits } from './local-commits.ts';
import type { ReplicaContext } from './replica-context.ts';
import { NOTHING_APPLIED } from './state.ts';
import type { OutboxRow, ReplicaState } from './state.ts';
import { deviceOf } from './tables.ts';
import { blobKey, toStream } from './wire.ts';

export class Sender {
  /** Whether there may be large values to put into the object store. */
  mayHaveBlobs = true;
  readonly #context: ReplicaContext;
  readonly #local: LocalCommits;

  constructor(context: ReplicaContext) {
    this.#context = context;
    this.#local = context.local;
  }

  /** Sends a record under its ticket, which names the one before it: the log may have lost that. */
  async append(
    state: ReplicaState,
    ticket: number,
    row: OutboxRow,
    expect: number | undefined,
    signal?: AbortSignal,
  ): Promise<number> {
    await this.#uploadBlobs(signal);
    const { outbox, applied } = this.#local.tables;
    const [before, [last]] = await Promise.all([
      outbox.last({ lt: ticket }),
      applied.get(state.device).then((known) => known ?? NOTHING_APPLIED),
    ]);
    const back = ticket - Math.max(before?.[0] ?? 0, last);
    const record = await this.#context.wire.pack(row.flags, { device: deviceOf(state), seq: ticket, back }, row.body);
    return this.#context.log.append(record, { idempotencyKey: `${state.device}:${ticket}`, expect, signal });
  }

  /** Objects come before the records that refer to them. */
  async #uploadBlobs(signal?: AbortSignal): Promise<void> {
    if (!this.mayHaveBlobs) return;
    for (
      let next = await this.#local.tables.blobs.first();
      next !== undefined;
      next = await this.#local.tables.blobs.first()
    ) {
      const [hash, bytes] = next;
      await this.#context.snapshots?.put(blobKey(hash), toStream(bytes), signal).catch((error: unknown) => {
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
      if ((await this.#local.tables.blobs.first()) === undefined) this.mayHaveBlobs = false;
    });
  }
}
