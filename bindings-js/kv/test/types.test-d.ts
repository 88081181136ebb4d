// What the types promise, checked by the compiler: nothing here runs. The types are those of the
// built package.
import * as v from 'valibot';
import { z } from 'zod';
import { DELETE, KEEP, MAX_KEY, keyCodecs, open, type openSync, valueCodecs } from 'mangrove-kv';
import { createPasskey, getPasskey, sealKey, unsealKey } from 'mangrove-kv/passkey';
import type {
  Batch,
  BatchOp,
  CallTrace,
  Bound,
  Collection,
  Commit,
  CommitInfo,
  Database,
  DatabaseEventMap,
  Durability,
  Entry,
  Index,
  Key,
  KeyCodec,
  KeyPrefix,
  KvError,
  KvErrorCode,
  KvIterator,
  OpenOptions,
  Range,
  Reader,
  Result,
  Snapshot,
  StandardSchema,
  SyncCollection,
  SyncDatabase,
  SyncIndex,
  SyncReader,
  SyncWriter,
  TraceEvent,
  Transaction,
  Updated,
  ValueCodec,
  Writer,
  WriteOptions,
} from 'mangrove-kv';

import { updateEntries } from 'mangrove-kv/migrations';
import { MemoryLog, MemoryServer, replicate } from '@mangrove-kv/replication';
import type { PrefixMode, ReplicatedCollectionOptions } from '@mangrove-kv/replication';

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type IsAny<T> = 0 extends 1 & T ? true : false;

/** Fails to compile unless both are the same type. */
declare function same<A, B>(...proof: Equal<A, B> extends true ? [] : ['the types differ']): void;
declare function isTrue<T extends true>(): T;

declare const db: Database;
declare const numbers: Database<string, number>;

// ── keys: prefixes and bounds ────────────────────────────────────────────────
type PostKey = [kind: 'post', user: string, id: number];
same<KeyPrefix<string>, string>();
same<KeyPrefix<PostKey>, PostKey | ['post', string] | ['post'] | []>();
same<Bound<string>, string | typeof MAX_KEY>();

declare const posts: Collection<PostKey, string>;
posts.prefix([]);
posts.prefix(['post']);
posts.prefix(['post', 'ada']);
posts.entries({ gt: ['post', 'ada', MAX_KEY], lt: ['post', MAX_KEY], gte: ['post'], lte: ['post', 'ada', 1] });
void posts.count({ lt: [MAX_KEY] });
void posts.rank(['post', 'ada', 1], { prefix: ['post'] });
void posts.clear({ prefix: ['post', 'ada'], gte: ['post', 'ada', 5] });
// @ts-expect-error a key of another kind
posts.prefix(['user']);
// @ts-expect-error a number where a string is expected
posts.prefix(['post', 1]);
// @ts-expect-error a bound cannot be longer than a key
posts.entries({ gt: ['post', 'ada', 1, 2] });
// @ts-expect-error a whole key is needed
void posts.get(['post', 'ada']);
// @ts-expect-error rank takes keys, not positions
void posts.rank(['post', 'ada', 1], { limit: 1 });
// @ts-expect-error MAX_KEY is allowed in bounds only
void db.get(MAX_KEY);
// @ts-expect-error undefined is not a key
void db.get(undefined);
void db.get([1, 'a', [null, 2n, new Date(), new Uint8Array()]]);
posts.keys().seek(['post']);

// ── undefined does not widen a range ─────────────────────────────────────────
declare const maybe: { id?: string; max?: number };
// @ts-expect-error everything would be removed
void numbers.clear({ prefix: maybe.id });
// @ts-expect-error everything would be removed
void numbers.clear({ gt: maybe.id });
// @ts-expect-error everything would be removed
void numbers.clear({ prefix: 'a', limit: maybe.max });
// @ts-expect-error everything would be removed
void numbers.clear(undefined);
void numbers.clear(undefined, { durability: 'none' });
void numbers.clear();
// @ts-expect-error everything would be counted
void numbers.count({ lte: maybe.id });
// @ts-expect-error everything would be listed
numbers.prefix(maybe.id);
// @ts-expect-error only one prefix is allowed
numbers.prefix('a', { prefix: 'b' });
// @ts-expect-error everything would be watched
numbers.watch({ gte: maybe.id });
// @ts-expect-error everything would be removed
numbers.sync.clear({ prefix: maybe.id });
// @ts-expect-error everything would be removed
numbers.sync.clear(undefined);
void numbers.set('a', 1, { durability: undefined, signal: undefined, expireIn: undefined });
void numbers.entries({ reverse: undefined, signal: undefined });

