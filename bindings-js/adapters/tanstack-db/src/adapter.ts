// TanStack DB's persistence contract over a database.
import { KvError } from 'mangrove-kv';
import type { Durability, Key, Reader, Transaction, Writer } from 'mangrove-kv';
import { untilWhole } from 'mangrove-kv/internal';
import type {
  PersistedIndexSpec,
  PersistedRowScanOptions,
  PersistedScannedRow,
  PersistedTx,
  PersistenceAdapter,
} from '@tanstack/db-sqlite-persistence-core';
import { pathOf } from './expressions.ts';
import type { Row } from './expressions.ts';
import { writing } from './indexes.ts';
import type { Columns } from './indexes.ts';
import { START, keyOf } from './layout.ts';
import type { Layout, Position } from './layout.ts';
import { readSubset } from './load.ts';

/** Transactions of a collection that are remembered, so that a repeated one is not applied twice. */
const REMEMBERED = 1000;
/** Those that are forgotten at once. */
const FORGOTTEN = 100;

type RowKey = string | number;
type Target<V> = Reader<Key, V> & Writer<Key, V>;
/** As the version of TanStack DB declares it that the persistence core uses. */
type Asked = Parameters<PersistenceAdapter['loadSubset']>[1];

/** What the adapters of a database share. */
export interface Shared {
  readonly layout: Promise<Layout>;
  readonly durability: Durability | undefined;
  /** Resolves when commits are being followed, if anybody wants that. */
  readonly following: () => Promise<void>;
  /** Follows a commit of this handle from before it is made. */
  readonly committing: (commit: Promise<number | undefined>) => void;
  /** Notes a position that TanStack DB gets to know. */
  readonly observe: (position: Position) => void;
}

/** What a collection expects to find. */
export interface Expected {
  readonly schemaVersion: number;
  /** What becomes of rows of another version: they are removed, or their use is refused. */
  readonly onMismatch: 'reset' | 'error';
}

function refusedIndex(fragment: string): KvError {
  return new KvError(
    'KV_INVALID_ARGUMENT',
    `an index has to be of properties of a row, as (row) => row.createdAt, not ${fragment}; queries work without it, and read all rows`,
  );
}

/** The property that an expression of an index specification names: serialized, or as SQL. */
function columnOf(fragment: string): readonly string[] {
  const path = /^\s*json_extract\(value,\s*'\$((?:\.[A-Za-z_]\w*)+)'\)\s*$/.exec(fragment)?.[1];
  if (path !== undefined) return path.slice(1).split('.');
  try {
    const found = pathOf(JSON.parse(fragment) as never);
    if (Array.isArray(found) && found.length > 0) return found as readonly string[];
  } catch {
    // It is refused below.
  }
  throw refusedIndex(fragment);
}

export class MangrovePersistenceAdapter implements PersistenceAdapter {
  readonly #shared: Shared;
  readonly #expected: Expected;
  readonly #ready = new Map<string, Promise<Layout>>();

  constructor(shared: Shared, expected: Expected) {
    this.#shared = shared;
    this.#expected = expected;
  }

  async loadSubset(id: string, options: Asked): Promise<{ key: RowKey; value: Row; metadata?: unknown }[]> {
    const layout = await this.#open(id);
    const rows = layout.rowsOf(id);
    return untilWhole(async () => {
      const snapshot = layout.database.snapshot();
      try {
        const source = { rows: snapshot.collection(rows.collection), indexes: rows.indexes };
        const read = await readSubset(source, options);
        const metadata = await metadataOf(snapshot.collection(layout.rowMetadataOf(id)), read);
        return read.map(({ key, value }, at) => ({ key: key as RowKey, value, ...metadata[at] }));
      } finally {
        await snapshot.close();
      }
    });
  }

  async applyCommittedTx(id: string, tx: PersistedTx): Promise<void> {
    await this.apply(id, () => tx);
  }

