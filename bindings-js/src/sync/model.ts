// The rows of keys that a commit of sync looks at, read once, changed in memory, and written at the
// end: entry, stamp and overlay of each.
import type { Reader, Transaction, Writer } from '../types/index.ts';
import { isWithin, keyId, toRange } from './key-ranges.ts';
import type { KeyBound } from './record.ts';
import { copyOf, decodeOverlay, decodeStamp, encodeOverlay, encodeStamp } from './rows.ts';
import type { BaseValue, Overlay, Stamp } from './rows.ts';
import type { Bytes, Rows, Table, Tables } from './tables.ts';
import { Unread } from './unread.ts';

type RowsIn = Reader<Bytes, Bytes> & Writer<Bytes, Bytes>;

export class Row {
  readonly table: Table;
  readonly key: Bytes;
  readonly isStrict: boolean;
  /** The entry, as the application sees it. */
  entry: BaseValue;
  /** Version of the entry; 0 if this commit writes it. */
  entryVersion: number;
  stamp: Stamp | undefined;
  overlay: Overlay | undefined;
  /** Version of the commit that wrote the overlay. */
  readonly overlayVersion: number;
  /** Version that the entry has if it is the base's. */
  #cleanVersion: number;
  /** Whether the application wrote the entry since, in a commit that is not in the outbox yet. */
  readonly isUnread: boolean;
  /** Whether the entry is the base's value. */
  isClean: boolean;
  /** In strict mode: the base's value, whatever the entry is. */
  readonly copy: BaseValue;
  #isEntryChanged = false;
  #isStampChanged = false;
  #isOverlayChanged = false;

  constructor(table: Table, key: Bytes, read: RowParts, now: number, isUnread: boolean) {
    const { entry, stamp, overlay } = read;
    this.table = table;
    this.key = key;
    this.isStrict = table.modes.isStrict(key);
    this.entry = entry === undefined ? null : { value: entry.value, expiresAt: entry.expiresAt ?? 0 };
    this.entryVersion = entry?.version ?? 0;
    this.stamp = stamp && decodeStamp(stamp.value);
    this.overlay = !this.isStrict && overlay !== undefined ? decodeOverlay(overlay.value) : undefined;
    this.copy = this.isStrict && overlay !== undefined ? decodeOverlay(overlay.value).base ?? null : null;
    this.overlayVersion = overlay?.version ?? 0;
    this.#cleanVersion = this.stamp?.dataVersion || (stamp?.version ?? 0);
    this.isUnread = isUnread;
    this.isClean = !isUnread && this.overlay === undefined && this.#isEntryTheBase(now);
  }