// ── keys of a generic type ───────────────────────────────────────────────────
class Repo<K extends Key, V> {
  readonly collection: Collection<K, V>;

  constructor(collection: Collection<K, V>) {
    this.collection = collection;
  }

  after(key: K): KvIterator<[K, V], K> {
    return this.collection.entries({ gt: key, lte: key });
  }

  remove(from: K, prefix: K): Promise<void> {
    return this.collection.clear({ gte: from, prefix });
  }

  beginning(key: K): KvIterator<[K, V], K> {
    const entries = this.collection.prefix(key);
    entries.seek(key);
    return entries;
  }

  write(database: Database, key: K, value: V): Promise<CommitInfo> {
    return database.batch().collection(this.collection).set(key, value).delete(key).commit();
  }
}
void new Repo(posts).after(['post', 'ada', 1]);

// ── collections by name or by handle ─────────────────────────────────────────
declare const byEither: Collection<string, number> | string;
db.batch().collection('users').set('a', { any: 'value' }).collection(numbers).set('a', 1);
// @ts-expect-error a symbol is not a key
db.batch().collection('users').set(Symbol('a'), 1);
void db.batch().collection<string, number>('users').set('a', 1).check('a', undefined).commit();
db.batch().collection(byEither).set('a', 1);
void db.transaction(async (tx) => {
  const users = tx.collection('users');
  same<typeof users, Reader<Key, unknown> & Writer<Key, unknown>>();
  same<Awaited<ReturnType<ReturnType<typeof tx.collection<string, number>>['get']>>, number | undefined>();
  await tx.collection(byEither).set('a', 1);
});
void db
  .snapshot()
  .collection(byEither)
  .get('a')
  .then((value) => same<typeof value, number | undefined>());
db.sync.transaction((tx) => tx.collection(byEither).set('a', 1));
void numbers.getEntry('a').then((entry) => {
  void numbers.batch([{ type: 'check', key: 'a', version: entry?.version }]);
  return numbers.batch().check('a', entry?.version).set('a', 1).commit();
});
// @ts-expect-error a version is a number
numbers.batch().check('a', 'b');

// ── what calls return ────────────────────────────────────────────────────────
same<ReturnType<typeof numbers.get>, Promise<number | undefined>>();
same<ReturnType<typeof numbers.getMany>, Promise<(number | undefined)[]>>();
same<ReturnType<typeof numbers.getEntry>, Promise<Entry<string, number> | undefined>>();
same<ReturnType<typeof numbers.entries>, KvIterator<[string, number], string>>();
same<ReturnType<typeof numbers.keys>, KvIterator<string, string>>();
same<ReturnType<typeof numbers.values>, KvIterator<number, string>>();
same<ReturnType<typeof numbers.first>, Promise<[string, number] | undefined>>();
same<typeof numbers.size, Promise<number>>();
same<ReturnType<typeof numbers.delete>, Promise<boolean>>();
same<ReturnType<typeof numbers.update>, Promise<number | undefined>>();
same<ReturnType<typeof numbers.getOrInsert>, Promise<number>>();
same<ReturnType<typeof db.get>, Promise<unknown>>();
const evens = numbers
  .entries()
  .filter(([, value]) => value % 2 === 0)
  .map(([key]) => key)
  .take(1);
same<typeof evens, KvIterator<string, string>>();
const texts = db.values().filter((value): value is string => typeof value === 'string');
same<typeof texts, KvIterator<string, Key>>();
void numbers.update('a', (old) => {
  same<typeof old, number | undefined>();
  return old === undefined ? KEEP : old > 3 ? DELETE : old + 1;
});
// @ts-expect-error a forgotten return
void numbers.update('a', () => undefined);
// @ts-expect-error another type
void numbers.set('a', 'b');
same<Updated<number>, number | typeof DELETE | typeof KEEP>();

