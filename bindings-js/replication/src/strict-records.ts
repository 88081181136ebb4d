// Records that have to follow the newest one: strict transactions and fences. All calls run one after
// another, and while nothing else is sent.
import { KvError } from 'mangrove-kv';
import { fromHex, toHex } from './bytes.ts';
import { tick } from './clock.ts';
import type { LocalCommits } from './local-commits.ts';
import { MAX_BODY_BYTES } from './outbox.ts';
import type { Link, ReplicaContext } from './replica-context.ts';
import { CHECK, encodeBody } from './record.ts';
import type { ReplicationOp } from './record.ts';
import { decodeOutbox, encodeOutbox } from './state.ts';
import type { OfferedRow } from './state.ts';
import type { Sender } from './sender.ts';

export const SETTLE_MS = 5;

/** A strict record that is sent. Its function must not run again before its outcome is known. */
export interface StrictRecord {
  /** Its number in the outbox. */
  readonly ticket: number;
  /** The device's id when it was offered. */
  readonly device: string;
  /** Under which its outcome is in the database. Without one only the replica that took it knows. */
  readonly id?: string | undefined;
  /** Its time. */
  readonly hlc?: bigint;
  /** Something else follows the record that it had to follow. */
  isRefused: boolean;
}

/** Row of an id whose record was not taken, and will not be. */
const VOID: OfferedRow = { ticket: 0, device: '', isRefused: true };

export class StrictRecords {
  readonly #context: ReplicaContext;
  readonly #local: LocalCommits;
  readonly #link: Link;
  readonly #sender: Sender;
  /** The newest record that was offered. */
  #offered: StrictRecord | undefined;
  /** Whether the outbox may hold a strict record whose outcome is not known. */
  #mayHaveStrict = true;

  constructor(context: ReplicaContext, sender: Sender) {
    this.#context = context;
    this.#local = context.local;
    this.#link = context.link;
    this.#sender = sender;
  }

  /**
   * Takes a record that has to follow the one at `expect` for sending; `undefined` if something else
   * has to be sent first, or the id was given up. `outcomeOf` sends it.
   */
  async offer(
    flags: number,
    ops: readonly ReplicationOp[],
    expect: number,
    { id }: { readonly id?: string | undefined },
  ): Promise<StrictRecord | undefined> {
    if (this.#link.isFenced) throw fenced();
    this.#mayHaveStrict = true;
    const record = await this.#local.change<StrictRecord | undefined>('strict', async (tx, state) => {
      const outbox = tx.collection(this.#local.tables.outbox);
      if ((await outbox.first()) !== undefined) return { state, result: undefined };
      const hlc = tick(fromHex(state.hlc), this.#context.clock());
      const { nextTicket: ticket } = state;
      if (flags & CHECK && state.cursor.position !== expect) return { state, result: undefined };
      const body = encodeBody({
        n: ticket,
        declared: this.#declarations(ops),
        transactions: [{ base: expect, hlc, ops }],
        ...(flags & CHECK && { digests: state.digests }),
      });
      if (body.length > MAX_BODY_BYTES) {
        throw new KvError(
          'KV_VALUE_TOO_LARGE',
          `a strict transaction may write 900 KiB, this one writes ${body.length} bytes; split it`,
        );
      }
      if (id !== undefined) {
        const offered = tx.collection(this.#local.tables.offered);
        if (await offered.has(id)) return { state, result: undefined };
        await offered.set(id, { ticket, device: state.device, isRefused: false });
      }
      await outbox.set(ticket, encodeOutbox({ flags, expect, body }));
      return {
        state: { ...state, hlc: toHex(hlc), nextTicket: ticket + 1 },
        result: { ticket, device: state.device, id, hlc, isRefused: false },
      };
    });
    // Of an earlier one it has to be known that it was refused.
    if (record !== undefined) this.#offered = record;
    return record;
  }

  /**
   * The same for a record that was offered under an id, maybe to another tab that replicated. If
   * none was, the id is given up: an offer that is still on its way is refused.
   */
  async outcomeOfId(id: string, signal?: AbortSignal): Promise<boolean> {
    const row = await this.#local.change('relaxed', async (tx, state) => {
      const offered = tx.collection(this.#local.tables.offered);
      const found = await offered.get(id);
      if (found !== undefined) return { state, result: found };
      await offered.set(id, VOID);
      return { state: { ...state }, result: VOID };
    });
    return row.isRefused ? false : this.outcomeOf({ ...row, id }, signal);
  }

  /** Removes ids whose outcome nobody will ask for again. Those that were given up stay as long as their tab. */
  forget(isOver: (id: string, isVoid: boolean) => boolean): Promise<void> {
    return this.#local.change('relaxed', async (tx, state) => {
      const offered = tx.collection(this.#local.tables.offered);
      const ids = (await offered.entries().toArray())
        .filter(([id, row]) => isOver(id, row.ticket === 0))
        .map(([id]) => id);
      if (ids.length === 0) return { state, result: undefined };
      await offered.deleteMany(ids);
      return { state: { ...state }, result: undefined };
    });
  }

