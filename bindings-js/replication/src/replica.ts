// One device: the steps of the protocol, each of which can be repeated and interrupted anywhere.
// Nothing here waits for the network inside a local transaction.
import { KvError } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import type { RawConflict } from './apply.ts';
import { Incoming } from './incoming.ts';
import { LocalCommits } from './local-commits.ts';
import { Mutex } from './mutex.ts';
import type { ReplicationOptions } from './options.ts';
import { Outgoing } from './outgoing.ts';
import { Link } from './replica-context.ts';
import type { ReplicaContext, ReplicaEvents } from './replica-context.ts';
import { CHECK, FENCE, UNDERSTANDING } from './record.ts';
import type { ReplicationOp } from './record.ts';
import { checkWitness, rejoin } from './rejoin.ts';
import type { RemoteLog } from './remote-log.ts';
import type { ReplicaState } from './state.ts';
import { Sender } from './sender.ts';
import { checkFit, isCompact, isSnapshotOfLost, writeSnapshot } from './snapshot.ts';
import { SETTLE_MS, StrictRecords } from './strict-records.ts';
import type { StrictRecord } from './strict-records.ts';
import { Tables } from './tables.ts';
import { Wire } from './wire.ts';

export interface ReplicaOptions extends Pick<ReplicationOptions, 'snapshots' | 'collections' | 'mode' | 'seal'> {
  readonly log: RemoteLog;
  /** Of the collections; default: new ones. */
  readonly tables?: Tables | undefined;
  readonly isExclusive?: boolean | undefined;
  /** The log is a copy that cannot lose history, and whose records before the snapshot are not there. */
  readonly isCopy?: boolean | undefined;
  /** Conflicts stay in the database until they are removed. */
  readonly keepsConflicts?: boolean | undefined;
  /** Milliseconds since 1970; default: the device's clock. */
  readonly clock?: (() => number) | undefined;
}

const CHECK_ATTEMPTS = 8;

export class Replica {
  readonly tables: Tables;
  readonly wire: Wire;
  readonly #context: ReplicaContext;
  readonly #local: LocalCommits;
  readonly #link = new Link();
  readonly #incoming: Incoming;
  readonly #outgoing: Outgoing;
  readonly #strict: StrictRecords;
  readonly #pulling = new Mutex();
  /** Sending, and with it the order of tickets. */
  readonly #sending = new Mutex();

  constructor(db: Database, options: ReplicaOptions, events: ReplicaEvents) {
    const {
      log,
      snapshots,
      seal,
      mode = 'merge',
      clock = Date.now,
      isExclusive = false,
      isCopy = false,
      keepsConflicts = false,
    } = options;
    this.tables = options.tables ?? new Tables(db, options.collections, mode);
    this.wire = new Wire(seal);
    this.#local = new LocalCommits(this.tables, (error) => events.alarm(error));
    const context: ReplicaContext = {
      local: this.#local,
      log,
      link: this.#link,
      wire: this.wire,
      snapshots,
      events,
      clock,
      catchUp: (signal) => this.catchUp(signal),
      advance: (durability, work) => this.#outgoing.advance(durability, work),
      blobs:
        snapshots &&
        ((value) => {
          sender.mayHaveBlobs = true;
          return this.wire.blob(value);
        }),
    };
    const sender = new Sender(context);
    this.#context = context;
    this.#incoming = new Incoming(context, { isCopy, keepsConflicts });
    this.#strict = new StrictRecords(context, sender);
    this.#outgoing = new Outgoing(context, sender, this.#strict, isExclusive);
  }

  /** Whether the log had nothing more when it was read last. */
  get isCaughtUp(): boolean {
    return this.#link.isCaughtUp;
  }

  /** How often the log has answered a read. */
  get answers(): number {
    return this.#incoming.answers;
  }

  /** Whether records that the log has acknowledged did not come back yet. */
  get isAwaiting(): boolean {
    return this.#link.acknowledged.size > 0;
  }

  /** How many commits of the application were looked at. */
  get drained(): number {
    return this.#outgoing.drained;
  }

  /** Whether there are local commits that are not in the outbox, as far as is known. */
  get hasCommits(): boolean {
    return this.#outgoing.hasCommits;
  }

  /** Whether `drain` has something to do, as far as is known: `changed` was called for it. */
  get isDrainDue(): boolean {
    return this.#outgoing.isDrainDue;
  }

  state(): Promise<ReplicaState> {
    return this.#local.state();
  }

  /** The state as this replica left it. Another tab that took over may have written a newer one. */
  recall(): Promise<ReplicaState> {
    return this.#local.recall();
  }

  /** Number of records that the log has not confirmed. */
  pending(): Promise<number> {
    return this.#local.pending();
  }