// ── databases and collections ────────────────────────────────────────────────
const opened = open('x');
same<typeof opened, Promise<Database>>();
same<Database, Database<Key, unknown, unknown>>();
const typed = open<string, number>('x');
same<typeof typed, Promise<Database<string, number>>>();
const byCodecs = open('x', { key: keyCodecs.uint64, value: valueCodecs.string });
same<typeof byCodecs, Promise<Database<bigint, string>>>();
same<ReturnType<typeof openSync<string, Uint8Array>>, SyncDatabase<string, Uint8Array>>();

const plain = db.collection('c');
same<typeof plain, Collection<Key, unknown>>();
const told = db.collection<string, Date>('c');
same<typeof told, Collection<string, Date>>();
const keyed = db.collection('c', { key: keyCodecs.string });
same<typeof keyed, Collection<string, unknown>>();
const tuples = db.collection('c', { key: keyCodecs.tuple<[string, number]>(), value: valueCodecs.json<{ a: 1 }>() });
same<typeof tuples, Collection<[string, number], { a: 1 }>>();
const own: ValueCodec<Map<string, number>> = { id: 'own', encode: () => new Uint8Array(), decode: () => new Map() };
const mapped = db.collection('c', { value: own, expireIn: 5 });
same<typeof mapped, Collection<Key, Map<string, number>>>();
// @ts-expect-error the codec's type differs from the declared one
db.collection<string, number>('c', { value: valueCodecs.string });
// @ts-expect-error no such option
db.collection('c', { ttl: 5 });

// ── schemas: the output is read, the input is written ────────────────────────
interface User {
  name: string;
  age: number;
}
const zodUser = z.object({ name: z.string(), age: z.number() });
const valibotUser = v.object({ name: v.string(), age: v.number() });
const byZod = db.collection('users', { schema: zodUser });
same<typeof byZod, Collection<Key, User>>();
const byValibot = db.collection('users', { key: keyCodecs.string, schema: valibotUser });
same<typeof byValibot, Collection<string, User>>();
const lengths = db.collection('lengths', {
  key: keyCodecs.string,
  schema: z.string().transform((text) => text.length),
});
same<typeof lengths, Collection<string, number, string>>();
void lengths.set('a', 'text');
// @ts-expect-error the number is the output, not the input
void lengths.set('a', 5);
same<ReturnType<typeof lengths.get>, Promise<number | undefined>>();
void lengths.update('a', (old) => {
  same<typeof old, number | undefined>();
  return `${old}`;
});
// @ts-expect-error the output is not a valid input
void lengths.update('a', (old) => old ?? 0);
same<ReturnType<typeof lengths.getOrInsert>, Promise<number>>();
const withDefault = db.collection('d', { schema: v.object({ tags: v.optional(v.array(v.string()), []) }) });
void withDefault.set(1, {});
same<Awaited<ReturnType<typeof withDefault.get>>, { tags: string[] } | undefined>();
declare const handWritten: StandardSchema<string, Date>;
const dates = db.collection('dates', { schema: handWritten });
same<typeof dates, Collection<Key, Date, string>>();
const openedBySchema = open('x', { key: keyCodecs.string, schema: zodUser });
same<typeof openedBySchema, Promise<Database<string, User>>>();
const replicateBySchema = db.sync.collection('lengths', { schema: z.string().transform((text) => text.length) });
same<typeof replicateBySchema, SyncCollection<Key, number, string>>();
replicateBySchema.set('a', 'text').set('b', 'more');
const told2 = db.collection<string, User>('users', { schema: zodUser });
same<typeof told2, Collection<string, User>>();
const withCodec = db.collection('users', { schema: zodUser, value: valueCodecs.json<User>() });
same<typeof withCodec, Collection<Key, User>>();
// @ts-expect-error not a schema
db.collection('users', { schema: {} });
void db.batch().collection(lengths).set('a', 'text').delete('b').commit();
// @ts-expect-error the number is the output, not the input
db.batch().collection(lengths).set('a', 5);
void db.transaction(async (tx) => {
  await tx.collection(lengths).set('a', 'text');
  same<Awaited<ReturnType<ReturnType<typeof tx.collection<string, number, string>>['get']>>, number | undefined>();
});