  /** Applies a transaction that is made from the position before it, in one commit; returns its position. */
  async apply(id: string, make: (position: Position) => PersistedTx): Promise<Position> {
    const layout = await this.#open(id);
    const rows = layout.rowsOf(id);
    let position = START;
    const committed = writing([rows], async () => {
      const { durability } = this.#shared;
      const outcome = await layout.database.tryTransaction(
        async (transaction) => {
          const applied = await this.#apply(layout, id, transaction, make);
          position = applied.position;
          return applied.isNew;
        },
        // Transactions of one collection all conflict; whenever one loses, another has been stored.
        { durability, maxRetries: Infinity },
      );
      if (!outcome.ok) throw outcome.error;
      // Without changes there is no commit, and the version is the one of another.
      return outcome.value ? outcome.version : undefined;
    });
    this.#shared.committing(committed.catch(() => undefined));
    await committed;
    return position;
  }

  async #apply(
    layout: Layout,
    id: string,
    transaction: Transaction,
    make: (position: Position) => PersistedTx,
  ): Promise<{ readonly position: Position; readonly isNew: boolean }> {
    const state = transaction.collection(layout.state);
    const stored = await state.get(keyOf.schema(id));
    if (stored !== undefined && stored !== this.#expected.schemaVersion) throw changed(id, stored);
    const before = ((await state.get(keyOf.position(id))) as Position | undefined) ?? START;
    const tx = make(before);
    const applied = keyOf.applied(id, tx.term, tx.seq, tx.txId);
    if (await state.has(applied)) return { position: before, isNew: false };

    const rows = transaction.collection(layout.rowsOf(id).collection);
    const metadata = transaction.collection(layout.rowMetadataOf(id));
    await storeRows(rows, metadata, tx);
    for (const change of tx.collectionMetadataMutations ?? []) {
      const key = keyOf.metadata(id, change.key);
      if (change.type === 'set' && change.value !== undefined) await state.set(key, change.value);
      else await state.delete(key);
    }

    const isNewer = tx.term > before.term || (tx.term === before.term && tx.seq > before.seq);
    const { term, seq } = isNewer ? tx : before;
    const position: Position = { term, seq, rowVersion: Math.max(before.rowVersion + 1, tx.rowVersion) };
    await state.setMany([
      [keyOf.position(id), position],
      [applied, true],
      [keyOf.schema(id), this.#expected.schemaVersion],
    ]);
    const all = { prefix: keyOf.applied(id) };
    if ((await state.count(all)) > REMEMBERED + FORGOTTEN) await state.clear({ ...all, limit: FORGOTTEN });
    return { position, isNew: true };
  }

  async loadCollectionMetadata(id: string): Promise<{ key: string; value: unknown }[]> {
    const { state } = await this.#open(id);
    const entries = await untilWhole(() => state.entries({ prefix: keyOf.metadata(id) }).toArray());
    return entries.map(([key, value]) => ({ key: key[2] as string, value }));
  }

  async scanRows(id: string, options: PersistedRowScanOptions = {}): Promise<PersistedScannedRow[]> {
    const rows = await this.loadSubset(id, {});
    return options.metadataOnly === true ? rows.filter((row) => 'metadata' in row) : rows;
  }

  async ensureIndex(id: string, signature: string, spec: PersistedIndexSpec): Promise<void> {
    const layout = await this.#open(id);
    const columns: Columns = spec.expressionSql.map(columnOf);
    if (columns.length === 0) throw refusedIndex('nothing');
    await layout.state.set(keyOf.index(id, signature), columns);
    await layout.rowsOf(id).ensure(columns);
  }

  async markIndexRemoved(id: string, signature: string): Promise<void> {
    const layout = await this.#open(id);
    const removed = await layout.database.transaction(async (tx) => {
      const state = tx.collection(layout.state);
      const columns = (await state.get(keyOf.index(id, signature))) as Columns | undefined;
      if (columns === undefined) return undefined;
      await state.delete(keyOf.index(id, signature));
      const others = await state.values({ prefix: keyOf.index(id) }).toArray();
      const isShared = others.some((other) => JSON.stringify(other) === JSON.stringify(columns));
      return isShared ? undefined : columns;
    });
    if (removed !== undefined) await layout.rowsOf(id).drop(removed);
  }

  async getStreamPosition(id: string): Promise<{ latestTerm: number; latestSeq: number; latestRowVersion: number }> {
    const { state } = await this.#open(id);
    const position = ((await state.get(keyOf.position(id))) as Position | undefined) ?? START;
    this.#shared.observe(position);
    return { latestTerm: position.term, latestSeq: position.seq, latestRowVersion: position.rowVersion };
  }

  /** The layout, when the rows of a collection are of the version that is expected. */
  #open(id: string): Promise<Layout> {
    let ready = this.#ready.get(id);
    if (ready === undefined) {
      ready = this.#prepare(id);
      this.#ready.set(id, ready);
      // The next call tries again.
      ready.catch(() => this.#ready.delete(id));
    }
    return ready;
  }

  async #prepare(id: string): Promise<Layout> {
    const layout = await this.#shared.layout;
    await this.#shared.following();
    const { schemaVersion, onMismatch } = this.#expected;
    await layout.rowsOf(id).refresh();
    const stored = await layout.state.get(keyOf.schema(id));
    if (stored === undefined || stored === schemaVersion) return layout;
    if (onMismatch === 'error')
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `the collection ${JSON.stringify(id)} is stored with schemaVersion ${String(stored)}, not ${schemaVersion}; persist it under another id and copy the rows, or set schemaMismatchPolicy to "reset", which removes them`,
      );
    await layout.database.transaction(async (tx) => {
      const state = tx.collection(layout.state);
      const now = await state.get(keyOf.schema(id));
      if (now === schemaVersion) return;
      await tx.collection(layout.rowsOf(id).collection).clear();
      await tx.collection(layout.rowMetadataOf(id)).clear();
      // What a source has noted to resume belongs to the rows that are gone.
      for (const prefix of [keyOf.metadata(id), keyOf.applied(id)]) await state.clear({ prefix });
      await state.set(keyOf.schema(id), schemaVersion);
    });
    return layout;
  }
}

