// Stores the mutations of a transaction of TanStack DB, in one commit.
import { KvError } from 'mangrove-kv';
import type { Collection, Database, Durability, Key, Reader, Writer } from 'mangrove-kv';
import type { Row } from './expressions.ts';
import type { Follower, RowKey } from './follower.ts';
import { writing } from './indexes.ts';
import type { Rows } from './indexes.ts';

/** A mutation, as TanStack DB hands it over. */
export interface Mutation {
  readonly type: 'insert' | 'update' | 'delete';
  readonly key: unknown;
  readonly modified: object;
  readonly changes: object;
  readonly collection: object;
}

/** The rows of a collection of TanStack DB, and who keeps it the same. */
export interface Store {
  readonly rows: Promise<Rows>;
  readonly durability: Durability | undefined;
  /** Undefined while the collection does not sync. */
  follower: Follower | undefined;
  /** By keys that are being written, the end of their last write. */
  readonly writing: Map<unknown, Promise<void>>;
}

/** Mutations of one collection. */
interface Part {
  readonly store: Store;
  readonly mutations: readonly Mutation[];
}

/** What TanStack DB adds to rows when they are read. */
const VIRTUAL = ['$synced', '$origin', '$key', '$collectionId'];

function stored(row: object): Row {
  const copy: Row = { ...row };
  for (const name of VIRTUAL) delete copy[name];
  return copy;
}

/** A stored row with the changes of an update: what others have changed meanwhile stays. */
function merged(row: Row, { changes, modified }: Mutation): Row {
  const changed = Object.keys(stored(changes)).map((property) => [property, (modified as Row)[property]]);
  return { ...row, ...(Object.fromEntries(changed) as Row) };
}

type Target = Reader<Key, Row> & Writer<Key, Row>;

async function storeAll(rows: Target, { name }: Collection<Key, Row>, mutations: readonly Mutation[]): Promise<void> {
  const of = (type: Mutation['type']): Mutation[] => mutations.filter((mutation) => mutation.type === type);
  const keysOf = (some: readonly Mutation[]): Key[] => some.map(({ key }) => key as Key);
  const [inserts, updates, deletes] = [of('insert'), of('update'), of('delete')];
  const exists = await rows.hasMany(keysOf(inserts));
  const taken = exists.indexOf(true);
  if (taken >= 0) {
    throw new KvError(
      'KV_EXISTS',
      `the collection ${JSON.stringify(name)} has a row with the key ${JSON.stringify(inserts[taken]!.key)} already; update that one, or insert with another key`,
    );
  }
  const current = await rows.getMany(keysOf(updates));
  await rows.setMany([
    ...inserts.map(({ key, modified }): [Key, Row] => [key as Key, stored(modified)]),
    ...updates.map((mutation, at): [Key, Row] => {
      const row = current[at];
      // A row that somebody has deleted meanwhile comes back whole, so that the change is not lost.
      return [mutation.key as Key, row === undefined ? stored(mutation.modified) : merged(row, mutation)];
    }),
  ]);
  if (deletes.length > 0) await rows.deleteMany(keysOf(deletes));
}

/** Runs a write after all earlier ones of the same rows: each was made upon what those show. */
async function inTurn(parts: readonly Part[], write: () => Promise<void>): Promise<void> {
  const written = parts.flatMap(({ store: { writing: ends }, mutations }) =>
    mutations.map(({ key }) => ({ ends, key })),
  );
  const earlier = new Set(written.flatMap(({ ends, key }) => ends.get(key) ?? []));
  const result = earlier.size === 0 ? write() : Promise.all(earlier).then(write);
  const end = result.then(
    () => undefined,
    () => undefined,
  );
  for (const { ends, key } of written) ends.set(key, end);
  try {
    await result;
  } finally {
    for (const { ends, key } of written) if (ends.get(key) === end) ends.delete(key);
  }
}

/** Stores mutations of several collections of one database in one commit, and waits until their collections have it. */
export async function commit(parts: readonly Part[]): Promise<void> {
  const used = parts.filter(({ mutations }) => mutations.length > 0);
  if (used.length > 0) await inTurn(used, () => commitNow(used));
}

async function commitNow(used: readonly Part[]): Promise<void> {
  const all = await Promise.all(used.map(({ store }) => store.rows));
  const database: Database = all[0]!.database;
  if (all.some((rows) => rows.database !== database))
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'the collections of a transaction are in several databases, which have no commit in common; use one transaction for each',
    );
  for (const { store, mutations } of used) store.follower?.own(mutations.map(({ key }) => key as RowKey));
  const { durability } = used[0]!.store;
  const outcome = await writing(all, () =>
    database.tryTransaction(
      async (tx) => {
        for (const [at, { mutations }] of used.entries()) {
          const { collection } = all[at]!;
          await storeAll(tx.collection(collection), collection, mutations);
        }
      },
      // A change that loses a race is not wrong, so that it need not be taken back.
      { durability, maxRetries: Infinity },
    ),
  );
  if (!outcome.ok) throw outcome.error;
  await Promise.all(used.map(({ store }) => store.follower?.reached(outcome.version)));
}