// ── helpers that take a database, a collection or a transaction ──────────────
async function transfer(
  accounts: Reader<string, number> & Writer<string, number>,
  from: string,
  to: string,
): Promise<void> {
  await accounts.update(from, (old = 0) => old - 1);
  await accounts.set(to, ((await accounts.get(to)) ?? 0) + 1);
}
async function total(accounts: Reader<string, number>): Promise<number> {
  return accounts.values().reduce((sum, value) => sum + value, 0);
}
declare const accounts: Collection<string, number>;
void transfer(numbers, 'a', 'b');
void transfer(accounts, 'a', 'b');
void numbers.transaction((tx) => transfer(tx, 'a', 'b'));
void db.transaction((tx) => transfer(tx.collection(accounts), 'a', 'b'));
void numbers.transaction(total);
void total(numbers.snapshot());
void total(db.snapshot().collection(accounts));
function addSync(to: SyncReader<string, number> & SyncWriter<string, number>): number {
  return to.update('a', (old = 0) => old + 1) ?? 0;
}
addSync(numbers.sync);
addSync(db.sync.collection(accounts));
db.sync.transaction((tx) => addSync(tx.collection(accounts)));
// @ts-expect-error a snapshot takes no writes
void transfer(numbers.snapshot(), 'a', 'b');
// @ts-expect-error values of another type
void transfer(db, 'a', 'b');

// ── batches, transactions, results ───────────────────────────────────────────
const committed = db.batch([
  { type: 'set', key: 1, value: 2, expireIn: 5 },
  { type: 'check', key: 1, version: null },
  { type: 'delete', key: 2 },
]);
same<typeof committed, Promise<CommitInfo>>();
void numbers.batch([{ type: 'set', collection: accounts, key: 'a', value: 1 }]);
// @ts-expect-error values of another type
void numbers.batch([{ type: 'set', key: 'a', value: 'b' }]);
// @ts-expect-error no such type
void db.batch([{ type: 'put', key: 'a', value: 'b' }]);
// @ts-expect-error durability applies to the whole batch
void db.batch([{ type: 'delete', key: 'a', durability: 'none' }]);
same<ReturnType<typeof numbers.begin>, Transaction<string, number>>();
const ran = db.transaction(async () => 5);
same<typeof ran, Promise<number>>();
const ranPlain = db.transaction(() => 'x' as const);
same<typeof ranPlain, Promise<'x'>>();
void db
  .tryTransaction(() => 5)
  .then((result) => {
    same<typeof result, Result<number>>();
    if (result.ok) {
      same<typeof result.value, number>();
      same<typeof result.version, number>();
    } else {
      same<typeof result.reason, 'conflict' | 'rollback' | 'timeout'>();
      same<typeof result.error, KvError>();
    }
  });
// A thenable would be awaited by accident.
isTrue<
  Equal<Extract<keyof Transaction | keyof Batch<Key, unknown> | keyof Snapshot | keyof Database, 'then'>, never>
>();
{
  using tx = db.begin();
  using batch = db.batch();
  using view = db.snapshot();
  using subscription = db.subscribe({}, (commit) => same<typeof commit, Commit<Key, unknown>>());
  void [tx, batch, view, subscription];
}
void (async () => {
  await using closing = db;
  await using iterator = db.entries();
  await using commits = numbers.watch({ prefix: 'a', initial: true });
  for await (const [key, value] of numbers) same<[typeof key, typeof value], [string, number]>();
  void [closing, iterator, commits];
});

// ── signals and events ───────────────────────────────────────────────────────
declare const signal: AbortSignal;
void numbers.set('a', 1, { signal, durability: 'none', expireIn: 1 });
void numbers.deleteMany(['a'], { signal });
void numbers.clear({ prefix: 'a', reverse: true, offset: 100, limit: 1, signal });
void db.flush({ signal });
void db.purgeExpired({ signal });
void db.batch().commit({ signal });
db.subscribe({ signal }, () => undefined);
const options: OpenOptions = { signal, onUnavailable: 'memory', lockTimeout: Infinity };
void options;
db.addEventListener('close', (event) => same<typeof event, DatabaseEventMap['close']>(), { once: true, signal });
db.addEventListener('error', ({ error }) => same<typeof error.code, KvErrorCode>());

