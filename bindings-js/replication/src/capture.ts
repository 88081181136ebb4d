// From the database's commits to records in the outbox.
import { KvError } from 'mangrove-kv';
import { keyText } from 'mangrove-kv/internal';
import type { Transaction } from 'mangrove-kv';
import { fromHex, toHex } from './bytes.ts';
import { tick } from './clock.ts';
import { toBounds } from './key-ranges.ts';
import type { LocalCommit } from './local-feed.ts';
import { Model } from './model.ts';
import { putRecord } from './outbox.ts';
import type { BlobMaker } from './outbox.ts';
import type { KeyBound, ReplicationOp, SyncTransaction } from './record.ts';
import type { BaseValue, Row } from './row.ts';
import type { ReplicaState } from './state.ts';
import type { Bytes, KnownTable, Table, Tables } from './tables.ts';

/** A record gets no further commits beyond these. */
const GOOD_BODY_BYTES = 128 << 10;
const GOOD_OPS = 256;
/** What an operation takes beside key and value, about. */
const OP_BYTES = 16;
/** Commits without anything to send are noted after so many. */
const NOTED_COMMITS = 500;

export interface Captured {
  readonly state: ReplicaState;
  /** Number of commits that were taken. */
  readonly count: number;
  /** Version of the last of them. */
  readonly drained: number;
  /** The log's position that was applied at the last of them. */
  readonly base: number;
  readonly violations: readonly KvError[];
  /** A collection was renamed: everything has to be compared with the base. */
  readonly isRescanNeeded: boolean;
}

/** Collects transactions for one record. */
class Capture {
  readonly n: number;
  readonly #tables: Tables;
  readonly #model: Model;
  readonly #now: number;
  readonly #declared = new Map<string, string>();
  readonly #transactions: SyncTransaction[] = [];
  #ops: ReplicationOp[] = [];
  #bytes = 0;
  #count = 0;
  hlc: bigint;

  constructor(tables: Tables, model: Model, state: ReplicaState, now: number) {
    this.n = state.nextTicket;
    this.#tables = tables;
    this.#model = model;
    this.#now = now;
    this.hlc = fromHex(state.hlc);
  }

  get isEmpty(): boolean {
    return this.#transactions.length === 0;
  }

  get isFull(): boolean {
    return this.#bytes > GOOD_BODY_BYTES || this.#count >= GOOD_OPS;
  }