  #isEntryTheBase(now: number): boolean {
    if (this.entry === null) return !this.isLive(now);
    return this.stamp !== undefined && this.entryVersion === this.#cleanVersion;
  }

  /** Whether the base has a value that is not expired. */
  isLive(now: number): boolean {
    const { stamp } = this;
    return stamp !== undefined && !stamp.isDead && (stamp.expiresAt === 0 || stamp.expiresAt > now);
  }

  /** In a restored database: the entry is the base's value if it looks like it. */
  recognize(checkOf: (value: BaseValue) => number): void {
    const { stamp, entry, overlay } = this;
    if (stamp === undefined) return;
    if (overlay !== undefined) {
      // Whether the entry is the write that was sent or a later one cannot be told: it is sent again.
      this.setOverlay({ ...overlay, ticket: 0, captured: 0 });
      return;
    }
    const isSame = entry === null ? stamp.isDead || stamp.expiresAt !== 0 : stamp.check === 0 || stamp.check === checkOf(entry);
    if (!isSame || (entry !== null && stamp.isDead)) return;
    if (this.isStrict && checkOf(this.copy) !== checkOf(entry)) return;
    this.becomeClean();
  }

  setEntry(value: BaseValue): void {
    this.entry = value;
    this.entryVersion = 0;
    this.#isEntryChanged = true;
  }

  setStamp(stamp: Omit<Stamp, 'dataVersion'>): void {
    this.stamp = { ...stamp, dataVersion: 0 };
    this.#isStampChanged = true;
  }

  /** The base has nothing of the key any more, not even a tombstone. */
  forget(): void {
    if (this.isClean) this.setEntry(null);
    else if (this.overlay !== undefined) this.setOverlay({ ...this.overlay, base: null });
    this.stamp = undefined;
    this.#isStampChanged = true;
  }

  setOverlay(overlay: Overlay | undefined): void {
    this.overlay = overlay;
    this.#isOverlayChanged = true;
    if (overlay !== undefined) this.isClean = false;
  }

  /** The entry, as it is or is written by this commit, is the base's value from now on. */
  becomeClean(): void {
    this.setOverlay(undefined);
    this.isClean = true;
    this.#isStampChanged = this.#isStampChanged || this.stamp !== undefined;
    if (!this.#isEntryChanged) this.#cleanVersion = this.entryVersion;
  }

  /** The rows to write, by collection. */
  changes(): Change[] {
    const { table, key, entry, stamp, overlay } = this;
    const list: Change[] = [];
    if (this.#isEntryChanged) list.push({ rows: table.data, key, value: entry });
    if (this.#isStampChanged && stamp === undefined) list.push({ rows: table.stamps, key, value: null });
    if (this.#isStampChanged && stamp !== undefined) {
      const dataVersion = this.#isEntryChanged && this.isClean ? 0 : this.#cleanVersion;
      list.push({ rows: table.stamps, key, value: { value: encodeStamp({ ...stamp, dataVersion }), expiresAt: 0 } });
    }
    if (this.isStrict) {
      if (this.#isEntryChanged) {
        const copy = entry && copyOf(entry);
        list.push({ rows: table.overlay, key, value: copy && { value: copy, expiresAt: 0 } });
      }
    } else if (this.#isOverlayChanged) {
      list.push({ rows: table.overlay, key, value: overlay ? { value: encodeOverlay(overlay), expiresAt: 0 } : null });
    }
    return list;
  }
}

/** A row to write, or to delete. */
export interface Change {
  readonly rows: Rows;
  readonly key: Bytes;
  readonly value: BaseValue;
}

interface Stored {
  readonly value: Bytes;
  readonly version: number;
  readonly expiresAt?: number;
}

interface RowParts {
  readonly entry: Stored | undefined;
  readonly stamp: Stored | undefined;
  readonly overlay: Stored | undefined;
}

/** With so many keys it pays to ask first which of them are there. */
const MANY_KEYS = 16;
/** Keys that are read at once. */
const READ_KEYS = 128;
/** Rows that are written at once. */
const WRITE_ROWS = 256;
const NOTHING: RowParts = { entry: undefined, stamp: undefined, overlay: undefined };

export class Model {
  readonly #tx: Transaction;
  readonly #now: number;
  readonly #tables: Tables;
  readonly #unread: Unread;
  readonly #rows = new Map<string, Map<string, Row>>();
  readonly #handles = new Map<Rows, RowsIn>();

  /** `now` decides which entries are expired. `unread` has all commits of the application that are in the transaction's snapshot and not in the outbox. */
  constructor(tx: Transaction, tables: Tables, now: number, unread = new Unread()) {
    this.#tx = tx;
    this.#now = now;
    this.#tables = tables;
    this.#unread = unread;
    for (const name of tables.byName.keys()) this.#rows.set(name, new Map());
  }

  /** Reads rows of keys. */
  async load(wanted: Iterable<{ readonly table: Table; readonly key: Bytes }>): Promise<void> {
    const byTable = new Map<Table, Map<string, Bytes>>();
    const { pace } = this.#tables;
    for (const { table, key } of wanted) {
      if (pace.isDue) await pace.rest();
      const id = keyId(key);
      if (this.#rows.get(table.name)?.has(id) === true) continue;
      let keys = byTable.get(table);
      if (keys === undefined) byTable.set(table, keys = new Map());
      keys.set(id, key);
    }
    for (const [table, keys] of byTable) {
      const all = [...keys];
      for (let at = 0; at < all.length; at += READ_KEYS) {
        await this.#loadKeys(table, all.slice(at, at + READ_KEYS));
        await pace.rest();
      }
    }
  }

  async #loadKeys(table: Table, keys: readonly (readonly [id: string, key: Bytes])[]): Promise<void> {
    const rows = this.#rows.get(table.name) as Map<string, Row>;
    const froms = [table.data, table.stamps, table.overlay] as const;
    const found = keys.length < MANY_KEYS ? undefined : await Promise.all(froms.map((from) => this.#in(from).hasMany(keys.map(([, key]) => key))));
    await Promise.all(keys.map(async ([id, key], at) => {
      const get = (nth: 0 | 1 | 2): Promise<Stored | undefined> | undefined => found?.[nth]?.[at] === false ? undefined : this.#in(froms[nth]).getEntry(key);
      const [entry, stamp, overlay] = await Promise.all([get(0), get(1), get(2)]);
      rows.set(id, new Row(table, key, { entry, stamp, overlay }, this.#now, this.#unread.has(table.name, key)));
    }));
  }

  /** Reads all rows of a range, and has empty ones for those of `expected` that are not there. */
  async loadRange(table: Table, lower: KeyBound, upper: KeyBound, expected: readonly Bytes[] = []): Promise<void> {
    const keys = new Map<string, Bytes>();
    for (const from of [table.data, table.stamps, table.overlay]) {
      for await (const key of this.#in(from).keys(toRange(lower, upper))) keys.set(keyId(key), key);
    }
    const others = expected.filter((key) => !isWithin(key, lower, upper));
    await this.load([...keys.values(), ...others].map((key) => ({ table, key })));
    const rows = this.#rows.get(table.name) as Map<string, Row>;
    for (const key of expected) {
      const id = keyId(key);
      if (!rows.has(id)) rows.set(id, new Row(table, key, NOTHING, this.#now, this.#unread.has(table.name, key)));
    }
  }

  /** Whether a range has no rows at all. */
  async isBare(table: Table, lower: KeyBound, upper: KeyBound): Promise<boolean> {
    if (this.#unread.touches(table.name)) return false;
    const range = toRange(lower, upper);
    const first = await Promise.all([table.data, table.stamps, table.overlay].map((from) => this.#in(from).first(range)));
    return first.every((entry) => entry === undefined);
  }

  #in(rows: Rows): RowsIn {
    let handle = this.#handles.get(rows);
    if (handle === undefined) this.#handles.set(rows, handle = this.#tx.collection(rows));
    return handle;
  }

  /** A row that was loaded. */
  row(table: Table, key: Bytes): Row {
    return this.#rows.get(table.name)?.get(keyId(key)) as Row;
  }

  /** The loaded rows of a range; all there are after `loadRange`. */
  * within(table: Table, lower: KeyBound, upper: KeyBound): Iterable<Row> {
    for (const row of this.#rows.get(table.name)?.values() ?? []) if (isWithin(row.key, lower, upper)) yield row;
  }

  /** Writes what changed. */
  save(): Promise<void> {
    return this.write(this.#changes());
  }

  * #changes(): Iterable<Change> {
    for (const rows of this.#rows.values()) for (const row of rows.values()) yield* row.changes();
  }

  /** Writes rows, whether they were loaded or not. */
  async write(changes: Iterable<Change>): Promise<void> {
    const { pace } = this.#tables;
    const batches = new Map<Rows, { readonly sets: [Bytes, Bytes][]; readonly deletes: Bytes[]; readonly expiring: (readonly [Bytes, NonNullable<BaseValue>])[] }>();
    let count = 0;
    for (const { rows: into, key, value } of changes) {
      if (pace.isDue) await pace.rest();
      count++;
      let batch = batches.get(into);
      if (batch === undefined) batches.set(into, batch = { sets: [], deletes: [], expiring: [] });
      if (value === null) batch.deletes.push(key);
      else if (value.expiresAt === 0) batch.sets.push([key, value.value]);
      else batch.expiring.push([key, value]);
    }
    const isDeferred = count <= WRITE_ROWS;
    for (const [into, { sets, deletes, expiring }] of batches) {
      const rows = this.#in(into);
      await this.#inSlices(sets, isDeferred, (slice) => rows.setMany(slice));
      await this.#inSlices(deletes, isDeferred, (slice) => rows.deleteMany(slice));
      await this.#inSlices(expiring, isDeferred, (slice) => Promise.all(slice.map(([key, { value, expiresAt }]) => rows.set(key, value, { expireAt: expiresAt }))));
    }
  }

  async #inSlices<T>(list: readonly T[], isDeferred: boolean, write: (slice: readonly T[]) => Promise<unknown>): Promise<void> {
    if (list.length === 0) return;
    if (isDeferred) return this.#tables.defer(write(list));
    for (let at = 0; at < list.length; at += WRITE_ROWS) {
      await write(list.slice(at, at + WRITE_ROWS));
      await this.#tables.pace.rest();
    }
  }
}