db.addEventListener('error', ({ error }) => same<typeof error.trace, readonly TraceEvent[] | undefined>());
await open('traced', {
  trace: (event) => {
    same<typeof event.time, number>();
    if (event.source === 'merge' && event.event === 'ended') same<typeof event.slices, number>();
    // @ts-expect-error: not all events have it
    void event.slices;
  },
});
// @ts-expect-error: neither a boolean nor a function
await open('traced', { trace: 'all' });
db.addEventListener('mine', (event) => same<typeof event, Event>());
const target: EventTarget = db;
void target;

// ── `any` leaks nowhere ──────────────────────────────────────────────────────
/** The members that are `any`, or take or return it. */
type Leaks<T> = {
  [M in keyof T]: IsAny<T[M]> extends true
    ? M
    : T[M] extends (...args: infer A) => infer R
      ? true extends IsAny<R> | IsAny<Awaited<R>> | IsAny<A[number & keyof A]>
        ? M
        : never
      : never;
}[keyof T];
same<Leaks<Omit<Database, keyof EventTarget>>, never>();
same<Leaks<SyncDatabase>, never>();
same<Leaks<Transaction>, never>();
same<Leaks<Snapshot>, never>();
same<Leaks<Batch<Key, unknown>>, never>();
// `throw` is declared by the language.
same<Leaks<Omit<KvIterator<[Key, unknown], Key>, 'throw'>>, never>();
same<Leaks<KeyCodec<Key>>, never>();
same<Leaks<ValueCodec<unknown>>, never>();
same<Leaks<typeof keyCodecs>, never>();
same<Leaks<typeof valueCodecs>, never>();
same<IsAny<BatchOp['key']>, false>();
same<IsAny<Commit['changes'][number]>, false>();
same<IsAny<DatabaseEventMap['close']['reason']>, false>();

// ── storage buckets, traced calls and passkeys ──────────────────────────────
void open('x', { bucket: 'drafts' });
void open('x', { bucket: { name: 'drafts', persisted: true, durability: 'strict', quota: 1e6, expires: 2e12 } });
// @ts-expect-error a bucket has a name
void open('x', { bucket: { quota: 5 } });
same<Database['bucket'], string | undefined>();
same<CallTrace['scope'], 'database' | 'transaction' | 'snapshot'>();
same<IsAny<NonNullable<CallTrace['result']>>, false>();
async function withPasskey(): Promise<void> {
  const passkey = await createPasskey({ name: 'ada' });
  void open('x', { encryption: { key: passkey.key } });
  same<typeof passkey.id, string>();
  const key = await unsealKey([await sealKey(new Uint8Array(32), passkey)], await getPasskey());
  void open('x', { encryption: { key } });
  // @ts-expect-error a passkey has a name
  void createPasskey({});
}
void withPasskey;

// ── names that programs use ──────────────────────────────────────────────────
same<Durability, 'strict' | 'relaxed' | 'none'>();
same<keyof Range<string>, 'gt' | 'gte' | 'lt' | 'lte' | 'prefix' | 'reverse' | 'limit' | 'offset'>();
same<keyof DatabaseEventMap, 'close' | 'blocked' | 'leader' | 'error' | 'versionchange'>();
same<
  KvErrorCode,
  | 'KV_CLOSED'
  | 'KV_CONFLICT'
  | 'KV_ROLLBACK'
  | 'KV_TIMEOUT'
  | 'KV_LOCKED'
  | 'KV_READ_ONLY'
  | 'KV_NOT_FOUND'
  | 'KV_EXISTS'
  | 'KV_INVALID_KEY'
  | 'KV_INVALID_VALUE'
  | 'KV_INVALID_ARGUMENT'
  | 'KV_KEY_TOO_LARGE'
  | 'KV_VALUE_TOO_LARGE'
  | 'KV_CODEC_MISMATCH'
  | 'KV_INDEX_MISMATCH'
  | 'KV_INDEX_INCOMPLETE'
  | 'KV_UNIQUE'
  | 'KV_CORRUPT'
  | 'KV_WRONG_KEY'
  | 'KV_NOT_ENCRYPTED'
  | 'KV_NOT_ALLOWED'
  | 'KV_VERSION_UNSUPPORTED'
  | 'KV_VERSION_CHANGED'
  | 'KV_VERSION_TOO_NEW'
  | 'KV_QUOTA_EXCEEDED'
  | 'KV_IO'
  | 'KV_SYNC_UNAVAILABLE'
  | 'KV_UNSUPPORTED'
  | 'KV_TRUNCATED_FEED'
  | 'KV_RANGE_TOO_LARGE'
  | 'KV_OUT_OF_RANGE'
  | 'KV_LOADING'
  | 'KV_STALE'
  | 'KV_SNAPSHOT_LOST'
  | 'KV_TOO_MANY_OPEN'
  | 'KV_EVICTED'
  | 'KV_LOG_CONFLICT'
  | 'KV_LOG_TRUNCATED'
  | 'KV_LOG_UNAVAILABLE'
  | 'KV_LOG_REFUSED'
  | 'KV_REPLICATION_GAP'
  | 'KV_REPLICATION_MODE'
  | 'KV_REPLICATION_FENCED'
  | 'KV_REPLICATION_DIVERGED'
