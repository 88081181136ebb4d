// From the database's commits to records in the outbox.
import { KvError } from '../base/errors.ts';
import { keyText } from '../codec/key-text.ts';
import type { Snapshot, Transaction } from '../types/index.ts';
import { chunksOf, toHexBytes } from './apply.ts';
import { fromHex, toHex } from './bytes.ts';
import { tick } from './clock.ts';
import { toBounds } from './key-ranges.ts';
import type { LocalCommit } from './local-feed.ts';
import { Model } from './model.ts';
import type { Row } from './model.ts';
import { CHUNK, encodeTransactions } from './record.ts';
import type { KeyBound, SyncOp, SyncTransaction } from './record.ts';
import { decodeOverlay, decodeStamp, encodeOutbox } from './rows.ts';
import type { SyncState } from './rows.ts';
import type { Bytes, Table, Tables } from './tables.ts';

/** Bodies are cut into parts of this size; compressed and sealed they fit into a record. */
export const MAX_BODY_BYTES = 900 << 10;
/** A record gets no further commits beyond these: sync writes two rows for each operation, in one commit. */
const GOOD_BODY_BYTES = 128 << 10;
const GOOD_OPS = 256;
/** What an operation takes beside key and value, about. */
const OP_BYTES = 16;

export interface Drained {
  /** Number of commits that were taken. */
  readonly count: number;
  /** The log's position that was applied at the last of them. */
  readonly base: number;
  readonly violations: readonly KvError[];
  /** A collection was renamed: everything has to be compared with the base. */
  readonly isRescanNeeded: boolean;
}

/** The newest local write to a key. */
interface Latest {
  readonly row: Row;
  readonly version: number;
  readonly value: { readonly value: Bytes; readonly expiresAt: number } | null;
}

/** Collects transactions for one or more records, and what they leave in the overlay. */
export class Capture {
  readonly #tables: Tables;
  readonly #model: Model;
  readonly #now: number;
  readonly transactions: SyncTransaction[] = [];
  readonly #latest = new Map<Row, Latest>();
  #ops: SyncOp[] = [];
  hlc: bigint;

  constructor(tables: Tables, model: Model, state: SyncState, now: number) {
    this.#tables = tables;
    this.#model = model;
    this.#now = now;
    this.hlc = fromHex(state.hlc);
  }

  set(table: Table, key: Bytes, value: Bytes, expiresAt: number, version: number): void {
    this.#ops.push({ type: 'set', collection: table.name, key, value, expiresAt });
    const row = this.#model.row(table, key);
    this.#latest.set(row, { row, version, value: { value, expiresAt } });
  }

