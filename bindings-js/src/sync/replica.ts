// One device: the steps of the protocol, each of which can be repeated and interrupted anywhere.
// Nothing here waits for the network inside a local transaction.
import { KvError } from '../base/errors.ts';
import type { Database, Transaction } from '../types/index.ts';
import { MissingBlobs, applyRecords, checkOf, toHexBytes } from './apply.ts';
import type { Applied, RawConflict, ReadRecord } from './apply.ts';
import { fromHex, toHex } from './bytes.ts';
import { tick } from './clock.ts';
import { MAX_BODY_BYTES, captureFound, drainCommits, putRecords, scan } from './drain.ts';
import type { BlobMaker } from './drain.ts';
import { LocalFeed, MAX_COMMITS } from './local-feed.ts';
import { Model } from './model.ts';
import { Mutex } from './mutex.ts';
import { FENCE, REPAIR, crcOf, encodeTransactions, isRead } from './record.ts';
import type { SyncOptions } from './options.ts';
import type { SyncOp } from './record.ts';
import { isTruncated } from './remote-log.ts';
import type { LoggedRecord, RemoteLog, SnapshotStore } from './remote-log.ts';
import { decodeOutbox, encodeOutbox } from './rows.ts';
import type { OfferedRow, OutboxRow, SyncState } from './rows.ts';
import { loadSnapshot, readManifest, writeSnapshot } from './snapshot.ts';
import { Tables, deviceOf, withNewId } from './tables.ts';
import { Wire, blobKey, toStream } from './wire.ts';

export interface ReplicaOptions extends Pick<SyncOptions, 'snapshots' | 'collections' | 'mode' | 'seal'> {
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

/** What a replica tells. All of it has been committed. */
export interface ReplicaEvents {
  conflicts(conflicts: readonly RawConflict[]): void;
  /** Something is wrong, and sync goes on. */
  alarm(error: KvError): void;
  /** The log had lost history; `records` put back what this device has of it. */
  repaired(records: number): void;
  /** There are local commits. */
  changed(): void;
}

const READ_RECORDS = 256;
/** A gap or an unreadable record is passed over if the log still has it after this many reads. */
const MAX_ATTEMPTS = 5;
/** A strict record that is sent. Its function must not run again before its outcome is known. */
export interface StrictRecord {
  /** Its number in the outbox. */
  readonly ticket: number;
  /** The device's id when it was offered. */
  readonly device: string;
  /** Under which its outcome is in the database. Without one only the replica that took it knows. */
  readonly id?: string | undefined;
  /** Something else follows the record that it had to follow. */
  isRefused: boolean;
}

/** Row of an id whose record was not taken, and will not be. */
const VOID: OfferedRow = { ticket: 0, device: '', isRefused: true };

/** More than one commit can have. */
const MAX_CONFLICTS = 1_000_000;
const MAX_UNSEEN = 20;
const REPAIR_SLICE = 500;
const SETTLE_MS = 5;

export class Replica {
  readonly tables: Tables;
  readonly wire: Wire;
  readonly #log: RemoteLog;
  readonly #snapshots: SnapshotStore | undefined;
  readonly #isExclusive: boolean;
  readonly #isCopy: boolean;
  readonly #keepsConflicts: boolean;
  readonly #events: ReplicaEvents;
  readonly #clock: () => number;
  readonly #feed: LocalFeed;
  readonly #blobs: BlobMaker | undefined;
  /** Local commits of sync, one at a time. */
  readonly #local = new Mutex();
  readonly #pulling = new Mutex();
  /** Sending, and with it the order of tickets. */
  readonly #sending = new Mutex();
  /** The newest record that was offered. */
  #offered: StrictRecord | undefined;
  /** The newest ticket that the log has acknowledged. */
  #sent = 0;
  /** The newest position known to be the log's end, for an exclusive writer. */
  #end = 0;
  /** How often the log had nothing more, although acknowledged records had not appeared. */
  #unseen = 0;
  #isChecked = false;
  #isCaughtUp = false;
  /** Whether this device became the only writer, and whether another one did since. */
  #isOwner = false;
  #isFenced = false;
  #isRescanNeeded = false;
  #isStopped = false;
  #drained = 0;
  /** As of the last commit; undefined if that is not known. */
  #state: SyncState | undefined;
  /** Size of the outbox, if it is known. */
  #pending: number | undefined;
  #changes = 0;
  /** Whether the outbox may hold a strict record whose outcome is not known. */
  #mayHaveStrict = true;
  /** Whether there may be large values to put into the object store. */
  #mayHaveBlobs = true;
  /** The log's position that was applied at the last commit taken from the feed. */
  #base: number | undefined;
  /** Writes past sync up to this version may have been undone. */
  #undone = -1;
  readonly #attempts = new Map<string, number>();

