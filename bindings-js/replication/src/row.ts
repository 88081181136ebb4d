// What replication knows of one key: the base's value as the log has it, and the local write over it. The
// changes of a row depend on the log and on local commits alone: no clock, no I/O.
//
// While a row has no local write and is not stale, the entry is the base's value, or that of the base before
// the log is read once more.
import { ByteSink, ByteSource, crc32c } from './bytes.ts';
import type { Position } from './remote-log.ts';
import type { Bytes, Table } from './tables.ts';

/** A value with its expiry in milliseconds since 1970, 0 for never; null if there is none. */
export type BaseValue = { readonly value: Bytes; readonly expiresAt: number } | null;

/** Who wrote a value, and when: of two writes that did not know each other, the greater one wins. */
export interface WriteStamp {
  /** Hybrid logical clock. */
  readonly h: bigint;
  readonly device: bigint;
  /** Counts the records of the device in the order in which they were captured. */
  readonly n: number;
  readonly isStrict: boolean;
}

/** No value has it: of an entry that is not what the write has left. */
export const UNKNOWN = Number.MAX_SAFE_INTEGER;

/** What the log has of a key. */
export interface Stamp extends WriteStamp {
  /** Of the record. */
  readonly position: Position;
  /** The key was deleted, or has expired by the log's time. */
  readonly isDead: boolean;
  /** In milliseconds since 1970; 0: never. */
  readonly expiresAt: number;
  /** See `checkOf`. */
  readonly check: number;
}

/** What an entry is, unless it has expired. */
export interface Shown {
  readonly check: number;
  readonly expiresAt: number;
}

/** A local write that the log has not confirmed. The entry is what it wrote, unless it has expired since. */
export interface Pending extends Shown {
  /** Number of the record that has it. */
  readonly n: number;
}

export const ABSENT: Shown = { check: 0, expiresAt: 0 };

/** The entry that is this base's value. */
export function shownOf(base: Base | undefined): Shown {
  if (base === undefined || base.stamp.isDead) return ABSENT;
  const { check, expiresAt } = base.stamp;
  return { check, expiresAt };
}

const LENGTHS = 2 ** 20;

/** Tells two values of a key apart, except for one in four billion of the same length; 0: there is none. */
export function checkOf(value: BaseValue): number {
  return value === null ? 0 : checkOfBytes(value.value);
}

export function checkOfBytes(bytes: Bytes): number {
  return (bytes.length % LENGTHS) * 2 ** 32 + crc32c(bytes) + 1;
}

type Ranked = Pick<Stamp, 'h' | 'device' | 'n' | 'check'>;

/** Of two stamps: positive if the first one wins against a write that it does not know. */
export function compareStamps(a: Ranked, b: Ranked): number {
  if (a.h !== b.h) return a.h > b.h ? 1 : -1;
  if (a.device !== b.device) return a.device > b.device ? 1 : -1;
  return a.n - b.n || a.check - b.check;
}

/** The base's value in a history of the log: the present one, or the one before a loss. */
export interface Base {
  readonly stamp: Stamp;
  /** The value, where the entry is not known to be it. */
  readonly kept: Bytes | undefined;
}

const STRICT = 1;
const DEAD = 2;
const HAS_BASE = 4;
const HAS_KEPT = 8;
const HAS_PENDING = 16;
const HAS_FORMER = 32;
const STALE = 64;

export function encodeBase(base: Base): Bytes {
  const sink = new ByteSink();
  putBase(sink, base);
  return sink.done();
}

function putBase(sink: ByteSink, { stamp, kept }: Base): void {
  sink.u8((stamp.isStrict ? STRICT : 0) | (stamp.isDead ? DEAD : 0) | (kept === undefined ? 0 : HAS_KEPT));
  sink.u64(stamp.h).u64(stamp.device).uv(stamp.n).uv(stamp.position).uv(stamp.expiresAt).uv(stamp.check);
  if (kept !== undefined) sink.bytes(kept);
}