  delete(table: Table, key: Bytes, version: number): void {
    const row = this.#model.row(table, key);
    const latest = this.#latest.get(row);
    const known = latest === undefined ? row.overlay ?? (row.stamp?.isDead === false ? row.stamp : undefined) : latest.value ?? undefined;
    // A delete that found nothing, or the removal of an entry that expired everywhere.
    if (known === undefined || (known.expiresAt !== 0 && known.expiresAt <= this.#now)) return;
    this.#ops.push({ type: 'delete', collection: table.name, key });
    this.#latest.set(row, { row, version, value: null });
  }

  clear(table: Table, lower: KeyBound, upper: KeyBound, version: number): void {
    let isEffective = false;
    for (const row of this.#model.within(table, lower, upper)) {
      if (row.isStrict) continue;
      const latest = this.#latest.get(row);
      const isThere = latest === undefined ? row.overlay?.isDelete === false || (row.stamp?.isDead === false && row.overlay?.isDelete !== true) : latest.value !== null;
      if (!isThere) continue;
      // Another device's entry, applied after the clear: it is not what was cleared.
      if (latest === undefined && row.overlay === undefined && row.isClean && row.entryVersion > version) continue;
      isEffective = true;
      this.#latest.set(row, { row, version, value: null });
    }
    if (!isEffective) return;
    this.#ops.push({ type: 'clear', collection: table.name, lower, upper });
  }

  /** Ends a transaction. */
  end(base: number): void {
    if (this.#ops.length === 0) return;
    this.hlc = tick(this.hlc, this.#now);
    this.transactions.push({ base, hlc: this.hlc, ops: this.#ops });
    this.#ops = [];
  }

  /** Puts the records into the outbox, and their keys into the overlay. */
  async save(tx: Transaction, state: SyncState, blobs: BlobMaker | undefined): Promise<SyncState> {
    if (this.transactions.length === 0) return state;
    const { pace } = this.#tables;
    const last = await putRecords(tx, this.#tables, state.nextTicket, 0, this.transactions, blobs);
    for (const { row, version, value } of this.#latest.values()) {
      if (pace.isDue) await pace.rest();
      row.setOverlay({ ticket: last, captured: version, isDelete: value === null, expiresAt: value?.expiresAt ?? 0, base: row.overlay?.base });
    }
    await this.#model.save();
    return { ...state, nextTicket: last + 1, hlc: toHex(this.hlc) };
  }
}

/** Turns a large value into an object; undefined without an object store. */
export type BlobMaker = (value: Bytes) => Promise<{ readonly hash: Bytes; readonly stored: Bytes }>;

/** Larger values are not in the record, but objects of their own. */
export const BLOB_BYTES = 256 << 10;

async function withBlobs(tx: Transaction, tables: Tables, op: SyncOp, blobs: BlobMaker): Promise<SyncOp> {
  if (op.type !== 'set' || op.value.length <= BLOB_BYTES) return op;
  const { hash, stored } = await blobs(op.value);
  await tx.collection(tables.blobs).set(toHexBytes(hash), stored);
  const { collection, key, value, expiresAt, stamp } = op;
  return { type: 'blob', collection, key, hash, size: value.length, expiresAt, ...(stamp && { stamp }) };
}

/** Puts transactions into the outbox, in parts if they are long; returns the last ticket. */
export async function putRecords(tx: Transaction, tables: Tables, first: number, flags: number, given: readonly SyncTransaction[], blobs: BlobMaker | undefined): Promise<number> {
  const transactions = blobs === undefined ? given : await Promise.all(given.map(async (each) => ({
    ...each, ops: await Promise.all(each.ops.map((op) => withBlobs(tx, tables, op, blobs))),
  })));
  await tables.pace.rest();
  const body = encodeTransactions(transactions);
  await tables.pace.rest();
  const outbox = tx.collection(tables.outbox);
  if (body.length <= MAX_BODY_BYTES) {
    tables.defer(outbox.set(first, encodeOutbox({ flags, expect: undefined, body })));
    return first;
  }
  const parts = chunksOf(body, MAX_BODY_BYTES);
  await outbox.setMany(parts.map((part, index) => [first + index, encodeOutbox({ flags: flags | CHUNK, expect: undefined, body: part })] as const));
  return first + parts.length - 1;
}

function describe(table: Table, key: Bytes): string {
  try {
    return keyText(table.key.decode(key));
  } catch {
    return 'a key';
  }
}

/** As many commits from the front of the list as one record should have: at least one. */
function oneRecordOf(tables: Tables, commits: readonly LocalCommit[]): readonly LocalCommit[] {
  let [bytes, ops] = [0, 0];
  const end = commits.findIndex((commit) => {
    if (bytes > GOOD_BODY_BYTES || ops >= GOOD_OPS) return true;
    if (commit.isOwn) return false;
    for (const change of commit.changes) {
      if (!tables.byName.has(change.collection)) continue;
      ops++;
      bytes += OP_BYTES;
      if (change.type === 'set') bytes += change.key.length + change.value.length;
      else if (change.type === 'delete') bytes += change.key.length;
    }
    return false;
  });
  return end < 0 ? commits : commits.slice(0, end);
}

/** Takes commits from the front of the list, for one record. */
export async function drainCommits(tx: Transaction, tables: Tables, state: SyncState, given: readonly LocalCommit[], now: number, blobs?: BlobMaker): Promise<{ readonly state: SyncState; readonly result: Drained }> {
  const commits = oneRecordOf(tables, given);
  const model = new Model(tx, tables, now);
  const capture = new Capture(tables, model, state, now);
  const violations: KvError[] = [];
  let { drained, drainedBase } = state;
  let [count, isRescanNeeded] = [0, false];
  const points: { table: Table; key: Bytes }[] = [];
  for (const commit of commits) {
    if (commit.isOwn) continue;
    for (const change of commit.changes) {
      if (tables.pace.isDue) await tables.pace.rest();
      const table = tables.byName.get(change.collection);
      if (table === undefined) continue;
      if (change.type === 'set' || change.type === 'delete') points.push({ table, key: change.key });
      else if (change.type === 'clear' || change.type === 'drop') {
        const { lower, upper } = toBounds(change.type === 'clear' ? change.range : {});
        await model.loadRange(table, lower, upper);
      }
    }
  }
  await model.load(points);
  const restore = (row: Row): void => {
    row.setEntry(row.copy);
    row.becomeClean();
  };
  for (const commit of commits) {
    if (isRescanNeeded) break;
    count++;
    drained = commit.version;
    if (commit.isOwn) {
      drainedBase = commit.base ?? drainedBase;
      continue;
    }
    let violated: { table: Table; key: Bytes | undefined } | undefined;
    for (const change of commit.changes) {
      if (tables.pace.isDue) await tables.pace.rest();
      if (change.type === 'rename' && (tables.byName.has(change.collection) || tables.byName.has(change.to))) isRescanNeeded = true;
      const table = tables.byName.get(change.collection);
      if (table === undefined || change.type === 'rename') continue;
      if (change.type === 'set' || change.type === 'delete') {
        const row = model.row(table, change.key);
        if (row.isStrict) {
          // The removal of an expired entry is no violation.
          if (change.type === 'delete' && row.entry === null && !row.isLive(now)) continue;
          violated = { table, key: change.key };
          restore(row);
        } else if (change.type === 'set') capture.set(table, change.key, change.value, change.expiresAt ?? 0, commit.version);
        else capture.delete(table, change.key, commit.version);
        continue;
      }
      const { lower, upper } = toBounds(change.type === 'clear' ? change.range : {});
      if (table.modes.has('merge')) capture.clear(table, lower, upper, commit.version);
      for (const row of model.within(table, lower, upper)) {
        if (!row.isStrict) continue;
        if (row.copy !== null) violated = { table, key: undefined };
        restore(row);
      }
    }
    if (violated !== undefined) violations.push(modeError(violated.table, violated.key));
    capture.end(drainedBase);
  }
  const isWorthIt = capture.transactions.length > 0 || violations.length > 0 || drained - state.drained > 500;
  let next = isWorthIt ? { ...state, drained, drainedBase } : state;
  if (capture.transactions.length > 0) next = await capture.save(tx, next, blobs);
  else await model.save();
  return { state: next, result: { count, base: drainedBase, violations, isRescanNeeded } };
}

function modeError(table: Table, key: Bytes | undefined): KvError {
  const what = key === undefined ? 'a range' : describe(table, key);
  return new KvError('KV_SYNC_MODE', `${what} of collection ${JSON.stringify(table.name)} was written without sync.transaction, which its mode "strict" requires; the write was undone`);
}

/** Number of keys that one commit of a scan looks at. */
const SCAN_SLICE = 500;

/** A local write that a scan found. */
interface Found {
  readonly table: Table;
  readonly key: Bytes;
  readonly value: { readonly value: Bytes; readonly expiresAt: number } | null;
  readonly version: number;
}

/**
 * Finds local writes by comparing all entries with the base, when the feed does not have them: at
 * the first start, and if it was cut off. Yields them in slices, as of a snapshot.
 */
export async function* scan(tables: Tables, snapshot: Snapshot, version: number, now: number): AsyncGenerator<readonly Found[]> {
  for (const table of tables.byName.values()) {
    const [data, stamps, overlay] = [snapshot.collection(table.data), snapshot.collection(table.stamps), snapshot.collection(table.overlay)];
    const check = async (key: Bytes): Promise<Found | undefined> => {
      const [entry, stamp, over] = await Promise.all([data.getEntry(key), stamps.getEntry(key), overlay.getEntry(key)]);
      const known = stamp && decodeStamp(stamp.value);
      const isLive = known !== undefined && !known.isDead && (known.expiresAt === 0 || known.expiresAt > now);
      const captured = !table.modes.isStrict(key) && over !== undefined ? decodeOverlay(over.value) : undefined;
      if (entry === undefined) {
        const isCaptured = captured !== undefined && captured.ticket > 0 && (captured.isDelete || (captured.expiresAt !== 0 && captured.expiresAt <= now));
        if (isCaptured || (captured === undefined && !isLive)) return undefined;
        return { table, key, value: null, version };
      }
      if (captured !== undefined && captured.ticket > 0 && !captured.isDelete && (captured.captured || over?.version) === entry.version) return undefined;
      if (captured === undefined && known !== undefined && entry.version === (known.dataVersion || stamp?.version)) return undefined;
      return { table, key, value: { value: entry.value, expiresAt: entry.expiresAt ?? 0 }, version: entry.version };
    };
    for (const from of [data, stamps]) {
      const keys = from.keys();
      for (;;) {
        const slice = await keys.nextMany(SCAN_SLICE);
        if (slice.length === 0) break;
        // Deletes are found among the stamps, everything else among the entries.
        const found = (await Promise.all(slice.map(check))).filter((each) => each !== undefined && (each.value === null) === (from === stamps));
        if (found.length > 0) yield found as Found[];
      }
    }
  }
}

/** Puts what a scan found into the outbox; in strict mode it is undone. */
export async function captureFound(tx: Transaction, tables: Tables, state: SyncState, found: readonly Found[], base: number, now: number, blobs?: BlobMaker): Promise<{ readonly state: SyncState; readonly result: readonly KvError[] }> {
  const model = new Model(tx, tables, now);
  await model.load(found);
  const capture = new Capture(tables, model, state, now);
  const violations: KvError[] = [];
  for (const { table, key, value, version } of found) {
    const row = model.row(table, key);
    if (row.isStrict) {
      if (state.drained === -1 && row.stamp === undefined && row.entry !== null) {
        throw new KvError('KV_SYNC_MODE', `collection ${JSON.stringify(table.name)} has entries from before it was synchronized, such as ${describe(table, key)}; in mode "strict" all have to be written by sync.transaction: move them to another collection first`);
      }
      row.setEntry(row.copy);
      row.becomeClean();
      violations.push(modeError(table, key));
    } else if (value === null) capture.delete(table, key, version);
    else capture.set(table, key, value.value, value.expiresAt, version);
  }
  capture.end(base);
  if (capture.transactions.length > 0) return { state: await capture.save(tx, state, blobs), result: violations };
  await model.save();
  return { state: violations.length > 0 ? { ...state } : state, result: violations };
}