  constructor(db: Database, options: ReplicaOptions, events: ReplicaEvents) {
    this.tables = options.tables ?? new Tables(db, options.collections, options.mode ?? 'merge');
    this.wire = new Wire(options.seal);
    this.#log = options.log;
    this.#snapshots = options.snapshots;
    this.#isExclusive = options.isExclusive ?? false;
    this.#isCopy = options.isCopy ?? false;
    this.#keepsConflicts = options.keepsConflicts ?? false;
    this.#clock = options.clock ?? Date.now;
    this.#events = events;
    this.#feed = new LocalFeed(db, () => versionOf(db), () => events.changed());
    this.#blobs = this.#snapshots && ((value) => {
      this.#mayHaveBlobs = true;
      return this.wire.blob(value);
    });
  }

  /** Whether the log had nothing more when it was read last. */
  get isCaughtUp(): boolean {
    return this.#isCaughtUp;
  }

  /** How many commits of the application were looked at. */
  get drained(): number {
    return this.#drained;
  }

  /** Whether there are local commits that are not in the outbox, as far as is known. */
  get hasCommits(): boolean {
    return this.#feed.hasCommits;
  }

  /** Whether `drain` has something to do, as far as is known: `changed` was called for it. */
  get isDrainDue(): boolean {
    return this.#isRescanNeeded || this.#feed.isDue;
  }

  async state(): Promise<SyncState> {
    this.#checkRunning();
    return await this.tables.state.get('state') ?? this.#change('relaxed', async (_, state) => ({ state, result: state }));
  }

  /** The state as this replica left it. Another tab that took over may have written a newer one. */
  async recall(): Promise<SyncState> {
    this.#checkRunning();
    return this.#state ?? this.#change('relaxed', async (_, state) => ({ state, result: state }));
  }

  /** Number of records that the log has not confirmed. */
  async pending(): Promise<number> {
    if (this.#pending !== undefined) return this.#pending;
    const changes = this.#changes;
    const size = await this.tables.outbox.size;
    if (changes === this.#changes) this.#pending = size;
    return size;
  }

  #change<T>(durability: 'strict' | 'relaxed', work: (tx: Transaction, state: SyncState) => Promise<{ readonly state: SyncState; readonly result: T }>): Promise<T> {
    return this.#local.run(async () => {
      let next: SyncState | undefined;
      this.#state = undefined;
      try {
        const result = await this.tables.change(async (tx, state) => {
          const changed = await work(tx, state);
          this.#checkRunning();
          next = changed.state;
          return changed;
        }, { durability });
        this.#state = next;
        return result;
      } finally {
        this.#pending = undefined;
        this.#changes++;
      }
    });
  }

  /** Reads what the database has of sync; to be called once before everything else. */
  async start(): Promise<void> {
    const names = [...this.tables.byName.keys()];
    const state = await this.#change('strict', async (tx, before) => {
      const missing = names.filter((name) => !before.collections.includes(name));
      if (missing.length === 0) return { state: before, result: before };
      const named = { ...before, collections: [...before.collections, ...missing].sort() };
      if (before.cursor.position === 0) return { state: named, result: named };
      // What the log has of the new collections was passed over.
      const again = await rejoin(this.tables, tx, named, 'reread');
      return { state: { ...again, drained: -1 }, result: { ...again, drained: -1 } };
    });
    const { drained } = await this.#checkWitness(state);
    this.#isRescanNeeded = drained < 0;
    this.#undone = drained;
    if (!this.#isRescanNeeded) this.#feed.start(drained);
  }

  /** A backup has no versions: in a restored database they are others, and the feed is empty. */
  async #checkWitness(state: SyncState): Promise<SyncState> {
    const { witness: witnesses } = this.tables;
    if (state.witness !== 0) {
      if ((await witnesses.getEntry('witness'))?.version === state.witness) return state;
      await this.#recognizeAll();
    }
    await this.#change('strict', async (tx, before) => {
      await tx.collection(witnesses).set('witness', null);
      return { state: { ...before }, result: undefined };
    });
    const witness = (await witnesses.getEntry('witness'))?.version ?? 0;
    return this.#change('strict', async (_, before) => {
      // The original may be in use beside the restored one.
      const next = before.witness === 0 ? { ...before, witness } : { ...withNewId(before), witness, drained: -2 };
      return { state: next, result: next };
    });
  }

  async #recognizeAll(): Promise<void> {
    for (const table of this.tables.byName.values()) {
      const keys = table.stamps.keys();
      for (;;) {
        const slice = await keys.nextMany(REPAIR_SLICE);
        if (slice.length === 0) break;
        await this.#change('relaxed', async (tx, state) => {
          const model = new Model(tx, this.tables, this.#clock());
          await model.load(slice.map((key) => ({ table, key })));
          for (const key of slice) model.row(table, key).recognize(checkOf);
          await model.save();
          return { state: { ...state }, result: undefined };
        });
      }
    }
  }

  /** Another tab may synchronize already. */
  #checkRunning(): void {
    if (this.#isStopped) throw new KvError('KV_CLOSED', 'sync has ended in this tab');
  }

  /** Nothing is committed from here on. */
  stop(): void {
    this.#isStopped = true;
    this.#feed.stop();
  }

  /** The connection to the log was interrupted: its history has to be checked again. */
  reconnect(): void {
    this.#isChecked = false;
    this.#isCaughtUp = false;
    // What was acknowledged and not read yet may be lost: it is sent again.
    this.#sent = 0;
  }

  // Incoming.

  /** Reads and applies what the log has, up to a limit; resolves to whether there may be more. */
  pull(signal?: AbortSignal): Promise<boolean> {
    return this.#pulling.run(() => this.#pull(signal));
  }

  async #pull(signal?: AbortSignal): Promise<boolean> {
    if (!this.#isChecked) await this.#checkHistory();
    const { cursor } = await this.recall();
    const logged = await this.#log.read(cursor.position, READ_RECORDS, signal).catch(async (error: unknown) => {
      if (!isTruncated(error)) throw error;
      await this.#loadSnapshot();
      return undefined;
    });
    if (logged === undefined) return true;
    if (logged.length === 0) {
      if ((await this.recall()).rejoin !== undefined) await this.#reconcile();
      this.#isCaughtUp = true;
      // An acknowledged record that does not appear was lost, or is only late: sending it again does
      // no harm.
      if (await this.pending() === 0) this.#unseen = 0;
      else if (this.#sent > 0 && ++this.#unseen % MAX_UNSEEN === 0) this.#sent = 0;
      return false;
    }
    this.#unseen = 0;
    const records: ReadRecord[] = [];
    const alarms: KvError[] = [];
    for (const each of logged) records.push(await this.#read(each, alarms));
    const applied = await this.#apply(cursor.position, records);
    if (applied === undefined) return true;
    for (const alarm of alarms) this.#events.alarm(alarm);
    if (applied.isClone) this.#sent = 0;
    if (applied.conflicts.length > 0) this.#events.conflicts(applied.conflicts);
    for (const { device, from, to } of applied.gaps) {
      this.#events.alarm(new KvError('KV_SYNC_GAP', `the log has lost records ${from} to ${to} of device ${device}; if a device has their contents, it puts them back`));
    }
    if (applied.fencedBy !== undefined && this.#isOwner) this.#isFenced = true;
    return true;
  }

  async #read(logged: LoggedRecord, alarms: KvError[]): Promise<ReadRecord> {
    try {
      return await this.wire.unpack(logged);
    } catch (error) {
      if ((error as Partial<KvError>).code !== 'KV_CORRUPT' || !this.#isLastAttempt(`unreadable ${logged.position}`)) throw error;
      alarms.push(error as KvError);
      const { position, serverTime, record } = logged;
      return { position, serverTime, crc: crcOf(record), isPassedOver: true, flags: 0, device: 0n, seq: 0, body: new Uint8Array(0) };
    }
  }

  /** Applies the records after a position; undefined if the cursor is not there any more: another tab took over. */
  async #apply(after: number, records: readonly ReadRecord[]): Promise<Applied | undefined> {
    const blobs = new Map<string, Uint8Array>();
    for (let isGapAccepted = false; ;) {
      try {
        return await this.#change<Applied | undefined>('relaxed', async (tx, state) => {
          if (state.cursor.position !== after) return { state, result: undefined };
          const applied = await applyRecords(tx, this.tables, state, records, { now: this.#clock(), blobs, isGapAccepted });
          await this.#keepConflicts(tx, state, applied.result.conflicts);
          return applied;
        });
      } catch (error) {
        if (error instanceof MissingBlobs) {
          for (const hash of error.hashes) blobs.set(toHexBytes(hash), await this.wire.fetchBlob(this.#snapshots, hash));
        } else {
          if ((error as Partial<KvError>).code !== 'KV_SYNC_GAP' || isGapAccepted) throw error;
          const { cursor } = await this.state();
          if (!this.#isLastAttempt(`gap after ${cursor.position}`)) throw error;
          isGapAccepted = true;
        }
      }
    }
  }

  async #keepConflicts(tx: Transaction, { serial }: SyncState, conflicts: readonly RawConflict[]): Promise<void> {
    if (!this.#keepsConflicts || conflicts.length === 0) return;
    await tx.collection(this.tables.conflicts).setMany(conflicts.map((conflict, index) => [serial * MAX_CONFLICTS + index, conflict] as const));
  }

  /** The oldest conflict that was not handled yet. */
  async firstConflict(): Promise<{ readonly id: number; readonly conflict: RawConflict } | undefined> {
    const first = await this.tables.conflicts.first();
    return first && { id: first[0], conflict: first[1] as RawConflict };
  }

  removeConflict(id: number): Promise<void> {
    return this.#change('relaxed', async (tx, state) => {
      await tx.collection(this.tables.conflicts).delete(id);
      return { state: { ...state }, result: undefined };
    });
  }

  #isLastAttempt(what: string): boolean {
    const attempts = (this.#attempts.get(what) ?? 0) + 1;
    this.#attempts.set(what, attempts);
    return attempts >= MAX_ATTEMPTS;
  }

  /** Looks whether the log still has what this device read last. */
  async #checkHistory(): Promise<void> {
    const { cursor } = await this.state();
    if (cursor.position === 0) {
      if (await readManifest(this.#log, this.wire) !== undefined) await this.#loadSnapshot();
    } else {
      try {
        if (!isRead(cursor, await this.#log.at(cursor.position))) await this.#rejoinLost();
      } catch (error) {
        // Only the log says whether a record was purged or lost: a manifest can lag behind it.
        if (!isTruncated(error)) throw error;
        await this.#loadSnapshot();
      }
    }
    this.#isChecked = true;
  }

  async #rejoinLost(): Promise<void> {
    await this.#change('strict', async (tx, state) => ({ state: await rejoin(this.tables, tx, state, 'lost'), result: undefined }));
    this.#sent = 0;
    this.#isCaughtUp = false;
    if (await readManifest(this.#log, this.wire) !== undefined) await this.#loadSnapshot();
  }

  async #loadSnapshot(): Promise<void> {
    const snapshots = this.#snapshots;
    if (snapshots === undefined) throw new KvError('KV_LOG_TRUNCATED', 'the log begins with a snapshot, which the option `snapshots` has to provide');
    await loadSnapshot({
      tables: this.tables, log: this.#log, store: snapshots, wire: this.wire, now: this.#clock, isCopy: this.#isCopy,
      change: (work) => this.#change('relaxed', work),
      conflicts: (conflicts) => this.#events.conflicts(conflicts),
      rejoin: (tx, state) => rejoin(this.tables, tx, state, 'lost'),
    });
    // What is still pending may have another number now.
    this.#sent = 0;
  }

  /** Ends a rejoin: what the log turned out not to have is put back, or deleted. */
  async #reconcile(): Promise<void> {
    let records = 0;
    const { rejoin: kind, epoch } = await this.state();
    if (kind === undefined) return;
    for (const table of this.tables.byName.values()) {
      const keys = table.stamps.keys();
      for (;;) {
        const slice = await keys.nextMany(REPAIR_SLICE);
        if (slice.length === 0) break;
        records += await this.#change('strict', async (tx, state) => {
          // Another tab took over.
          if (state.rejoin !== kind || state.epoch !== epoch) return { state, result: 0 };
          const model = new Model(tx, this.tables, this.#clock());
          await model.load(slice.map((key) => ({ table, key })));
          const ops: SyncOp[] = [];
          for (const key of slice) {
            const row = model.row(table, key);
            const { stamp } = row;
            if (stamp === undefined || stamp.epoch === epoch) continue;
            if (kind === 'reread') {
              row.forget();
              continue;
            }
            const value = row.isStrict ? row.copy : row.isClean ? row.entry : row.overlay?.base;
            // Under a local write that was not sent yet, and that is newer.
            if (value === undefined || (value === null && !stamp.isDead)) continue;
            const { h, device, isStrict } = stamp;
            const named = { collection: table.name, key, stamp: { h, device, isStrict } };
            ops.push(value === null ? { type: 'delete', ...named } : { type: 'set', value: value.value, expiresAt: value.expiresAt, ...named });
          }
          await model.save();
          if (ops.length === 0) return { state: kind === 'reread' ? { ...state } : state, result: 0 };
          const last = await putRecords(tx, this.tables, state.nextTicket, REPAIR, [{ base: 0, hlc: fromHex(state.hlc), ops }], this.#blobs);
          return { state: { ...state, nextTicket: last + 1 }, result: 1 };
        });
      }
    }
    await this.#change('strict', async (_, state) => ({ state: state.epoch === epoch ? { ...state, rejoin: undefined } : state, result: undefined }));
    if (kind === 'lost') this.#events.repaired(records);
  }

  // Outgoing.

  /** Puts local commits into the outbox; resolves to whether more were there when it was called. */
  drain(): Promise<boolean> {
    return this.#sending.run(() => this.#drain());
  }

  async #drain(): Promise<boolean> {
    if (!await this.#finishOpenStrict()) return false;
    if (this.#isRescanNeeded) {
      await this.#rescan();
      return true;
    }
    const commits = await this.#feed.peek().catch((error: unknown) => {
      if ((error as Partial<KvError>).code !== 'KV_TRUNCATED_FEED') throw error;
      this.#isRescanNeeded = true;
      return undefined;
    });
    if (commits === undefined) return true;
    const { length } = commits;
    if (length === 0) return false;
    const batch = commits.slice(0, MAX_COMMITS);
    const { count, base, violations, isRescanNeeded } = await this.#change('strict', async (tx, state) => {
      // Commits that were looked at since, and needed no commit themselves.
      const from = this.#base === undefined ? state : { ...state, drainedBase: this.#base };
      const { state: next, result } = await drainCommits(tx, this.tables, from, batch, this.#clock(), this.#blobs);
      return { state: next === from ? state : next, result };
    });
    this.#base = base;
    for (const { isOwn } of batch.slice(0, count)) if (isOwn !== true) this.#drained++;
    this.#feed.taken(count);
    if (isRescanNeeded) this.#isRescanNeeded = true;
    if (violations.length > 0) this.#undone = (batch[count - 1] as typeof batch[number]).version;
    for (const violation of violations) this.#events.alarm(violation);
    return length > count || length >= MAX_COMMITS || isRescanNeeded;
  }

  async #rescan(): Promise<void> {
    // From before the snapshot on: a database without a feed does not keep what was committed since.
    this.#feed.start();
    const snapshot = this.tables.db.snapshot();
    try {
      const version = await snapshot.version;
      this.#undone = version;
      const base = (await snapshot.collection(this.tables.state).get('state'))?.cursor.position ?? 0;
      for await (const found of scan(this.tables, snapshot, version, this.#clock())) {
        const violations = await this.#change('strict', (tx, state) => captureFound(tx, this.tables, state, found, base, this.#clock(), this.#blobs));
        for (const violation of violations) this.#events.alarm(violation);
      }
      await this.#change('strict', async (_, state) => ({ state: { ...state, drained: version, drainedBase: base }, result: undefined }));
      this.#base = base;
      this.#feed.skipTo(version);
      this.#isRescanNeeded = false;
    } finally {
      await snapshot.close();
    }
  }

  /** Sends the next record of the outbox; resolves to whether there was one. */
  publish(signal?: AbortSignal): Promise<boolean> {
    return this.#sending.run(() => this.#publish(signal));
  }

  async #publish(signal?: AbortSignal): Promise<boolean> {
    if (!this.#isCaughtUp) return false;
    if (this.#isFenced) throw fenced();
    if (!await this.#finishOpenStrict(signal)) return false;
    // Nothing has a ticket after the one that was sent.
    if ((await this.recall()).nextTicket <= this.#sent + 1) return false;
    const [next, stored] = await Promise.all([this.tables.outbox.first({ gt: this.#sent }), this.state()]);
    if (next === undefined) return false;
    const [ticket, bytes] = next;
    const row = decodeOutbox(bytes);
    if (row.expect !== undefined) return this.#finishStrict(ticket, signal);
    const state = await this.#withOffset(stored, ticket);
    if (state.rejoin !== undefined) return false;
    const expect = this.#isExclusive ? Math.max(this.#end, state.cursor.position) : undefined;
    const position = await this.#append(state, ticket, row, expect, signal).catch(async (error: unknown) => {
      if ((error as Partial<KvError>).code !== 'KV_LOG_CONFLICT') throw error;
      // Somebody else has written: the new owner of the log, or a device that does not know of fences.
      this.#end = 0;
      while (await this.pull(signal));
      return undefined;
    });
    if (position === undefined) return true;
    this.#sent = ticket;
    this.#end = Math.max(this.#end, position);
    return true;
  }

  /** Sequence numbers of an id begin with 1, at the first ticket that it sends. */
  async #withOffset(state: SyncState, ticket: number): Promise<SyncState> {
    if (state.offset !== undefined) return state;
    return this.#change('strict', async (_, before) => {
      const next = before.offset === undefined ? { ...before, offset: ticket - 1 } : before;
      return { state: next, result: next };
    });
  }

  async #append(state: SyncState, ticket: number, row: OutboxRow, expect: number | undefined, signal?: AbortSignal): Promise<number> {
    await this.#uploadBlobs(signal);
    const seq = ticket - (state.offset as number);
    const record = await this.wire.pack(row.flags, deviceOf(state), seq, row.body);
    return this.#log.append(record, { idempotencyKey: `${state.device}:${seq}`, expect, signal });
  }

  /** Objects come before the records that refer to them. */
  async #uploadBlobs(signal?: AbortSignal): Promise<void> {
    if (!this.#mayHaveBlobs) return;
    for (let next = await this.tables.blobs.first(); next !== undefined; next = await this.tables.blobs.first()) {
      const [hash, bytes] = next;
      await this.#snapshots?.put(blobKey(hash), toStream(bytes), signal).catch((error: unknown) => {
        // The same content is there already: keys are hashes.
        if ((error as Partial<KvError>).code !== 'KV_LOG_CONFLICT') throw error;
      });
      await this.#change('relaxed', async (tx, state) => {
        await tx.collection(this.tables.blobs).delete(hash);
        return { state: { ...state }, result: undefined };
      });
    }
    // While no commit is under way that would add one.
    await this.#local.run(async () => {
      if (await this.tables.blobs.first() === undefined) this.#mayHaveBlobs = false;
    });
  }

  // Strict transactions and fences: records that have to follow the newest one.

  /**
   * Whether a snapshot of a version, with commits up to `drained` in the outbox, may have writes to
   * strict collections that went past sync: they are undone, or were undone since.
   */
  async isDisturbed(version: number, drained: number): Promise<boolean> {
    const commits = await this.#feed.peek();
    return this.#undone > drained || commits.some((commit) => commit.version <= version && !commit.isOwn
      && commit.changes.some((change) => this.tables.isStrictChange(change)));
  }

  /** Reads all of the log, sends all of the outbox, and waits until it has come back. */
  async settle(signal?: AbortSignal): Promise<void> {
    for (;;) {
      signal?.throwIfAborted();
      while (await this.pull(signal));
      while (await this.drain());
      while (await this.publish(signal));
      while (await this.pull(signal));
      if (await this.pending() === 0) return;
      // The log has acknowledged what it does not show yet.
      await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
  }

  /**
   * Takes a record that has to follow the one at `expect` for sending; `undefined` if something else
   * has to be sent first, or the id was given up. `outcomeOf` sends it.
   */
  offer(flags: number, ops: readonly SyncOp[], expect: number, { id }: { readonly id?: string; readonly signal?: AbortSignal } = {}): Promise<StrictRecord | undefined> {
    return this.#sending.run(async () => {
      if (this.#isFenced) throw fenced();
      this.#mayHaveStrict = true;
      const record = await this.#change<StrictRecord | undefined>('strict', async (tx, state) => {
        const outbox = tx.collection(this.tables.outbox);
        if (await outbox.first() !== undefined) return { state, result: undefined };
        const hlc = tick(fromHex(state.hlc), this.#clock());
        const body = encodeTransactions([{ base: expect, hlc, ops }]);
        if (body.length > MAX_BODY_BYTES) {
          throw new KvError('KV_VALUE_TOO_LARGE', `a strict transaction may write 900 KiB, this one writes ${body.length} bytes; split it`);
        }
        const ticket = state.nextTicket;
        if (id !== undefined) {
          const offered = tx.collection(this.tables.offered);
          if (await offered.has(id)) return { state, result: undefined };
          await offered.set(id, { ticket, device: state.device, isRefused: false });
        }
        await outbox.set(ticket, encodeOutbox({ flags, expect, body }));
        return { state: { ...state, hlc: toHex(hlc), nextTicket: ticket + 1 }, result: { ticket, device: state.device, id, isRefused: false } };
      });
      // Of an earlier one it has to be known that it was refused.
      if (record !== undefined) this.#offered = record;
      return record;
    });
  }

  /**
   * Whether a record is in the log and applied; if not, it never will be. After a failure of the log
   * that is unknown, and this has to be called again.
   */
  outcomeOf(record: StrictRecord, signal?: AbortSignal): Promise<boolean> {
    return this.#sending.run(() => this.#outcomeOf(record, signal));
  }

  /**
   * The same for a record that was offered under an id, maybe to another tab that synchronized. If
   * none was, the id is given up: an offer that is still on its way is refused.
   */
  outcomeOfId(id: string, signal?: AbortSignal): Promise<boolean> {
    return this.#sending.run(async () => {
      const row = await this.#change('relaxed', async (tx, state) => {
        const offered = tx.collection(this.tables.offered);
        const found = await offered.get(id);
        if (found !== undefined) return { state, result: found };
        await offered.set(id, VOID);
        return { state: { ...state }, result: VOID };
      });
      return row.isRefused ? false : this.#outcomeOf({ ...row, id }, signal);
    });
  }

  /** Removes ids whose outcome nobody will ask for again. Those that were given up stay as long as their tab. */
  forget(isOver: (id: string, isVoid: boolean) => boolean): Promise<void> {
    return this.#change('relaxed', async (tx, state) => {
      const offered = tx.collection(this.tables.offered);
      const ids = (await offered.entries().toArray()).filter(([id, row]) => isOver(id, row.ticket === 0)).map(([id]) => id);
      if (ids.length === 0) return { state, result: undefined };
      await offered.deleteMany(ids);
      return { state: { ...state }, result: undefined };
    });
  }

  async #outcomeOf(record: StrictRecord, signal?: AbortSignal): Promise<boolean> {
    for (;;) {
      signal?.throwIfAborted();
      // Sending in the background may have finished it since.
      if (await this.#isRefused(record)) return false;
      await this.#checkDevice(record);
      const isDone = await this.#finishStrict(record.ticket, signal);
      await this.#checkDevice(record);
      if (isDone) return true;
      // The log has refused it and does not show why yet.
      if (!await this.#isRefused(record)) await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
  }

  async #isRefused({ id, isRefused }: StrictRecord): Promise<boolean> {
    return isRefused || (id !== undefined && (await this.tables.offered.get(id))?.isRefused === true);
  }

  /** Fails if the device began to read the log again under a new id: then its records are another's. */
  async #checkDevice(record: StrictRecord): Promise<void> {
    if ((await this.state()).device === record.device) return;
    throw new KvError('KV_CONFLICT', 'the log lost its history while this transaction was sent, which may have taken effect; read what it should have written before you call it again');
  }

  /** Sends a record with `expect` until it is known whether it is in the log. */
  async #finishStrict(ticket: number, signal?: AbortSignal): Promise<boolean> {
    const [bytes, stored] = await Promise.all([this.tables.outbox.get(ticket), this.state()]);
    if (bytes === undefined) return true;
    const row = decodeOutbox(bytes);
    const state = await this.#withOffset(stored, ticket);
    try {
      await this.#append(state, ticket, row, row.expect, signal);
    } catch (error) {
      if ((error as Partial<KvError>).code !== 'KV_LOG_CONFLICT') throw error;
    }
    // Whatever the answer was: the log decides.
    while (await this.pull(signal));
    if (!await this.tables.outbox.has(ticket)) return true;
    const { cursor } = await this.state();
    if (cursor.position === row.expect) return false;
    // Something else followed `expect`: the record cannot get into the log any more, and its number
    // was not used.
    await this.#change('strict', async (tx, before) => {
      await tx.collection(this.tables.outbox).delete(ticket);
      const offered = tx.collection(this.tables.offered);
      for (const [id, each] of await offered.entries().toArray()) if (each.ticket === ticket) await offered.set(id, { ...each, isRefused: true });
      return { state: { ...before, nextTicket: ticket }, result: undefined };
    });
    if (this.#offered?.ticket === ticket) this.#offered.isRefused = true;
    return false;
  }

  /** A strict record whose outcome is not known, as before a restart: nothing may take a number after it. */
  async #finishOpenStrict(signal?: AbortSignal): Promise<boolean> {
    if (!this.#mayHaveStrict) return true;
    const last = await this.tables.outbox.last();
    if (last === undefined || decodeOutbox(last[1]).expect === undefined) {
      this.#mayHaveStrict = false;
      return true;
    }
    await this.#finishStrict(last[0], signal);
    return !await this.tables.outbox.has(last[0]);
  }

  /** Becomes the only writer: from here on, appends of earlier ones fail. */
  async fence(signal?: AbortSignal): Promise<void> {
    for (let isIn = false; !isIn;) {
      await this.settle(signal);
      const record = await this.offer(FENCE, [], (await this.state()).cursor.position);
      isIn = record !== undefined && await this.outcomeOf(record, signal);
    }
    this.#isOwner = true;
  }

  /** Writes a snapshot of the base, and removes what the log no longer needs. */
  async compact(signal?: AbortSignal): Promise<{ readonly position: number } | undefined> {
    const store = this.#snapshots;
    if (store === undefined) throw new KvError('KV_INVALID_ARGUMENT', 'sync.compact needs the option `snapshots`');
    await this.settle(signal);
    return writeSnapshot({ tables: this.tables, log: this.#log, store, wire: this.wire, now: this.#clock, lock: (work) => this.#local.run(work) }, signal);
  }
}

async function versionOf(db: Database): Promise<number> {
  const snapshot = db.snapshot();
  try {
    return await snapshot.version;
  } finally {
    snapshot.close().catch(() => undefined);
  }
}

function fenced(): KvError {
  return new KvError('KV_SYNC_FENCED', 'another server became the only writer of this log; what is pending here stays here. Stop this server, or start sync again to take over');
}

/**
 * A strict record that was on its way when the history was lost: if the log has it, it comes back as
 * another device's.
 */
async function dropOpenStrict(tx: Transaction, tables: Tables): Promise<void> {
  const outbox = tx.collection(tables.outbox);
  const last = await outbox.last();
  if (last !== undefined && decodeOutbox(last[1]).expect !== undefined) await outbox.delete(last[0]);
}

/** Begins to read the log from its start, under a new id and keeping the base. */
async function rejoin(tables: Tables, tx: Transaction, state: SyncState, kind: 'lost' | 'reread'): Promise<SyncState> {
  await tx.collection(tables.applied).clear();
  await tx.collection(tables.chunks).clear();
  await dropOpenStrict(tx, tables);
  return { ...withNewId(state), epoch: state.epoch + 1, cursor: { position: 0, serverTime: 0, crc: 0 }, rejoin: kind };
}