>();

// ── the synchronous API is the asynchronous one without promises and signals ─
type Settled<T> = T extends Promise<infer V> ? V : T extends KvIterator<infer I, infer _> ? IterableIterator<I> : T;
type Unsignalled<O> = O extends { signal?: AbortSignal | undefined } ? Omit<O, 'signal'> : O;
type AtOnce<F> = F extends (...args: infer A) => infer R
  ? (...args: { [I in keyof A]: A[I] extends Key | undefined ? A[I] : Unsignalled<A[I]> }) => Settled<R>
  : Settled<F>;
type Same<A, B> = [A, B] extends [B, A] ? true : false;
type Alike<S, A, N extends keyof S & keyof A> = { [P in N]: Same<S[P], AtOnce<A[P]>> }[N];

// Each but `prefix` and `entries`, of which one parameter decides the items.
same<
  Alike<
    SyncReader<string, number>,
    Reader<string, number>,
    | 'get'
    | 'getMany'
    | 'getEntry'
    | 'has'
    | 'hasMany'
    | 'keys'
    | 'values'
    | 'first'
    | 'last'
    | 'count'
    | 'size'
    | 'at'
    | 'rank'
  >,
  true
>();
same<
  Exclude<keyof Reader<string, number>, keyof SyncReader<string, number>>,
  'getRange' | 'getStream' | 'forEach' | typeof Symbol.asyncIterator
>();
same<Exclude<keyof Writer<string, number>, keyof SyncWriter<string, number>>, 'setStream'>();
isTrue<
  Same<
    SyncWriter<string, number>['deleteMany'],
    (keys: Iterable<string>, options?: WriteOptions) => Settled<ReturnType<Writer<string, number>['deleteMany']>>
  >
>();
same<
  Alike<
    SyncIndex<string, number>,
    Index<string, number>,
    'get' | 'first' | 'last' | 'at' | 'count' | 'rank' | 'keys' | 'values'
  >,
  true
>();
same<Exclude<keyof Index<string, number>, keyof SyncIndex<string, number>>, typeof Symbol.asyncIterator>();

// ── sync: collections with codecs and indexes of any type ────────────────────
const stock: PrefixMode = { prefix: ['stock'], mode: 'strict' };
const users: ReplicatedCollectionOptions = {
  key: keyCodecs.string,
  value: valueCodecs.json<{ readonly email: string }>(),
  indexes: { byEmail: { key: (user: { readonly email: string }) => user.email, unique: true } },
  mode: 'strict',
};
void replicate(db, {
  log: new MemoryLog(new MemoryServer()),
  collections: { users, shop: { prefixModes: [stock] }, posts: { key: keyCodecs.tuple<PostKey>() } },
});
// @ts-expect-error: there is no third mode
void replicate(db, { log: new MemoryLog(new MemoryServer()), collections: { users: { mode: 'lax' } } });
void replicate(db, {
  log: new MemoryLog(new MemoryServer()),
  // @ts-expect-error: numbers have no prefixes
  collections: { users: { prefixModes: [{ prefix: 1, mode: 'strict' }] } },
});

// The options of an update are those of its new values.
updateEntries(
  'people',
  ({ first, last }: { first: string; last: string }, _: number) => ({ name: `${first} ${last}` }),
  { indexes: { byName: { key: ({ name }) => name } } },
);
updateEntries('people', ({ first }: { first: string }, _: number) => ({ name: first }), {
  // @ts-expect-error: the new values have no such property
  indexes: { byFirst: { key: ({ first }) => first } },
});
