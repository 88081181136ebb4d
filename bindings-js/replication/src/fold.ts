// What a record of the log makes of the base. All devices that have read the same records have the same
// base: nothing here depends on a clock, on local writes, or on which collections a program knows.
import { KvError } from 'mangrove-kv';
import { MAX_AHEAD_MS, clamp, toHlc, toMs } from './clock.ts';
import { MAX_DECLARATION, isDeclaration, isReplicableName } from './modes.ts';
import type { ReplicationMode } from './modes.ts';
import { CHECK, FENCE, REPAIR, STRICT, UNBASED } from './record.ts';
import type { KeyBound, RecordBody, ReplicationOp } from './record.ts';
import type { Position } from './remote-log.ts';
import { checkOfBytes, compareStamps } from './row.ts';
import type { BaseValue, Row, WriteStamp } from './row.ts';
import type { ReplicaState } from './state.ts';
import type { Bytes, Table } from './tables.ts';

/** Tombstones older than this are forgotten: how long a device may be offline. */
export const OFFLINE_LIMIT_MS = 90 * 24 * 3600 * 1000;

/** The rows that a record may change. */
export interface View {
  /** A collection as the log declares it, whether this program knows it or not. */
  table(name: string, declaration: string): Table;
  row(table: Table, key: Bytes): Row;
  within(table: Table, lower: KeyBound, upper: KeyBound): Iterable<Row>;
  /** Rows with values that expire up to a time. */
  due(time: number): Iterable<Row>;
  /** A large value, or that this device wrote it and has it as its entry. */
  value(hash: Bytes): Bytes | undefined;
}

/** A whole record, or all parts of one. */
export interface FoldedRecord {
  readonly position: Position;
  readonly serverTime: number;
  readonly flags: number;
  readonly device: bigint;
  readonly body: RecordBody;
  /** The record before it in the log. */
  readonly previous: Position;
  /** Its bytes are authentic. What the log says of it is not: the servers may choose that. */
  readonly isSealed: boolean;
  /** This device wrote it, and it is in the outbox. */
  readonly isMine: boolean;
}

/**
 * The time of a record, by which entries expire. The servers of sealed records cannot hasten it, nor
 * can a device whose clock is ahead.
 */
export function timeOf({
  serverTime,
  isSealed,
  body,
}: Pick<FoldedRecord, 'serverTime' | 'isSealed'> & { readonly body: RecordBody | undefined }): number {
  if (!isSealed) return serverTime;
  const written = body?.transactions.reduce((latest, { hlc }) => Math.max(latest, toMs(hlc)), 0) ?? 0;
  return Math.min(serverTime, written + MAX_AHEAD_MS);
}

/**
 * Whether a record that had to follow the one that its writer had read does so. Otherwise the servers
 * have let it in all the same, and it has no effect.
 */
export function isInPlace({ flags, body, previous }: Pick<FoldedRecord, 'flags' | 'body' | 'previous'>): boolean {
  return (flags & (STRICT | FENCE | CHECK)) === 0 || body.transactions.every(({ base }) => base === previous);
}

/** A write of this device lost against one that did not know it. */
export interface FoundConflict {
  readonly row: Row;
  readonly theirs: BaseValue;
}

export interface Folded {
  readonly state: ReplicaState;
  readonly conflicts: readonly FoundConflict[];
  /** Why operations have no effect on any device. */
  readonly refused: readonly KvError[];
}

/** An operation's write, as far as it decides who wins. */
interface Write extends WriteStamp {
  readonly base: Position;
  readonly position: Position;
  /** The stamp is the operation's own, of a time before the record: nothing but stamps decides. */
  readonly isRepair: boolean;
}

/** The stamp with which a write takes the place of what the base has; undefined if it does not. */
function decide({ base: current }: Row, write: Write, check: number, horizon: bigint): WriteStamp | undefined {
  const { h, device, n, isStrict, isRepair } = write;
  const won = (least: bigint): WriteStamp => ({ h: h > least ? h : least, device, n, isStrict });
  if (current === undefined || (current.stamp.isDead && current.stamp.h < horizon)) return won(0n);
  const { stamp } = current;
  if (!isRepair) {
    if (isStrict) return won(stamp.h + 1n);
    // The writer knew the value: its write is newer, whatever the clocks say.
    if (stamp.device === device) {
      // Never above itself: the log may have lost the record, and have it once more.
      if (n === stamp.n) return won(stamp.h);
      return n > stamp.n ? won(stamp.h + 1n) : undefined;
    }
    if (stamp.position <= write.base) return won(stamp.h + 1n);
  }
  const order = compareStamps({ h, device, n, check }, stamp);
  // Who has read the log from a snapshot of lost records has the repaired value at the repair's position alone.
  return order > 0 || (order === 0 && isRepair) ? won(0n) : undefined;
}

/** Advances the log's time: what has expired by it is deleted. */
export function advance(view: View, state: ReplicaState, time: number): ReplicaState {
  if (time <= state.time) return state;
  for (const row of view.due(time)) row.expire();
  return { ...state, time };
}