/** Its value is a view. */
export function readBase(source: ByteSource): Base {
  const flags = source.u8();
  const stamp = {
    isStrict: (flags & STRICT) !== 0,
    isDead: (flags & DEAD) !== 0,
    h: source.u64(),
    device: source.u64(),
    n: source.uv(),
    position: source.uv(),
    expiresAt: source.uv(),
    check: source.uv(),
  };
  return { stamp, kept: flags & HAS_KEPT ? source.raw(source.uv()) : undefined };
}

const HASHES = 2 ** 52;

/** Of a value of the base, for the sum over a collection. */
export function hashOf(key: Bytes, { stamp }: Base): number {
  const sink = new ByteSink().bytes(key);
  putBase(sink, { stamp, kept: undefined });
  const crc = sink.checksum();
  return (Math.imul(crc ^ (crc >>> 15), 0x85eb_ca6b) >>> 12) * 2 ** 32 + crc;
}

/** The sum without one hash and with another. */
export const replaceHash = (sum: number, before: number, after: number): number =>
  (((sum - before + HASHES) % HASHES) + after) % HASHES;

/** A row as it is stored. */
export interface StoredRow {
  /** Counts the histories of the log that were read: a base of an earlier one is not the log's. */
  readonly history: number;
  readonly base: Base | undefined;
  /** The base before the log is read once more, until it is known what became of it. */
  readonly former: Base | undefined;
  readonly pending: Pending | undefined;
  /** What the entry is, if that is not the base's value although there is no local write: see `Row.isMaterial`. */
  readonly shown: Shown | undefined;
}

export function encodeRow({ history, base, former, pending, shown }: StoredRow): Bytes {
  const sink = new ByteSink();
  sink
    .u8((base ? HAS_BASE : 0) | (former ? HAS_FORMER : 0) | (pending ? HAS_PENDING : 0) | (shown ? STALE : 0))
    .uv(history);
  if (pending) sink.uv(pending.n).uv(pending.check).uv(pending.expiresAt);
  if (shown) sink.uv(shown.check).uv(shown.expiresAt);
  if (base) putBase(sink, base);
  if (former) putBase(sink, former);
  return sink.done();
}

export function decodeRow(bytes: Bytes): StoredRow {
  const source = new ByteSource(bytes);
  const [flags, history] = [source.u8(), source.uv()];
  return {
    history,
    pending: flags & HAS_PENDING ? { n: source.uv(), check: source.uv(), expiresAt: source.uv() } : undefined,
    shown: flags & STALE ? { check: source.uv(), expiresAt: source.uv() } : undefined,
    base: flags & HAS_BASE ? readBase(source) : undefined,
    former: flags & HAS_FORMER ? readBase(source) : undefined,
  };
}

/** The histories of the log. While they differ the log is read once more, and entries wait for its end. */
export interface Histories {
  readonly current: number;
  /** The newest one that was read to its end. Of those between, only bases that became the entry count. */
  readonly settled: number;
}

const valueOf = (base: Base | undefined): BaseValue =>
  base?.kept === undefined || base.stamp.isDead ? null : { value: base.kept, expiresAt: base.stamp.expiresAt };

export class Row {
  readonly table: Table;
  readonly key: Bytes;
  readonly isStrict: boolean;
  /** Whether entries follow the base: not of collections that this program does not know, nor while the log is read once more. */
  readonly isMaterial: boolean;
  /** What was stored, as far as it belongs to the present history: digests count it. */
  readonly before: Base | undefined;
  base: Base | undefined;
  former: Base | undefined;
  pending: Pending | undefined;
  /** See `StoredRow`. */
  shown: Shown | undefined;
  /** What the entry becomes; undefined: it stays. */
  entry: BaseValue | undefined;
  isChanged = false;
  /** A clock that was ahead may have removed the entry while the write was pending. */
  mayBeRemoved = false;
  readonly #history: number;
  readonly #expiring: Set<Row>;
  /** What is stored is of an earlier history. */
  readonly #isOutdated: boolean;