  /** Reads what the database has of replication; to be called once before everything else. */
  async start(): Promise<void> {
    const { byName } = this.tables;
    const state = await this.#local.change('strict', async (_, before) => {
      const unknown = Object.keys(before.collections).filter(
        (name) => !byName.has(name) && !before.hidden.includes(name),
      );
      const next = unknown.length === 0 ? before : { ...before, hidden: [...before.hidden, ...unknown] };
      return { state: next, result: next };
    });
    const isNew = [...byName.keys()].some(
      (name) => !Object.hasOwn(state.collections, name) || state.hidden.includes(name),
    );
    if (state.aside !== undefined && state.aside < UNDERSTANDING) {
      await this.#local.change('strict', async (tx, before) => ({
        state: await rejoin(this.tables, tx, before, 'reread'),
        result: undefined,
      }));
    }
    const { drained } = await checkWitness(this.#context, state);
    this.#outgoing.start(drained, isNew);
  }

  /** Nothing is committed from here on. */
  stop(): void {
    this.#local.stop();
    this.#outgoing.stop();
  }

  /** The connection to the log was interrupted: its history has to be checked again. */
  reconnect(): void {
    this.#link.reconnect();
  }

  /** Whether the log had nothing more when it was read last; there may be something new since. */
  get isAtEnd(): boolean {
    return this.#incoming.isAtEnd;
  }

  /** Reads and applies all that the log has now. */
  async catchUp(signal?: AbortSignal): Promise<void> {
    while ((await this.pull(signal)) && !this.isAtEnd);
  }

  /** Reads and applies what the log has, up to a limit; resolves to whether there may be more. */
  pull(signal?: AbortSignal): Promise<boolean> {
    return this.#pulling.run(() => this.#incoming.pull(signal));
  }

  /** The oldest conflict after another one that was not handled yet. */
  async nextConflict(after = -1): Promise<{ readonly id: number; readonly conflict: RawConflict } | undefined> {
    const next = await this.tables.conflicts.first({ gt: after });
    return next && { id: next[0], conflict: next[1] as RawConflict };
  }

  removeConflict(id: number): Promise<void> {
    return this.#local.change('relaxed', async (tx, state) => {
      await tx.collection(this.tables.conflicts).delete(id);
      return { state: { ...state }, result: undefined };
    });
  }

  /** Puts local commits into the outbox; resolves to whether more were there when it was called. */
  drain(): Promise<boolean> {
    return this.#sending.run(() => this.#outgoing.drain());
  }

  /** Sends the next record of the outbox; resolves to whether there was one. */
  publish(signal?: AbortSignal): Promise<boolean> {
    return this.#sending.run(() => this.#outgoing.publish(signal));
  }

  /** Reads all of the log, sends what the application has committed before, and waits until it has come back. */
  async settle(signal?: AbortSignal): Promise<void> {
    /** Records from this one on are of later commits; undefined: not known yet. */
    let end: number | undefined;
    let renumbered = this.#link.renumbered;
    for (;;) {
      signal?.throwIfAborted();
      await this.catchUp(signal);
      if (end === undefined) while (await this.drain());
      // What was sent again has other numbers.
      if (end === undefined || renumbered !== this.#link.renumbered) end = (await this.state()).nextTicket;
      renumbered = this.#link.renumbered;
      while ((await this.publish(signal)) && this.#link.sent < end - 1);
      await this.catchUp(signal);
      const [oldest] = (await this.tables.outbox.first()) ?? [Infinity];
      if (oldest >= end && renumbered === this.#link.renumbered) return;
      // The log has acknowledged what it does not show yet.
      await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
  }

  // For strict transactions; see `Outgoing` and `StrictRecords`.

  isDisturbed(version: number, drained: number): Promise<boolean> {
    return this.#outgoing.isDisturbed(version, drained);
  }

  offer(
    flags: number,
    ops: readonly ReplicationOp[],
    expect: number,
    options: { readonly id?: string; readonly signal?: AbortSignal } = {},
  ): Promise<StrictRecord | undefined> {
    return this.#sending.run(() => this.#strict.offer(flags, ops, expect, options));
  }

  outcomeOf(record: StrictRecord, signal?: AbortSignal): Promise<boolean> {
    return this.#sending.run(() => this.#strict.outcomeOf(record, signal));
  }

  outcomeOfId(id: string, signal?: AbortSignal): Promise<boolean> {
    return this.#sending.run(() => this.#strict.outcomeOfId(id, signal));
  }

  forget(isOver: (id: string, isVoid: boolean) => boolean): Promise<void> {
    return this.#strict.forget(isOver);
  }

  /** Becomes the only writer: from here on, appends of earlier ones fail. */
  async fence(signal?: AbortSignal): Promise<void> {
    for (let isIn = false; !isIn; ) {
      await this.settle(signal);
      const record = await this.offer(FENCE, [], (await this.state()).cursor.position);
      this.#link.fence = record?.hlc;
      isIn = record !== undefined && (await this.outcomeOf(record, signal));
    }
    this.#link.isOwner = true;
  }

  /** Tells the others what this device's base is, so that they compare theirs. */
  async #check(signal?: AbortSignal): Promise<void> {
    for (let attempt = 0; attempt < CHECK_ATTEMPTS; attempt++) {
      await this.settle(signal);
      const state = await this.state();
      checkFit(state);
      const record = await this.offer(CHECK, [], state.cursor.position);
      const isIn =
        record !== undefined &&
        (await this.outcomeOf(record, signal).catch((error: unknown) => {
          // The id is another one now.
          if ((error as Partial<KvError>).code !== 'KV_CONFLICT') throw error;
          return false;
        }));
      if (isIn) return;
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 2 ** attempt * SETTLE_MS));
    }
    throw new KvError(
      'KV_LOG_UNAVAILABLE',
      'replication.compact: other devices wrote to the log at every attempt; call it when fewer do',
      { retryable: true },
    );
  }

  /** Writes a snapshot of the base, and removes what the log no longer needs. */
  async compact(signal?: AbortSignal): Promise<{ readonly position: number } | undefined> {
    const { snapshots: store, log } = this.#context;
    if (store === undefined)
      throw new KvError('KV_INVALID_ARGUMENT', 'replication.compact needs the option `snapshots`');
    await this.settle(signal);
    if (await isSnapshotOfLost({ log, wire: this.wire })) {
      // Nothing else may have what it has, and this one takes its place.
      await this.#pulling.run(() => this.#incoming.rejoinLost());
      await this.settle(signal);
    }
    if (await isCompact({ log, store, wire: this.wire }, await this.state())) return undefined;
    await this.#check(signal);
    return writeSnapshot(
      { tables: this.tables, log, store, wire: this.wire, lock: (work) => this.#local.run(work) },
      signal,
    );
  }
}