/** Applies a record after `advance` to its time. */
export function fold(view: View, state: ReplicaState, record: FoldedRecord, mine: ReadonlySet<bigint>): Folded {
  const { flags, device, position, isSealed, isMine } = record;
  // The clamp protects from clocks that are ahead; of sealed records it would let the servers decide who wins.
  // The log's time does not go back as its servers' clocks may, so it leaves the order of a device's writes.
  const limited = (h: bigint): bigint => (isSealed ? h : clamp(h, state.time));
  const { n, declared: given, transactions } = record.body;
  const isRepair = (flags & REPAIR) !== 0;
  const mode: ReplicationMode = flags & STRICT ? 'strict' : 'merge';
  const horizon = toHlc(state.time - OFFLINE_LIMIT_MS);
  const conflicts: FoundConflict[] = [];
  const { declared, refused, names } = declare(state.declared, given, record);
  let hlc = BigInt(`0x${state.hlc}`);

  const apply = (row: Row, value: BaseValue, check: number, write: Write): void => {
    const before = row.base;
    const winner = decide(row, write, check, horizon);
    if (winner === undefined) return;
    if (winner.h > hlc) hlc = winner.h;
    const isGone = value !== null && value.expiresAt !== 0 && value.expiresAt <= state.time;
    // What is read once more was told before.
    const isTold = row.table.data === undefined || (!row.isMaterial && position <= state.readBefore);
    const isLost =
      before !== undefined &&
      mine.has(before.stamp.device) &&
      !isMine &&
      !isRepair &&
      row.pending === undefined &&
      !isTold &&
      write.base < before.stamp.position;
    if (isLost && before.stamp.check !== (isGone ? 0 : check)) conflicts.push({ row, theirs: isGone ? null : value });
    const stamp = {
      ...winner,
      position,
      isDead: value === null || isGone,
      expiresAt: isGone ? 0 : (value?.expiresAt ?? 0),
      check: isGone ? 0 : check,
    };
    // Over a write of an earlier record the entry has another one, which may lose: the device may have got a new id since.
    row.accept(stamp, isGone ? null : value, isMine && !isRepair && row.pending?.n === n);
  };

  const touched = new Set<Row>();
  for (const { base, hlc: h, ops } of transactions) {
    const common = {
      h: limited(h),
      device,
      n,
      base: flags & UNBASED ? 0 : base,
      position,
      isStrict: mode === 'strict',
      isRepair,
    };
    for (const op of ops) {
      if (!names.has(op.collection)) continue;
      const table = view.table(op.collection, declared[op.collection] as string);
      if (op.type === 'clear') {
        for (const row of view.within(table, op.lower, op.upper)) {
          if (row.isStrict !== common.isStrict) continue;
          if (isMine && row.pending?.n === n) touched.add(row);
          if (row.isLive) apply(row, null, 0, common);
        }
        continue;
      }
      // Mixed modes on one key would make the order of stamps and that of the log contradict each other.
      if (!isRepair && table.modes.isStrict(op.key) !== common.isStrict) continue;
      const row = view.row(table, op.key);
      const write = isRepair && op.stamp !== undefined ? { ...common, ...op.stamp, h: limited(op.stamp.h) } : common;
      const { value, check } = valueOf(view, op);
      apply(row, value, check, write);
      if (isMine) touched.add(row);
    }
  }
  for (const row of touched) {
    const theirs = row.settle(n);
    if (theirs !== undefined) conflicts.push({ row, theirs });
  }
  return { state: { ...state, declared, hlc: hlc.toString(16).padStart(16, '0') }, conflicts, refused };
}

const NO_BYTES = new Uint8Array(0);

function valueOf(
  view: View,
  op: Exclude<ReplicationOp, { readonly type: 'clear' }>,
): { readonly value: BaseValue; readonly check: number } {
  if (op.type === 'delete') return { value: null, check: 0 };
  if (op.type === 'set') return { value: { value: op.value, expiresAt: op.expiresAt }, check: checkOfBytes(op.value) };
  return { value: { value: view.value(op.hash) ?? NO_BYTES, expiresAt: op.expiresAt }, check: op.check };
}

/**
 * The first record that names a collection decides its codecs and modes. Operations of a device that
 * declares others have no effect: their bytes would mean something else.
 */
function declare(
  before: ReplicaState['declared'],
  given: ReadonlyMap<string, string>,
  { position, device }: FoldedRecord,
): { readonly declared: ReplicaState['declared']; readonly refused: KvError[]; readonly names: ReadonlySet<string> } {
  const refused: KvError[] = [];
  const names = new Set<string>();
  let declared = before;
  for (const [name, declaration] of given) {
    const known = declared[name];
    if (known === undefined && isReplicableName(name) && isDeclaration(declaration)) {
      declared = { ...declared, [name]: declaration };
      names.add(name);
    } else if (known === declaration) names.add(name);
    else {
      const what =
        known === undefined
          ? `has a name that is too long, or is declared by ${declaration.length} bytes that mean nothing (at most ${MAX_DECLARATION})`
          : `is declared as ${declaration}, and the log has it as ${known}`;
      refused.push(
        new KvError(
          'KV_REPLICATION_MODE',
          `collection ${JSON.stringify(name)} ${what}: the operations on it in the record at position ${position} of device ${device.toString(16)} have no effect; open it with the same codecs and modes on all devices`,
        ),
      );
    }
  }
  return { declared, refused, names };
}
