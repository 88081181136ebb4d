// Sending records of the outbox to the log.
import type { KvError } from '../base/errors.ts';
import type { Transaction } from '../types/index.ts';
import type { LocalCommits } from './local-commits.ts';
import type { Parts } from './parts.ts';
import type { OutboxRow, SyncState } from './rows.ts';
import { decodeOverlay, encodeOverlay } from './rows.ts';
import { deviceOf } from './tables.ts';
import type { Tables } from './tables.ts';
import { blobKey, toStream } from './wire.ts';

/**
 * Gives the records of the outbox tickets that follow one another, if some between them are gone: those
 * that the log had after one that it lost. Returns the next ticket.
 */
async function closeGaps(tx: Transaction, tables: Tables, nextTicket: number): Promise<number> {
  const outbox = tx.collection(tables.outbox);
  const tickets = await outbox.keys().toArray();
  const first = tickets[0] ?? nextTicket;
  if (tickets.length === nextTicket - first) return nextTicket;
  const renamed = new Map(tickets.map((ticket, index) => [ticket, nextTicket + index] as const));
  for (const [ticket, next] of renamed) {
    await outbox.set(next, await outbox.get(ticket) as Uint8Array);
    await outbox.delete(ticket);
  }
  for (const table of tables.byName.values()) {
    if (!table.modes.has('merge')) continue;
    const rows = tx.collection(table.overlay);
    for (const [key, bytes] of await rows.entries().toArray()) {
      const overlay = table.modes.isStrict(key) ? undefined : decodeOverlay(bytes);
      const ticket = overlay && renamed.get(overlay.ticket);
      if (overlay !== undefined && ticket !== undefined) await rows.set(key, encodeOverlay({ ...overlay, ticket }));
    }
  }
  return nextTicket + tickets.length;
}

export class Sender {
  /** Whether there may be large values to put into the object store. */
  mayHaveBlobs = true;
  readonly #parts: Parts;
  readonly #local: LocalCommits;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#local = parts.local;
  }

  /**
   * Sequence numbers of an id begin with 1, at the first ticket that it sends, and follow one another.
   * Undefined: the tickets are others now.
   */
  async withOffset(state: SyncState, ticket: number): Promise<SyncState | undefined> {
    if (state.offset !== undefined) return state;
    return this.#local.change<SyncState | undefined>('strict', async (tx, before) => {
      if (before.offset !== undefined || !await tx.collection(this.#local.tables.outbox).has(ticket)) return { state: before, result: undefined };
      const nextTicket = await closeGaps(tx, this.#local.tables, before.nextTicket);
      const next = { ...before, nextTicket, offset: ticket - 1 };
      return nextTicket === before.nextTicket ? { state: next, result: next } : { state: { ...before, nextTicket }, result: undefined };
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