  #add(table: Table, op: ReplicationOp, bytes: number): void {
    this.#ops.push(op);
    this.#declared.set(table.name, table.declaration);
    this.#bytes += OP_BYTES + bytes;
    this.#count++;
  }

  set(row: Row, value: NonNullable<BaseValue>): void {
    this.#add(
      row.table,
      { type: 'set', collection: row.table.name, key: row.key, value: value.value, expiresAt: value.expiresAt },
      row.key.length + value.value.length,
    );
    row.capture(this.n, value);
  }

  delete(row: Row): void {
    if (!isThere(row)) return;
    this.#add(row.table, { type: 'delete', collection: row.table.name, key: row.key }, row.key.length);
    row.capture(this.n, null);
  }

  /** `later` are keys whose entries were written behind the clear, by what the log has. */
  clear(table: Table, lower: KeyBound, upper: KeyBound, later: ReadonlySet<Row>): void {
    let isEffective = false;
    for (const row of this.#model.within(table, lower, upper)) {
      if (row.isStrict || !isThere(row) || (row.pending === undefined && later.has(row))) continue;
      isEffective = true;
      // A clear leaves no tombstone where nothing is: an own record that the log has lost may come again behind
      // it, and others put back what was there before a loss.
      if (row.former !== undefined || (row.pending !== undefined && row.pending.n !== this.n))
        this.#add(table, { type: 'delete', collection: table.name, key: row.key }, row.key.length);
      row.capture(this.n, null);
    }
    if (isEffective) this.#add(table, { type: 'clear', collection: table.name, lower, upper }, 0);
  }

  /** Ends a transaction. */
  end(base: number): void {
    if (this.#ops.length === 0) return;
    this.hlc = tick(this.hlc, this.#now);
    this.#transactions.push({ base, hlc: this.hlc, ops: this.#ops });
    this.#ops = [];
  }

  /** Puts the record into the outbox. */
  async save(tx: Transaction, state: ReplicaState, blobs: BlobMaker | undefined): Promise<ReplicaState> {
    if (this.isEmpty) return state;
    const nextTicket = await putRecord(
      tx,
      this.#tables,
      0,
      { n: this.n, declared: this.#declared, transactions: this.#transactions },
      blobs,
    );
    return { ...state, nextTicket, hlc: toHex(this.hlc) };
  }
}

/** Whether a delete has something to delete: otherwise nobody needs to know. */
function isThere({ pending, former, isLive }: Row): boolean {
  return pending === undefined ? isLive || former?.stamp.isDead === false : pending.check !== 0;
}

/** Reads the rows that commits write. */
async function loadWritten(
  model: Model,
  tables: Tables,
  state: ReplicaState,
  commits: readonly LocalCommit[],
): Promise<void> {
  const points: { table: Table; key: Bytes }[] = [];
  for (const commit of commits) {
    if (commit.isOwn) continue;
    for (const change of commit.changes) {
      if (tables.pace.isDue) await tables.pace.rest();
      const table = tables.capturing(state, change.collection);
      if (table === undefined) continue;
      if (change.type === 'set' || change.type === 'delete') points.push({ table, key: change.key });
      else if (change.type === 'clear' || change.type === 'drop') {
        const { lower, upper } = toBounds(change.type === 'clear' ? change.range : {});
        await model.loadRange(table, lower, upper);
      }
    }
  }
  await model.load(points);
}

/** A clock that was ahead is right again: what it has removed too early comes back. */
async function revive(model: Model, state: ReplicaState, now: number, until: number): Promise<void> {
  for (const row of await model.loadExpiring(now, until, state)) {
    if (row.isLive && row.pending === undefined && (await model.versionOf(row)) === undefined) row.revive();
  }
}

/**
 * A clear of a range conflicts with writes to the keys that were there. One of replication that adds a key may
 * have its snapshot before the clear and its place behind it: then the clear has not removed that.
 */
async function writtenBehind(
  model: Model,
  table: Table,
  lower: KeyBound,
  upper: KeyBound,
  version: number,
  commits: readonly LocalCommit[],
): Promise<ReadonlySet<Row>> {
  const found = new Set<Row>();
  if (table.data === undefined || !commits.some((other) => other.isOwn === true && other.version > version))
    return found;
  for (const row of model.within(table, lower, upper)) {
    if (!row.isStrict && row.pending === undefined && row.isLive && ((await model.versionOf(row)) ?? 0) > version)
      found.add(row);
  }
  return found;
}

/** Puts commits into the outbox, in one record or more. What went past replication in mode "strict" is undone. */
export async function captureCommits(
  tx: Transaction,
  tables: Tables,
  before: ReplicaState,
  commits: readonly LocalCommit[],
  now: number,
  blobs: BlobMaker | undefined,
): Promise<Captured> {
  const model = new Model(tx, tables, before);
  await loadWritten(model, tables, before, commits);
  const violations: KvError[] = [];
  let state = before;
  let { drained, drainedBase, removedUntil } = state;
  if (removedUntil > now) {
    await revive(model, state, now, removedUntil);
    // It may be ahead still, and is corrected in steps.
    removedUntil = now;
  }
  let [count, isRescanNeeded] = [0, false];
  let capture = new Capture(tables, model, state, now);
  for (const commit of commits) {
    if (isRescanNeeded) break;
    count++;
    if (commit.version <= before.drained) continue;
    drained = commit.version;
    if (commit.isOwn) {
      drainedBase = commit.base ?? drainedBase;
      continue;
    }
    let violated: { table: Table; key: Bytes | undefined } | undefined;
    for (const change of commit.changes) {
      if (tables.pace.isDue) await tables.pace.rest();
      if (change.type === 'rename' && (tables.byName.has(change.collection) || tables.byName.has(change.to)))
        isRescanNeeded = true;
      const table = tables.capturing(state, change.collection);
      if (table === undefined || change.type === 'rename') continue;
      if (change.type === 'set' || change.type === 'delete') {
        const row = model.row(table, change.key);
        if (change.type === 'delete' && change.expired === true) {
          // Removed by the engine's clock. By the log's it may be there still.
          removedUntil = Math.max(removedUntil, row.stamp?.expiresAt ?? 0, row.pending?.expiresAt ?? 0);
          continue;
        }
        if (row.isStrict) {
          if (table.data === undefined || (change.type === 'delete' && !isThere(row))) continue;
          violated = { table, key: change.key };
          row.restore();
        } else if (change.type === 'set') capture.set(row, { value: change.value, expiresAt: change.expiresAt ?? 0 });
        else capture.delete(row);
        continue;
      }
      const { lower, upper } = toBounds(change.type === 'clear' ? change.range : {});
      if (table.modes.has('merge'))
        capture.clear(table, lower, upper, await writtenBehind(model, table, lower, upper, commit.version, commits));
      for (const row of table.data === undefined ? [] : model.within(table, lower, upper)) {
        if (!row.isStrict) continue;
        if (isThere(row)) violated = { table, key: undefined };
        row.restore();
      }
    }
    if (violated !== undefined) violations.push(modeError(violated.table, violated.key));
    capture.end(drainedBase);
    if (!capture.isFull) continue;
    state = await capture.save(tx, state, blobs);
    capture = new Capture(tables, model, state, now);
  }
  state = await capture.save(tx, state, blobs);
  if (
    state !== before ||
    violations.length > 0 ||
    removedUntil !== before.removedUntil ||
    drained - before.drained > NOTED_COMMITS
  )
    state = { ...(await model.save(state)), drained, drainedBase, removedUntil };
  return { state, count, drained, base: drainedBase, violations, isRescanNeeded };
}

/** What a comparison of everything has found. */
export interface Found {
  readonly table: KnownTable;
  readonly key: Bytes;
  /** "write": a local write, of this value. "lost": the entry has expired by a clock that was ahead, and is put back. */
  readonly what: 'write' | 'lost';
  readonly value: BaseValue;
  /** The collection was not replicated before. */
  readonly isFirst: boolean;
}

/** Puts what a comparison found into the outbox; in strict mode it is undone. */
export async function captureFound(
  tx: Transaction,
  tables: Tables,
  before: ReplicaState,
  found: readonly Found[],
  base: number,
  now: number,
  blobs: BlobMaker | undefined,
): Promise<{ readonly state: ReplicaState; readonly violations: readonly KvError[] }> {
  const model = new Model(tx, tables, before);
  await model.load(found);
  const capture = new Capture(tables, model, before, now);
  const violations: KvError[] = [];
  for (const { table, key, what, value, isFirst } of found) {
    const row = model.row(table, key);
    if (what === 'lost') row.restore();
    else if (row.isStrict) {
      if (isFirst && row.base === undefined && value !== null) {
        throw new KvError(
          'KV_REPLICATION_MODE',
          `collection ${JSON.stringify(table.name)} has entries from before it was replicated, such as ${describe(table, key)}; in mode "strict" all have to be written by replication.transaction: move them to another collection first`,
        );
      }
      row.restore();
      violations.push(modeError(table, key));
    } else if (value === null) capture.delete(row);
    else capture.set(row, value);
  }
  capture.end(base);
  const state = await capture.save(tx, before, blobs);
  return { state: await model.save(state), violations };
}

function describe(table: Table, key: Bytes): string {
  try {
    return keyText((table as KnownTable).key.decode(key));
  } catch {
    return 'a key';
  }
}

function modeError(table: Table, key: Bytes | undefined): KvError {
  const what = key === undefined ? 'a range' : describe(table, key);
  return new KvError(
    'KV_REPLICATION_MODE',
    `${what} of collection ${JSON.stringify(table.name)} was written without replication.transaction, which its mode "strict" requires; the write was undone`,
  );
}
