// From the log to the base: reading, checking the log's history, and snapshots where it begins with one.
import { KvError } from 'mangrove-kv';
import type { Transaction } from 'mangrove-kv';
import { MissingBlobs, applyRecords } from './apply.ts';
import type { Applied, RawConflict, ReadRecord } from './apply.ts';
import { crc32c } from './bytes.ts';
import { fetchBlobs } from './large-values.ts';
import type { LocalCommits } from './local-commits.ts';
import { partOf, renumber } from './outbox.ts';
import type { Link, ReplicaContext } from './replica-context.ts';
import { crcOf, isIntact, isRead } from './record.ts';
import { conclude, rejoin } from './rejoin.ts';
import { isTruncated, logUnavailable } from './remote-log.ts';
import type { LoggedRecord, Position } from './remote-log.ts';
import { NOTHING_APPLIED, decodeOutbox } from './state.ts';
import type { ReplicaState } from './state.ts';
import { loadSnapshot, readManifest } from './snapshot.ts';
import type { Bytes } from './tables.ts';

const READ_RECORDS = 256;
/** A gap or an unreadable record is passed over if the log still has it after this many reads. */
const MAX_ATTEMPTS = 5;
/** The same for a record that is unreadable in another way each time. */
const MAX_DIFFERENT = 20;
/** More than one commit can have. */
const MAX_CONFLICTS = 1_000_000;
const MAX_UNSEEN = 20;

export interface IncomingOptions {
  /** See `ReplicaOptions`. */
  readonly isCopy: boolean;
  readonly keepsConflicts: boolean;
}

export class Incoming {
  readonly #context: ReplicaContext;
  readonly #local: LocalCommits;
  readonly #link: Link;
  readonly #options: IncomingOptions;
  /** How often the log had nothing more, although acknowledged records had not appeared. */
  #unseen = 0;
  readonly #attempts = new Map<string, number>();
  #isAtEnd = false;
  #answers = 0;

  constructor(context: ReplicaContext, options: IncomingOptions) {
    this.#context = context;
    this.#local = context.local;
    this.#link = context.link;
    this.#options = options;
  }

  /** How often the log has answered a read. */
  get answers(): number {
    return this.#answers;
  }

  /** Whether the log had nothing more when it was read last; there may be something new since. */
  get isAtEnd(): boolean {
    return this.#isAtEnd;
  }

