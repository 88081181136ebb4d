/**
 * A database inside a Cloudflare Durable Object, stored in the object's SQLite database.
 *
 * @module mangrove-kv/durable-object
 */
import type { Key } from '../codec/keys.ts';
import { Connection } from '../wire/connection.ts';
import { KvDatabase } from '../api/database.ts';
import { InThreadTransport } from '../engine/in-thread-transport.ts';
import { checkModule, toSecret, withKey } from '../api/encryption.ts';
import { COLLECTION } from '../api/arguments.ts';
import { VERSIONS, checkOptions, withTracer } from '../api/options.ts';
import type { CheckedOptions } from '../api/options.ts';
import { openAtVersion } from '../api/open-version.ts';
import { syncFaces } from '../api/synchronous.ts';
import { settle } from '../api/versions.ts';
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import { WatchedStorage } from '../storage/custom.ts';
import { DurableObjectStorage } from '../storage/durable-object.ts';
import type { DurableObjectStorageLike } from '../storage/durable-object.ts';
import type { Database, OpenOptions } from '../types/index.ts';
import type { ModuleType } from '../types/sources.ts';

export * from '../api/index.ts';
export { DurableObjectStorage } from '../storage/durable-object.ts';
export type { DurableObjectStorageLike, SqlStorageLike, SqlValue } from '../storage/durable-object.ts';

/** Options of `open` in a Durable Object. */
export interface DurableObjectOptions<K = Key, V = unknown, I = V>
  extends Omit<
    OpenOptions<K, V, I>,
    | 'storage'
    | 'bucket'
    | 'onUnavailable'
    | 'lockTimeout'
    | 'takeOver'
    | 'share'
    | 'onBlocked'
    | 'idleTimeout'
    | 'wasm'
    | 'worker'
  > {
  /**
   * The engine's module: `import wasm from 'mangrove-kv/assets/mangrove_bg.wasm'`, which Workers compile
   * ahead of time.
   */
  wasm: [ModuleType] extends [never] ? object : ModuleType;
  /** Name of the database, without a slash: one object may hold several. Default: "main". */
  name?: string | undefined;
}

const NAMES: Names<DurableObjectOptions> = {
  create: 1,
  exclusive: 1,
  readOnly: 1,
  thread: 1,
  durability: 1,
  cacheBytes: 1,
  compression: 1,
  advanced: 1,
  feed: 1,
  trace: 1,
  signal: 1,
  wasm: 1,
  encryption: 1,
  name: 1,
  ...VERSIONS,
  ...COLLECTION,
};

/** Names of open databases: two engines over the same files would destroy them. */
const openNames = new WeakMap<object, Set<string>>();

/** Locks a name; returns the function that releases it. */
function lock(storage: DurableObjectStorageLike, name: string): () => void {
  const names = openNames.get(storage) ?? new Set();
  openNames.set(storage, names);
  if (names.has(name))
    throw new KvError('KV_LOCKED', `${name} is open in this object; close it first`, { retryable: true });
  names.add(name);
  return () => names.delete(name);
}

/**
 * Opens a database in the SQLite database of a Durable Object, creating it if it does not exist.
 * `storage` is `ctx.storage`.
 *
 * @throws KvError KV_LOCKED if it is open in this object; KV_NOT_FOUND and KV_EXISTS depending on
 * the options; KV_CORRUPT, KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED, KV_IO; KV_UNSUPPORTED if the
 * object has no SQLite database.
 */
export async function open<K = Key, V = unknown, I = V>(
  storage: DurableObjectStorageLike,
  options: DurableObjectOptions<K, V, I>,
): Promise<Database<K, V, I>> {
  if (typeof storage?.sql?.exec !== 'function')
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'storage has to be the storage of a Durable Object with SQLite, ctx.storage',
    );
  const checked = withTracer(checkOptions(options === undefined ? {} : options, NAMES), options?.name ?? 'main');
  const opening = openChecked(storage, options, checked);
  return checked.tracer?.opening(opening) ?? opening;
}

async function openChecked<K, V, I>(
  storage: DurableObjectStorageLike,
  options: DurableObjectOptions<K, V, I>,
  checked: CheckedOptions,
): Promise<Database<K, V, I>> {
  checked.signal?.throwIfAborted();
  const { wasm, name = 'main' } = options;
  if (!(wasm instanceof WebAssembly.Module)) {
    throw new KvError('KV_INVALID_ARGUMENT', 'wasm has to be the compiled module mangrove-kv/assets/mangrove_bg.wasm');
  }
  if (typeof name !== 'string' || name === '' || /[/\p{Surrogate}]/u.test(name)) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'the name of a database has to be a well-formed, non-empty string without a slash',
    );
  }
  if (options.encryption !== undefined) {
    checkModule(wasm);
    checked = withKey(checked, await toSecret(options.encryption));
  }
  const release = lock(storage, name);
  let files: DurableObjectStorage;
  try {
    files = new DurableObjectStorage(storage, name);
  } catch (error) {
    release();
    throw error;
  }
  // A timer would keep the object from hibernating.
  const engine = { ...checked.engine, worksInBackground: false };
  // All databases of the isolate await the same turn, and the platform does not let an object await
  // a promise of another object.
  const transport = new InThreadTransport(wasm, new WatchedStorage(files), engine, {
    release,
    syncFaces,
    takesTurns: false,
    trace: checked.tracer?.record,
  });
  const connection = new Connection(transport, undefined, checked.tracer);
  const info = { path: name, persistence: 'custom', durability: checked.durability } as const;
  const { schema } = checked;
  if (schema === undefined) return new KvDatabase(connection, info, options);
  return openAtVersion(
    connection,
    info,
    options,
    Promise.resolve((make) => settle(connection, schema, make)),
  );
}