  /**
   * Whether a record is in the log and applied; if not, it never will be. After a failure of the log
   * that is unknown, and this has to be called again.
   */
  async outcomeOf(record: StrictRecord, signal?: AbortSignal): Promise<boolean> {
    for (;;) {
      signal?.throwIfAborted();
      // Sending in the background may have finished it since.
      if (await this.#isRefused(record)) return false;
      await this.#checkDevice(record);
      const isDone = await this.finish(record.ticket, signal);
      await this.#checkDevice(record);
      if (isDone) {
        // Its writes are entries at the log's end.
        if ((await this.#local.state()).rejoin !== undefined) await this.#context.catchUp(signal);
        return true;
      }
      // The log has refused it and does not show why yet.
      if (!(await this.#isRefused(record))) await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
  }

  async #isRefused({ id, isRefused }: StrictRecord): Promise<boolean> {
    return isRefused || (id !== undefined && (await this.#local.tables.offered.get(id))?.isRefused === true);
  }

  /** Fails if the device has another id since, unless the log still has all that was sent under the one before. */
  async #checkDevice(record: StrictRecord): Promise<void> {
    const { device, formers } = await this.#local.state();
    if (device === record.device) return;
    const at = formers.findIndex((former) => former.device === record.device);
    if (at >= 0 && formers.slice(at).every(({ isKept }) => isKept)) return;
    throw new KvError(
      'KV_CONFLICT',
      'the log lost its history while this transaction was sent, which may have taken effect; read what it should have written before you call it again',
    );
  }

  #isVoided(ticket: number): boolean {
    if (!this.#link.voided.has(ticket)) return false;
    if (this.#offered?.ticket === ticket) this.#offered.isRefused = true;
    return true;
  }

  /** Sends a record with `expect` until it is known whether it is in the log. */
  async finish(ticket: number, signal?: AbortSignal): Promise<boolean> {
    const [bytes, stored] = await Promise.all([this.#local.tables.outbox.get(ticket), this.#local.state()]);
    if (bytes === undefined) return !this.#isVoided(ticket);
    const row = decodeOutbox(bytes);
    const position = await this.#sender.append(stored, ticket, row, row.expect, signal).catch((error: unknown) => {
      if ((error as Partial<KvError>).code !== 'KV_LOG_CONFLICT') throw error;
      return undefined;
    });
    // Whatever the answer was: the log decides.
    await this.#context.catchUp(signal);
    if (!(await this.#local.tables.outbox.has(ticket))) return !this.#isVoided(ticket);
    const { cursor } = await this.#local.state();
    // Without an answer of the log it may come yet. With one it is there, or the log has lost it.
    const isLost = position !== undefined && (await this.#context.log.at(position)) === undefined;
    if (cursor.position === row.expect && !isLost) return false;
    // Something else followed `expect`: the record cannot get into the log any more. The next one does
    // not name its number.
    await this.#local.change('strict', async (tx, before) => {
      await tx.collection(this.#local.tables.outbox).delete(ticket);
      const offered = tx.collection(this.#local.tables.offered);
      for (const [id, each] of await offered.entries().toArray())
        if (each.ticket === ticket) await offered.set(id, { ...each, isRefused: true });
      return { state: { ...before }, result: undefined };
    });
    if (this.#offered?.ticket === ticket) this.#offered.isRefused = true;
    return false;
  }

  /** A strict record whose outcome is not known, as before a restart: nothing may be sent after it. */
  async finishOpen(signal?: AbortSignal): Promise<boolean> {
    if (!this.#mayHaveStrict) return true;
    // It was offered when there was nothing else.
    const { outbox } = this.#local.tables;
    const first = await outbox.first();
    if (first === undefined || decodeOutbox(first[1]).expect === undefined) {
      this.#mayHaveStrict = false;
      return true;
    }
    await this.finish(first[0], signal);
    return !(await outbox.has(first[0]));
  }

  #declarations(ops: readonly ReplicationOp[]): ReadonlyMap<string, string> {
    const { byName } = this.#local.tables;
    return new Map(ops.map(({ collection }) => [collection, byName.get(collection)?.declaration ?? '']));
  }
}

export function fenced(): KvError {
  return new KvError(
    'KV_REPLICATION_FENCED',
    'another server became the only writer of this log; what is pending here stays here. Stop this server, or start replication again to take over',
  );
}