  /** Reads and applies what the log has, up to a limit; resolves to whether there may be more. */
  async pull(signal?: AbortSignal): Promise<boolean> {
    this.#isAtEnd = false;
    const { connections } = this.#link;
    if (!this.#link.isChecked) await this.#checkHistory();
    if (connections !== this.#link.connections) return true;
    const { cursor } = await this.#local.recall();
    const logged = await this.#context.log.read(cursor.position, READ_RECORDS, signal).catch(async (error: unknown) => {
      if (!isTruncated(error)) throw error;
      await this.#loadSnapshot();
      return undefined;
    });
    this.#answers++;
    if (logged === undefined || connections !== this.#link.connections) return true;
    if (logged.length === 0) {
      if ((await this.#local.recall()).rejoin !== undefined) await conclude(this.#context);
      if (connections !== this.#link.connections) return true;
      this.#link.isCaughtUp = this.#isAtEnd = true;
      if ((await this.#local.pending()) === 0) {
        this.#unseen = 0;
        this.#link.acknowledged.clear();
      } else if (this.#link.sent > 0) await this.#findLost(cursor.position);
      return false;
    }
    this.#unseen = 0;
    const alarms = new Map<Position, KvError>();
    let records: ReadRecord[] = [];
    let failure: unknown;
    for (const each of logged) {
      try {
        const read = await this.#read(each, alarms);
        if (failure === undefined) records.push(read);
      } catch (error) {
        // The others behind it are tried, too: if each was read again for itself, a few of them would stop replication for minutes.
        failure ??= error;
      }
    }
    if (records.length === 0) throw failure;
    for (let after = cursor.position; records.length > 0; ) {
      const step = await this.#apply(after, records, signal);
      if (step === undefined) return true;
      for (const { position } of records.slice(0, step.count)) {
        const alarm = alarms.get(position);
        if (alarm !== undefined) this.#context.events.alarm(alarm);
        after = position;
      }
      this.#tell(step.applied);
      if (await this.#mend(step.applied, step.diverged)) return true;
      records = records.slice(step.count);
    }
    // Others may write without pause: then no read finds nothing. What ends a rejoin has to be certain.
    const isEnd =
      logged.length < READ_RECORDS && failure === undefined && (await this.#local.recall()).rejoin === undefined;
    if (isEnd && connections === this.#link.connections) this.#link.isCaughtUp = this.#isAtEnd = true;
    return true;
  }

  /**
   * Looks for acknowledged records that the log, read up to `end`, does not show. One behind `end` may
   * just be late: sending it again locates it or is harmless. A record that is lost for certain goes out
   * under another number, because servers may take the old one for one that they have.
   */
  async #findLost(end: Position): Promise<void> {
    this.#unseen++;
    const { outbox, applied } = this.#local.tables;
    // Parts that have come back stay in the outbox until all of them have.
    const [last] = (await applied.get((await this.#local.recall()).device)) ?? NOTHING_APPLIED;
    const [oldest] = (await outbox.first({ gt: last })) ?? [];
    if (oldest === undefined) return;
    const isLong = this.#unseen % (3 * MAX_UNSEEN) === 0;
    if (!isLong && (this.#link.positionOf(oldest) ?? Infinity) > end) {
      if (this.#unseen % MAX_UNSEEN === 0) this.#link.sendAgain();
      return;
    }
    const isLost = await this.#local.change('strict', async (tx, state) => {
      const rows = await tx.collection(outbox).entries({ gt: last, lte: this.#link.sent }).toArray();
      const [first, bytes] = rows[0] ?? [];
      // It may have come back, or been refused.
      if (first !== oldest || first === undefined) return { state, result: false };
      const row = decodeOutbox(bytes as Bytes);
      if (row.expect !== undefined) return { state, result: false };
      const isBack = (ticket: number): boolean => (this.#link.acknowledged.get(ticket) ?? Infinity) > end;
      const kept = isLong ? -1 : rows.findIndex(([ticket]) => isBack(ticket));
      const [to, newest] = rows.at(kept < 0 ? -1 : kept - 1) as readonly [number, Bytes];
      return {
        state: await renumber(
          tx,
          this.#local.tables,
          state,
          first - partOf(row).index,
          to + partOf(decodeOutbox(newest)).left,
        ),
        result: true,
      };
    });
    if (isLost) this.#link.sendAgain();
  }

  #tell({ isRenumbered, conflicts, gaps, refused, voided, fencedBy }: Applied): void {
    for (const ticket of voided) this.#link.voided.add(ticket);
    for (const error of refused) this.#context.events.alarm(error);
    if (isRenumbered) this.#link.sendAgain();
    if (conflicts.length > 0) this.#context.events.conflicts(conflicts);
    for (const { device, from, to } of gaps) {
      this.#context.events.alarm(
        new KvError(
          'KV_REPLICATION_GAP',
          `the log has lost records ${from} to ${to} of device ${device}; if a device has their contents, it puts them back`,
        ),
      );
    }
    // Its own one comes again, under an earlier id, when the log is read once more.
    if (fencedBy !== undefined && this.#link.isOwner && fencedBy !== this.#link.fence) this.#link.isFenced = true;
  }

  async #read(logged: LoggedRecord, alarms: Map<Position, KvError>): Promise<ReadRecord> {
    try {
      return await this.#context.wire.unpack(logged);
    } catch (error) {
      const { code } = error as Partial<KvError>;
      const { position, serverTime, record } = logged;
      const isUnknown = code === 'KV_VERSION_UNSUPPORTED';
      if (!isUnknown && code !== 'KV_CORRUPT') throw error;
      // Another server may have it undamaged; a copy is what it is.
      if (!isUnknown && !this.#isSettled(position, record))
        throw this.#options.isCopy
          ? error
          : logUnavailable(`the record at position ${position} of the log cannot be read; it is read again`, error);
      alarms.set(position, error as KvError);
      return {
        raw: record,
        unread: error as KvError,
        position,
        serverTime,
        crc: crcOf(record),
        flags: 0,
        device: 0n,
        seq: 0,
        back: 0,
        isSealed: false,
        body: new Uint8Array(0),
      };
    }
  }

  /**
   * Applies records after a position, in one commit: all, or as many as there is memory for their
   * large values. Undefined if the cursor is not there any more: another tab took over.
   */
  async #apply(
    after: Position,
    records: readonly ReadRecord[],
    signal: AbortSignal | undefined,
  ): Promise<
    { readonly applied: Applied; readonly count: number; readonly diverged: Position | undefined } | undefined
  > {
    const { tables } = this.#local;
    const blobs = new Map<string, Bytes>();
    const unusable = new Map<Position, KvError>();
    let batch = records;
    for (let isGapAccepted = false; ; ) {
      try {
        return await this.#context.advance('relaxed', async (tx, state) => {
          if (state.cursor.position !== after) return { state, result: undefined };
          const { state: next, result: applied } = await applyRecords(tx, tables, state, batch, {
            blobs,
            unusable,
            isGapAccepted,
          });
          await this.#keepConflicts(tx, state, applied.conflicts);
          return { state: next, result: { applied, count: batch.length, diverged: state.diverged } };
        });
      } catch (error) {
        if (error instanceof MissingBlobs) {
          const fetch = (hash: Bytes): Promise<Bytes> =>
            this.#context.wire.fetchBlob(this.#context.snapshots, hash, signal);
          // The records before come first: once they are applied, they are not applied again.
          const count =
            error.index ||
            (await fetchBlobs(await this.#local.state(), batch, error.ops, fetch, blobs).catch((failure: unknown) => {
              const { position } = batch[0] as ReadRecord;
              unusable.set(position, this.#unusable(position, failure));
              return batch.length;
            }));
          batch = batch.slice(0, count);
        } else {
          if ((error as Partial<KvError>).code !== 'KV_REPLICATION_GAP' || isGapAccepted) throw error;
          const { cursor } = await this.#local.state();
          if (!this.#isLastAttempt(`gap after ${cursor.position}`)) throw error;
          isGapAccepted = true;
        }
      }
    }
  }

  /** A large value that the object store has lost or damaged must not stop what is behind it. */
  #unusable(position: Position, failure: unknown): KvError {
    const { code, message } = failure as KvError;
    if ((code !== 'KV_NOT_FOUND' && code !== 'KV_CORRUPT') || this.#options.isCopy) throw failure;
    if (!this.#isLastAttempt(`value at ${position}`))
      throw logUnavailable(
        `a large value of the record at position ${position} cannot be read; it is read again`,
        failure,
      );
    return new KvError(
      'KV_NOT_FOUND',
      `the record at position ${position} has no effect here until its large value can be read: ${message}; put it there and start replication again`,
    );
  }

  async #keepConflicts(tx: Transaction, { serial }: ReplicaState, conflicts: readonly RawConflict[]): Promise<void> {
    if (!this.#options.keepsConflicts || conflicts.length === 0) return;
    await tx
      .collection(this.#local.tables.conflicts)
      .setMany(conflicts.map((conflict, index) => [serial * MAX_CONFLICTS + index, conflict] as const));
  }

  /** Whether an unreadable record came often enough, and the same each time: the cursor tells by it whether the log has lost history. */
  #isSettled(position: Position, record: Uint8Array): boolean {
    const isSame = this.#isLastAttempt(`unreadable ${position} ${crc32c(record)}`);
    return this.#isLastAttempt(`unreadable ${position}`, MAX_DIFFERENT) || isSame;
  }

  #isLastAttempt(what: string, most = MAX_ATTEMPTS): boolean {
    const attempts = (this.#attempts.get(what) ?? 0) + 1;
    this.#attempts.set(what, attempts);
    return attempts >= most;
  }

  /** Looks whether the log still has what this device read last. */
  async #checkHistory(): Promise<void> {
    const { connections } = this.#link;
    const { cursor } = await this.#local.state();
    if (cursor.position === 0) {
      if ((await readManifest(this.#context.log, this.#context.wire)) !== undefined) await this.#loadSnapshot();
    } else {
      try {
        const there = await this.#context.log.at(cursor.position);
        if (!isRead(cursor, there)) {
          // Another server may have it undamaged.
          if (there !== undefined && !isIntact(there.record) && !this.#isLastAttempt(`history ${cursor.position}`))
            throw logUnavailable(
              `the record at position ${cursor.position} of the log cannot be read; it is read again`,
            );
          await this.rejoinLost();
        }
      } catch (error) {
        // Only the log says whether a record was purged or lost: a manifest can lag behind it.
        if (!isTruncated(error)) throw error;
        await this.#loadSnapshot();
      }
    }
    this.#link.isChecked = connections === this.#link.connections;
  }

  /** If a check does not agree with this base, the log is read once more: once for each check. `before` is the one before. */
  async #mend({ diverged }: Applied, before: Position | undefined): Promise<boolean> {
    if (diverged === undefined) return false;
    this.#context.events.alarm(
      new KvError(
        'KV_REPLICATION_DIVERGED',
        `this database is not what the device that compacted had at position ${diverged} of the log${before === diverged ? ', although all of it was read once more: that device has something else than the log says' : '; the log is read once more'}`,
      ),
    );
    if (before === diverged || this.#options.isCopy) return false;
    // From its start, if it is there: the newest snapshot may be of the device that is wrong.
    await this.#rejoin(async (tx, state) => ({
      ...(await rejoin(this.#local.tables, tx, state, 'reread')),
      isMending: true,
    }));
    return true;
  }

  /** Reads the log anew after it has lost its history, and puts back what this device, or the newest snapshot, has of it. */
  async rejoinLost(): Promise<void> {
    await this.#rejoin((tx, state) => rejoin(this.#local.tables, tx, state, 'lost'));
    if ((await readManifest(this.#context.log, this.#context.wire)) !== undefined) await this.#loadSnapshot();
  }

  async #rejoin(work: (tx: Transaction, state: ReplicaState) => Promise<ReplicaState>): Promise<void> {
    // What was committed before has its base in the history that ends here.
    await this.#context.advance('strict', async (tx, state) => ({ state: await work(tx, state), result: undefined }));
    this.#attempts.clear();
    this.#link.sendAgain();
    this.#link.isCaughtUp = false;
  }

  async #loadSnapshot(): Promise<void> {
    const snapshots = this.#context.snapshots;
    if (snapshots === undefined)
      throw new KvError(
        'KV_LOG_TRUNCATED',
        'the log begins with a snapshot, which the option `snapshots` has to provide',
      );
    await loadSnapshot({
      tables: this.#local.tables,
      log: this.#context.log,
      store: snapshots,
      wire: this.#context.wire,
      isCopy: this.#options.isCopy,
      change: (work) => this.#context.advance('relaxed', work),
      keepConflicts: (tx, state, conflicts) => this.#keepConflicts(tx, state, conflicts),
      conflicts: (conflicts) => this.#context.events.conflicts(conflicts),
      rejoin: (tx, state, kind) => rejoin(this.#local.tables, tx, state, kind),
    });
    // What is still pending may have another number now.
    this.#link.sendAgain();
  }
}