function changed(id: string, stored: unknown): KvError {
  return new KvError(
    'KV_VERSION_CHANGED',
    `another page has changed the collection ${JSON.stringify(id)} to schemaVersion ${String(stored)}; ask the user to reload this one`,
  );
}

async function metadataOf(
  metadata: Reader<Key, unknown>,
  rows: readonly { readonly key: Key }[],
): Promise<{ readonly metadata?: unknown }[]> {
  if (rows.length === 0 || (await metadata.size) === 0) return [];
  const values = await metadata.getMany(rows.map(({ key }) => key));
  return values.map((value) => (value === undefined ? {} : { metadata: value }));
}

/** Applies what a transaction does to rows and their metadata, as if one mutation after the other. */
async function storeRows(rows: Target<Row>, metadata: Target<unknown>, tx: PersistedTx): Promise<void> {
  if (tx.truncate === true) await Promise.all([rows.clear(), metadata.clear()]);
  const updated = tx.mutations.flatMap(({ type, key }) => (type === 'update' ? [key] : []));
  const current = new Map<Key, Row | undefined>();
  for (const [at, row] of (await rows.getMany(updated)).entries()) current.set(updated[at]!, row);
  const changedMetadata = new Map<Key, unknown>();
  for (const mutation of tx.mutations) {
    const { type, key } = mutation;
    if (type === 'delete') {
      current.set(key, undefined);
      changedMetadata.set(key, undefined);
      continue;
    }
    const value = mutation.value as Row;
    current.set(key, type === 'update' ? { ...current.get(key), ...value } : value);
    if (mutation.metadataChanged === true) changedMetadata.set(key, mutation.metadata);
  }
  const ofRows = tx.rowMetadataMutations ?? [];
  const unknown = ofRows.map(({ key }) => key).filter((key) => !current.has(key));
  const exists = await rows.hasMany(unknown);
  const existing = new Set<Key>(unknown.filter((_, at) => exists[at]));
  for (const change of ofRows) {
    if (!existing.has(change.key) && current.get(change.key) === undefined) continue;
    changedMetadata.set(change.key, change.type === 'set' ? change.value : undefined);
  }
  await store(rows, current);
  await store(metadata, changedMetadata);
}

async function store<V>(target: Target<V>, values: ReadonlyMap<Key, V | undefined>): Promise<void> {
  const kept = [...values].filter((entry): entry is [Key, V] => entry[1] !== undefined);
  const gone = [...values].flatMap(([key, value]) => (value === undefined ? [key] : []));
  if (kept.length > 0) await target.setMany(kept);
  if (gone.length > 0) await target.deleteMany(gone);
}