  /** `expiring` gets the row while its value expires. */
  constructor(table: Table, key: Bytes, histories: Histories, stored: StoredRow | undefined, expiring: Set<Row>) {
    const { current, settled } = histories;
    this.table = table;
    this.key = key;
    this.isStrict = table.modes.isStrict(key);
    this.isMaterial = table.data !== undefined && current === settled;
    this.#history = current;
    const isCurrent = stored?.history === current;
    this.#isOutdated = stored !== undefined && !isCurrent;
    this.base = this.before = isCurrent ? stored.base : undefined;
    // Between the histories, an own write that the log had confirmed is the entry.
    const isFormer =
      this.#isOutdated &&
      stored?.base !== undefined &&
      (stored.history <= settled || (stored.pending === undefined && stored.shown === undefined));
    this.former = isFormer ? stored.base : stored?.former;
    this.pending = stored?.pending;
    this.shown = stored?.shown;
    this.#expiring = expiring;
    if (this.base !== undefined && this.base.stamp.expiresAt !== 0) expiring.add(this);
  }

  get stamp(): Stamp | undefined {
    return this.base?.stamp;
  }

  get isStale(): boolean {
    return this.shown !== undefined;
  }

  get isLive(): boolean {
    return this.base !== undefined && !this.base.stamp.isDead;
  }

