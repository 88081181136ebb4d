// The rows that a commit of replication looks at, read once, changed in memory, and written at the end.
import { KvError } from 'mangrove-kv';
import { keyText } from 'mangrove-kv/internal';
import type { Reader, Transaction, Writer } from 'mangrove-kv';
import { toHexBytes } from './bytes.ts';
import type { View } from './fold.ts';
import { isWithin, keyId, toRange } from './key-ranges.ts';
import type { KeyBound } from './record.ts';
import { Row, checkOf, decodeRow, hashOf, replaceHash } from './row.ts';
import type { Base, BaseValue, Histories } from './row.ts';
import type { Digest, ReplicaState } from './state.ts';
import { expiryEnd, expiryOf, expiryRow, readExpiryRow } from './tables.ts';
import type { Bytes, KnownTable, Rows, Table, Tables } from './tables.ts';

type RowsIn = Reader<Bytes, Bytes> & Writer<Bytes, Bytes>;

/** A row to write, or to delete. */
export interface Change {
  readonly rows: Rows;
  readonly key: Bytes;
  readonly value: BaseValue;
}

/** With so many keys it pays to ask first which of them are there. */
const MANY_KEYS = 16;
/** Keys that are read at once. */
const READ_KEYS = 128;
/** Rows that are written at once. */
const WRITE_ROWS = 256;

export class Model implements View {
  readonly #tx: Transaction;
  readonly #tables: Tables;
  readonly #histories: Histories;
  readonly #blobs: ReadonlyMap<string, Bytes>;
  readonly #rows = new Map<Table, Map<string, Row>>();
  readonly #handles = new Map<Rows, RowsIn>();
  readonly #expiring = new Set<Row>();
  /** Rows of the expiry index whose time may have come. */
  readonly #due: { readonly at: Bytes; readonly expiresAt: number }[] = [];

  /** `blobs` has large values, by hexadecimal hash. */
  constructor(
    tx: Transaction,
    tables: Tables,
    { history, settled }: ReplicaState,
    blobs: ReadonlyMap<string, Bytes> = new Map<string, Bytes>(),
  ) {
    this.#tx = tx;
    this.#tables = tables;
    this.#histories = { current: history, settled };
    this.#blobs = blobs;
  }

  // What a fold sees.

  table(name: string, declaration: string): Table {
    return this.#tables.table(name, declaration);
  }

  /** A row that was loaded. */
  row(table: Table, key: Bytes): Row {
    return this.#rows.get(table)?.get(keyId(key)) as Row;
  }