  /** Whether the value is kept here even if the entry is the same: a write past replication, or the engine's clock, may remove that. */
  #keeps({ expiresAt }: { readonly expiresAt: number }): boolean {
    return this.isStrict || expiresAt !== 0 || !this.isMaterial;
  }

  /** A write of the log is the base's from now on. `isMine`: it is the local write over it. */
  accept(stamp: Stamp, value: BaseValue, isMine: boolean): void {
    this.isChanged = true;
    this.#noteShown();
    const isCovered = this.pending !== undefined;
    const keeps = value !== null && (isCovered ? !isMine || this.#keeps(stamp) : this.#keeps(stamp));
    this.base = { stamp, kept: keeps ? value.value : undefined };
    if (stamp.expiresAt !== 0) this.#expiring.add(this);
    if (!isCovered) this.#expose(value);
  }

  /** Called before the base changes: what the entry is and stays, as it does not follow the base. */
  #noteShown(): void {
    if (!this.isMaterial && this.pending === undefined) this.shown ??= shownOf(this.base ?? this.former);
  }

  #expose(value: BaseValue): void {
    if (!this.isMaterial) return;
    this.entry = value;
    this.shown = undefined;
  }

  /** A snapshot has this base; `isLost`: of a record that the log has no more. */
  load(base: Base, isLost: boolean): void {
    this.isChanged = true;
    if (!isLost)
      this.accept(
        base.stamp,
        base.stamp.isDead || base.kept === undefined ? null : { value: base.kept, expiresAt: base.stamp.expiresAt },
        false,
      );
    else if (this.former === undefined || compareStamps(base.stamp, this.former.stamp) > 0) {
      this.#noteShown();
      this.former = base;
    }
  }

  /** The log's time has passed the expiry. */
  expire(): void {
    const { base } = this;
    if (base === undefined || base.stamp.isDead) return;
    this.isChanged = true;
    this.#noteShown();
    this.base = { stamp: { ...base.stamp, isDead: true, check: 0 }, kept: undefined };
    if (this.pending === undefined) this.#expose(null);
  }

  /** The application wrote the entry, in the record `n`. */
  capture(n: number, value: BaseValue): void {
    this.isChanged = true;
    this.pending = { n, check: checkOf(value), expiresAt: value?.expiresAt ?? 0 };
    this.former = undefined;
    this.shown = undefined;
    // The application has written it: what was to be put there is older.
    this.entry = undefined;
  }

  /**
   * The log has the record `n` of this device. If the entry was that record's write, it becomes the
   * base's. Returns the value that has won over it, which the entry becomes; undefined: none has.
   */
  settle(n: number): BaseValue | undefined {
    const { pending, base } = this;
    // A set that has no effect, as one of a collection that is declared otherwise, stays the entry.
    if (pending?.n !== n || (base === undefined && pending.check !== 0)) return undefined;
    this.isChanged = true;
    this.pending = undefined;
    if (base === undefined) {
      if (!this.isMaterial) this.shown = ABSENT;
      return undefined;
    }
    const { stamp, kept } = base;
    const isSame = stamp.isDead
      ? pending.check === 0
      : pending.check === stamp.check && pending.expiresAt === stamp.expiresAt;
    // Without the value the base is what the write has replaced, and it would have won.
    const isReplaced = !isSame && (stamp.isDead || kept !== undefined);
    const winner = isReplaced && pending.check !== UNKNOWN && this.table.data !== undefined ? this.value : undefined;
    const isExpiring = !isReplaced && stamp.expiresAt !== 0 && !stamp.isDead;
    if (!this.isMaterial) {
      // If a clock has removed it, it comes back at the end.
      this.shown = isSame && !isExpiring ? undefined : { check: pending.check, expiresAt: pending.expiresAt };
      return winner;
    }
    this.mayBeRemoved = isExpiring;
    if (isReplaced) this.entry = this.value;
    if (!this.#keeps(stamp)) this.base = { stamp, kept: undefined };
    return winner;
  }

  /** The base's value, if it is kept here. */
  get value(): BaseValue {
    return valueOf(this.base);
  }

  /** The engine has removed the entry, which has not expired by the log: it comes back once this device's clock says so, too. */
  revive(): void {
    if (this.pending !== undefined || this.isStale || !this.isLive) return;
    this.entry = this.value;
    this.isChanged = true;
  }

  /** The entry becomes what it was before a write that went past replication. */
  restore(): void {
    this.isChanged = true;
    // What is under a repair is not known before that comes back.
    if (this.pending !== undefined) this.pending = { ...this.pending, check: UNKNOWN };
    else {
      const known = this.former ?? this.base;
      this.entry = valueOf(known);
      if (this.shown !== undefined) this.shown = shownOf(known);
    }
  }

  /** The program knows the collection now: the entry becomes the base's value. */
  materialize(): void {
    if (this.pending !== undefined) return;
    this.isChanged = true;
    if (this.isStale) this.entry = this.value;
    this.shown = undefined;
    const { base } = this;
    if (base !== undefined && !this.isStrict && base.stamp.expiresAt === 0)
      this.base = { stamp: base.stamp, kept: undefined };
  }

  /** Whether what the log says now is not what it seemed to say. */
  get isDifferent(): boolean {
    const { former, base, shown } = this;
    if (former === undefined)
      return (
        shown !== undefined &&
        this.isLive &&
        (shown.check !== base?.stamp.check || shown.expiresAt !== base.stamp.expiresAt)
      );
    return former.stamp.isDead
      ? this.isLive
      : !this.isLive || former.stamp.check !== base?.stamp.check || former.stamp.expiresAt !== base.stamp.expiresAt;
  }

  /**
   * The log was read to its end once more. What it has takes the place of what was there before, unless
   * the log has `lost` that: then it stays the entry, as the repair `n`. Returns the repair, without
   * its value where that is the entry.
   */
  conclude(isLost: boolean, n: number): Base | undefined {
    const { former, base, pending } = this;
    if (this.#isOutdated) this.isChanged = true;
    if (former === undefined && !this.isStale) return undefined;
    this.isChanged = true;
    this.former = undefined;
    if (pending !== undefined) return undefined;
    if (isLost && former !== undefined && (base === undefined || compareStamps(former.stamp, base.stamp) > 0)) {
      const { stamp, kept } = former;
      this.pending = { n, check: stamp.check, expiresAt: stamp.expiresAt };
      this.shown = undefined;
      // From a snapshot, whose values are no entries yet.
      if (stamp.isDead || kept !== undefined) this.entry = valueOf(former);
      return former;
    }
    if (this.table.data === undefined) {
      this.shown ??= shownOf(base ?? former);
      return undefined;
    }
    this.entry = this.value;
    this.shown = undefined;
    if (base !== undefined && !this.isStrict && base.stamp.expiresAt === 0)
      this.base = { stamp: base.stamp, kept: undefined };
    return undefined;
  }

  /** There is no value for the repair: the entry becomes the base's after all. */
  giveUp(): void {
    this.pending = undefined;
    this.entry = this.value;
  }

  /** The bytes to store; undefined: none. */
  encode(): Bytes | undefined {
    const { base, former, pending, shown } = this;
    if (base === undefined && former === undefined && pending === undefined) return undefined;
    return encodeRow({ history: this.#history, base, former, pending, shown });
  }
}