  /** The loaded rows of a range; all there are after `loadRange`. */
  *within(table: Table, lower: KeyBound, upper: KeyBound): Iterable<Row> {
    for (const row of this.#rows.get(table)?.values() ?? []) if (isWithin(row.key, lower, upper)) yield row;
  }

  /** After `loadDue` up to that time. */
  *due(time: number): Iterable<Row> {
    for (const row of this.#expiring) {
      const expiresAt = row.stamp?.expiresAt ?? 0;
      if (expiresAt !== 0 && expiresAt <= time) yield row;
    }
  }

  value(hash: Bytes): Bytes | undefined {
    return this.#blobs.get(toHexBytes(hash));
  }

  // Reading.

  async load(wanted: Iterable<{ readonly table: Table; readonly key: Bytes }>): Promise<void> {
    const byTable = new Map<Table, Map<string, Bytes>>();
    const { pace } = this.#tables;
    for (const { table, key } of wanted) {
      if (pace.isDue) await pace.rest();
      const id = keyId(key);
      if (this.#rows.get(table)?.has(id) === true) continue;
      let keys = byTable.get(table);
      if (keys === undefined) byTable.set(table, (keys = new Map()));
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
    const rows = this.#rowsOf(table);
    const from = this.#in(table.rows);
    const found = keys.length < MANY_KEYS ? undefined : await from.hasMany(keys.map(([, key]) => key));
    await Promise.all(
      keys.map(async ([id, key], at) => {
        const bytes = found?.[at] === false ? undefined : await from.get(key);
        rows.set(id, new Row(table, key, this.#histories, bytes && decodeRow(bytes), this.#expiring));
      }),
    );
  }

  #rowsOf(table: Table): Map<string, Row> {
    let rows = this.#rows.get(table);
    if (rows === undefined) this.#rows.set(table, (rows = new Map()));
    return rows;
  }

  /** Reads all rows of a range. */
  async loadRange(table: Table, lower: KeyBound, upper: KeyBound): Promise<void> {
    const rows = this.#rowsOf(table);
    const { pace } = this.#tables;
    for await (const [key, bytes] of this.#in(table.rows).entries(toRange(lower, upper))) {
      if (pace.isDue) await pace.rest();
      const id = keyId(key);
      if (!rows.has(id)) rows.set(id, new Row(table, key, this.#histories, decodeRow(bytes), this.#expiring));
    }
  }

  /** Reads the rows with values that expire up to a time. */
  async loadDue(time: number, { declared }: ReplicaState): Promise<void> {
    const points: { table: Table; key: Bytes }[] = [];
    for await (const [at, named] of this.#in(this.#tables.expiring).entries({ lt: expiryEnd(time) })) {
      const { name, key } = readExpiryRow(named);
      this.#due.push({ at, expiresAt: expiryOf(at) });
      const declaration = declared[name];
      if (declaration !== undefined) points.push({ table: this.table(name, declaration), key });
    }
    await this.load(points);
  }

  /** The rows with values that expire after a time and up to another one. */
  async loadExpiring(after: number, until: number, { declared }: ReplicaState): Promise<Row[]> {
    const points: { table: Table; key: Bytes }[] = [];
    for await (const named of this.#in(this.#tables.expiring).values({ gte: expiryEnd(after), lt: expiryEnd(until) })) {
      const { name, key } = readExpiryRow(named);
      const declaration = declared[name];
      if (declaration !== undefined) points.push({ table: this.table(name, declaration), key });
    }
    await this.load(points);
    return points.map(({ table, key }) => this.row(table, key));
  }

  /** Whether a range has neither rows nor entries. */
  async isBare(table: Table, lower: KeyBound, upper: KeyBound): Promise<boolean> {
    const range = toRange(lower, upper);
    const from = table.data === undefined ? [table.rows] : [table.rows, table.data];
    const first = await Promise.all(from.map((rows) => this.#in(rows).first(range)));
    return first.every((entry) => entry === undefined);
  }

  async entryOf({ table, key }: Row): Promise<BaseValue> {
    const entry = await this.#in(this.#tables.entriesOf(table)).getEntry(key);
    return entry === undefined ? null : { value: entry.value, expiresAt: entry.expiresAt ?? 0 };
  }

  /** Version of the commit that wrote the entry. */
  async versionOf({ table, key }: Row): Promise<number | undefined> {
    return (await this.#in(this.#tables.entriesOf(table)).getEntry(key))?.version;
  }

  #in(rows: Rows): RowsIn {
    let handle = this.#handles.get(rows);
    if (handle === undefined) this.#handles.set(rows, (handle = this.#tx.collection(rows)));
    return handle;
  }

  // Writing.

  /** Writes what changed. Returns the state with the digests of it. */
  async save(state: ReplicaState): Promise<ReplicaState> {
    for (const row of this.#expiring)
      if (row.mayBeRemoved && row.entry === undefined && (await this.versionOf(row)) === undefined) row.revive();
    await this.write(this.#changes(state.time));
    return { ...state, digests: this.digests(state) };
  }

  /** Those of the state, with what changed since. */
  digests(state: ReplicaState): ReplicaState['digests'] {
    const digests: { [name: string]: Digest } = { ...state.digests };
    for (const [{ name }, rows] of this.#rows) {
      for (const { key, before, base } of rows.values())
        if (before !== base) digests[name] = replaceDigest(digests[name], key, before, base);
    }
    return digests;
  }

  *#changes(time: number): Iterable<Change> {
    const { expiring } = this.#tables;
    for (const { at, expiresAt } of this.#due) if (expiresAt <= time) yield { rows: expiring, key: at, value: null };
    for (const [table, rows] of this.#rows) {
      for (const row of rows.values()) {
        if (!row.isChanged) continue;
        const { key, before, base, entry } = row;
        if (table.data !== undefined && entry !== undefined) yield { rows: table.data, key, value: entry };
        const value = row.encode();
        yield { rows: table.rows, key, value: value === undefined ? null : { value, expiresAt: 0 } };
        if (before === base) continue;
        const [from, to] = [before?.stamp.expiresAt ?? 0, base?.stamp.expiresAt ?? 0];
        if (from !== to) {
          if (from !== 0) yield { rows: expiring, key: expiryRow(from, table, key)[0], value: null };
          if (to !== 0) yield this.expiry(table, key, to);
        }
      }
    }
  }

  expiry(table: Table, key: Bytes, expiresAt: number): Change {
    const [at, named] = expiryRow(expiresAt, table, key);
    return { rows: this.#tables.expiring, key: at, value: { value: named, expiresAt: 0 } };
  }

  /** Leaves out entries that are what they are to become. */
  async compare(): Promise<void> {
    for (const rows of this.#rows.values()) {
      for (const row of rows.values()) {
        if (row.entry === undefined) continue;
        const entry = await this.entryOf(row);
        if (checkOf(entry) === checkOf(row.entry) && entry?.expiresAt === row.entry?.expiresAt) row.entry = undefined;
      }
    }
  }

  /** Writes rows, whether they were loaded or not. */
  async write(changes: Iterable<Change>): Promise<void> {
    const { pace } = this.#tables;
    const batches = new Map<
      Rows,
      {
        readonly sets: [Bytes, Bytes][];
        readonly deletes: Bytes[];
        readonly expiring: (readonly [Bytes, NonNullable<BaseValue>])[];
      }
    >();
    let count = 0;
    for (const { rows: into, key, value } of changes) {
      if (pace.isDue) await pace.rest();
      count++;
      let batch = batches.get(into);
      if (batch === undefined) batches.set(into, (batch = { sets: [], deletes: [], expiring: [] }));
      if (value === null) batch.deletes.push(key);
      else if (value.expiresAt === 0) batch.sets.push([key, value.value]);
      else batch.expiring.push([key, value]);
    }
    const isDeferred = count <= WRITE_ROWS;
    for (const [into, { sets, deletes, expiring }] of batches) {
      const rows = this.#in(into);
      await this.#inSlices(deletes, isDeferred, (slice) => rows.deleteMany(slice));
      if (this.#tables.isLeavingOut) {
        const table = [...this.#tables.byName.values()].find(({ data, unique }) => data === into && unique.length > 0);
        if (table !== undefined) {
          await this.#leaveOut(table, [
            ...sets.map(([key, value]) => ({ key, value, expiresAt: 0 })),
            ...expiring.map(([key, entry]) => ({ key, ...entry })),
          ]);
          continue;
        }
      }
      await this.#inSlices(sets, isDeferred, (slice) => rows.setMany(slice));
      await this.#inSlices(expiring, isDeferred, (slice) =>
        Promise.all(slice.map(([key, { value, expiresAt }]) => rows.set(key, value, { expireAt: expiresAt }))),
      );
    }
  }

  /**
   * Writes entries, but leaves those out of a unique index whose keys belong to other entries. First none of
   * them has any: keys may have gone from one to another.
   */
  async #leaveOut(
    table: KnownTable,
    entries: readonly { readonly key: Bytes; readonly value: Bytes; readonly expiresAt: number }[],
  ): Promise<void> {
    const data = this.#tx.collection(table.data);
    const set = ({ key, value, expiresAt }: (typeof entries)[number]): Promise<void> =>
      data.set(key, value, expiresAt === 0 ? {} : { expireAt: expiresAt });
    try {
      for (const { apart } of table.unique) for (const { key } of entries) apart.add(keyId(key));
      for (const entry of entries) await set(entry);
      for (const entry of entries) {
        for (const { name, apart, keysOf } of table.unique) {
          const keys = keysOf(entry.value, entry.key);
          const counts = await Promise.all(keys.map((eq) => data.index(name).count({ eq })));
          if (counts.every((count) => count === 0)) apart.delete(keyId(entry.key));
          else
            this.#tables.leftOut.push(
              new KvError(
                'KV_UNIQUE',
                `an entry of collection ${JSON.stringify(table.name)} is left out of the unique index ${JSON.stringify(name)}, where another one has its key ${keys.map(keyText).join(' or ')}: the log has lost its history, and both were written; write one of them anew`,
              ),
            );
        }
        await set(entry);
      }
    } finally {
      for (const { apart } of table.unique) apart.clear();
    }
  }

  async #inSlices<T>(
    list: readonly T[],
    isDeferred: boolean,
    write: (slice: readonly T[]) => Promise<unknown>,
  ): Promise<void> {
    if (list.length === 0) return;
    if (isDeferred) return this.#tables.defer(write(list));
    for (let at = 0; at < list.length; at += WRITE_ROWS) {
      await write(list.slice(at, at + WRITE_ROWS));
      await this.#tables.pace.rest();
    }
  }
}

const isCounted = (base: Base | undefined): base is Base => base !== undefined && !base.stamp.isDead;

/** The digest of a collection after a key got another value. */
export function replaceDigest(
  digest: Digest = [0, 0],
  key: Bytes,
  before: Base | undefined,
  after: Base | undefined,
): Digest {
  const hash = (base: Base | undefined): number => (isCounted(base) ? hashOf(key, base) : 0);
  return [
    digest[0] + Number(isCounted(after)) - Number(isCounted(before)),
    replaceHash(digest[1], hash(before), hash(after)),
  ];
}
