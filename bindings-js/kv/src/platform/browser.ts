// Shared by the browser entries. The engine runs in a dedicated worker, and a database is a
// directory in OPFS. Importing this module has no side effects, so servers can render pages that
// use it.
import type { Key } from '../codec/keys.ts';
import { abortable, ignore, loadChunk } from '../base/async.ts';
import { Connection } from '../wire/connection.ts';
import { KvDatabase } from '../api/database.ts';
import type { DatabaseInfo } from '../api/database.ts';
import { openAtVersion } from '../api/open-version.ts';
import { reportBlocked } from '../api/events.ts';
import { checkOptions, checkDestroy, checkPlace, noStorageInWorker, withTracer } from '../api/options.ts';
import type { CheckedOptions } from '../api/options.ts';
import type { Transport } from '../wire/transport.ts';
import type { WorkerPort } from '../wire/worker-transport.ts';
import { SharedTransport } from '../tabs/shared-transport.ts';
import { NoWorkerError, WorkerTransport } from '../wire/worker-transport.ts';
import { KvError } from '../base/errors.ts';
import { placeOf } from '../base/names.ts';
import { toPlain } from '../base/plain-error.ts';
import { BROWSER_MS, checkSupport, isPrerendered, whenShown, within } from '../storage/support.ts';
import { directoryName, toKvError } from '../storage/opfs.ts';
import type {
  CustomStorage,
  Database,
  DestroyOptions,
  OpenOptions,
  PlaceOptions,
  SyncDatabase,
  WasmSource,
} from '../types/index.ts';
import { startWorker } from '../engine/start-worker.ts';
import type { LoadModule } from '../engine/wasm.ts';

/** @internal */
export interface Modules {
  readonly load: LoadModule;
  /** Address of the lazy part, if the entry's own module is split. */
  readonly ownLazy: (() => URL) | undefined;
}

/** A module that the caller gives is whole. */
function lazyOf({ ownLazy }: Modules, wasm: WasmSource | undefined): URL | undefined {
  return wasm === undefined ? ownLazy?.() : undefined;
}

/**
 * Opens in the calling thread, which OPFS requires to be a dedicated worker. All of the engine and
 * the code for that are loaded at once.
 */
async function openHere(
  modules: Modules,
  name: string,
  options: CheckedOptions,
  storage: 'opfs' | 'indexeddb' | 'memory' | CustomStorage,
): Promise<Transport> {
  const { wasm, signal, lockTimeoutMs, bucket } = options;
  const address = lazyOf(modules, wasm);
  const local = loadChunk(storage === 'indexeddb' ? import('./browser-indexeddb.ts') : import('./browser-local.ts'));
  const [{ openHere }, module, lazy] = await abortable(
    Promise.all([local, modules.load(wasm), address && modules.load(address)]),
    signal,
  );
  if (lockTimeoutMs > 0 && (storage === 'opfs' || storage === 'indexeddb'))
    reportBlocked(placeOf(storage, name, bucket));
  return openHere(module, lazy, name, { ...options, storage });
}

/** @internal */
export async function openIn<K = Key, V = unknown, I = V>(
  modules: Modules,
  name: string | URL,
  options: OpenOptions<K, V, I>,
): Promise<Database<K, V, I>> {
  const checked = withTracer(checkOptions(options), name);
  const opening = openChecked(modules, name, options, checked);
  return checked.tracer?.opening(opening) ?? opening;
}

async function openChecked<K, V, I>(
  modules: Modules,
  name: string | URL,
  options: OpenOptions<K, V, I>,
  checked: CheckedOptions,
): Promise<Database<K, V, I>> {
  checked.signal?.throwIfAborted();
  if (isPrerendered()) await abortable(new Promise<void>(whenShown), checked.signal);
  if (options.encryption !== undefined)
    [modules, checked] = await (await loadChunk(import('./browser-encryption.ts'))).encrypt(
      checked,
      options.encryption,
    );
  if (options.bucket !== undefined)
    checked = await (await loadChunk(import('./browser-bucket.ts'))).inBucket(checked, options.bucket);
  const path = String(name);
  const { storage, durability, idleTimeoutMs, tracer } = checked;
  if (typeof storage === 'object') {
    if (checked.thread === 'worker') throw noStorageInWorker();
    const transport = await openHere(modules, path, checked, storage);
    return toDatabase(
      new Connection(transport, idleTimeoutMs, tracer),
      { path, persistence: 'custom', durability },
      options,
      checked,
    );
  }
  const { transport, persistence } = await openWhere(modules, path, checked);
  const { bucket } = checked;
  const info: DatabaseInfo = { path, persistence, bucket, durability, isLocked: persistence !== 'memory' };
  return toDatabase(new Connection(transport, idleTimeoutMs, tracer), info, options, checked);
}

function toDatabase<K, V, I>(
  connection: Connection,
  info: DatabaseInfo,
  options: OpenOptions<K, V, I>,
  { schema }: CheckedOptions,
): Database<K, V, I> | Promise<Database<K, V, I>> {
  if (schema === undefined) return new KvDatabase(connection, info, options);
  return openAtVersion(
    connection,
    info,
    options,
    loadChunk(import('./browser-versions.ts')).then(
      ({ settle }) =>
        (make) =>
          settle(connection, schema, make),
    ),
  );
}

interface Opened {
  readonly transport: Transport;
  readonly persistence: 'opfs' | 'indexeddb' | 'memory';
}

/** Opens the requested storage, or the one that `onUnavailable` names if that is not available. */
async function openWhere(modules: Modules, path: string, options: CheckedOptions): Promise<Opened> {
  const { storage, onUnavailable, thread } = options;
  if (storage === 'fs') throw new KvError('KV_UNSUPPORTED', 'browsers have no file system for "fs"; use "opfs"');
  if (storage === 'memory' || storage === 'indexeddb') {
    if (storage === 'indexeddb') directoryName(path);
    const isHere =
      thread === 'same' || (typeof Worker !== 'function' && (storage === 'indexeddb' || thread === 'auto'));
    const opening = (isHere ? openHere : openInWorker)(modules, path, options, storage);
    const transport = await opening.catch((error: unknown) => {
      // Sandboxed frames and `data:` pages start no worker, and memory needs none.
      if (isHere || storage !== 'memory' || thread !== 'auto' || !(error instanceof NoWorkerError)) throw error;
      traceFallback(options, storage, error);
      return openHere(modules, path, options, storage);
    });
    return { transport, persistence: storage };
  }
  directoryName(path);
  const isHere = thread === 'same';
  let isSupported = true;
  const supported = checkSupport().then((support) => {
    if (support.ok || (isHere && support.reason === 'no-worker')) return;
    isSupported = false;
    throw new KvError('KV_UNSUPPORTED', `${support.message} (${support.reason})`);
  });
  supported.catch(ignore);
  try {
    // The worker starts, and the module loads, while the browser is asked.
    const opening = isHere
      ? supported.then(() => openHere(modules, path, options, 'opfs'))
      : openInWorker(modules, path, options, 'opfs', supported);
    return { transport: await opening, persistence: 'opfs' };
  } catch (reason) {
    if (options.signal?.aborted) throw reason;
    // What the browser lacks says more than what failed without it.
    const error: unknown = await supported.then(
      () => reason,
      (unsupported: unknown) => unsupported,
    );
    if (onUnavailable === 'throw' || (isSupported && (isHere || !isUnavailable(error)))) throw error;
    traceFallback(options, onUnavailable, error);
    return openWhere(modules, path, { ...options, storage: onUnavailable });
  }
}

function traceFallback({ tracer }: CheckedOptions, storage: 'indexeddb' | 'memory', error: unknown): void {
  tracer?.record({ source: 'open', event: 'fallback', storage, error: toPlain(error) });
}

/**
 * Some browsers have OPFS, but not everything that the worker needs of it. A worker whose script is
 * missing or forbidden says nothing about OPFS.
 */
function isUnavailable(error: unknown): boolean {
  return error instanceof KvError && error.code === 'KV_UNSUPPORTED' && !(error instanceof NoWorkerError);
}

/**
 * Only for Node, Deno and Bun.
 *
 * @throws KvError KV_UNSUPPORTED always: a page cannot open files synchronously.
 */
export function openSync<K = Key, V = unknown, I = V>(
  _name: string | URL,
  _options?: OpenOptions<K, V, I>,
): SyncDatabase<K, V, I> {
  throw new KvError(
    'KV_UNSUPPORTED',
    'openSync needs files that open synchronously, as in Node, Deno and Bun; use open',
  );
}

async function openInWorker(
  modules: Modules,
  name: string,
  { lockTimeoutMs, engine, signal, wasm, worker, bucket, tracer }: CheckedOptions,
  storage: 'opfs' | 'indexeddb' | 'memory',
  /** What has to be known before the worker opens anything. */
  supported?: Promise<void>,
): Promise<Transport> {
  signal?.throwIfAborted();
  const start = (): WorkerPort =>
    startWorker(storage, worker, storage === 'indexeddb' ? ownIndexedDbWorker : ownWorker);
  const request = Promise.all([modules.load(wasm), supported]).then(([module]) => ({
    module,
    lazy: lazyOf(modules, wasm)?.href,
    storage,
    name,
    bucket,
    lockTimeoutMs,
    engine,
    isTraced: tracer !== undefined,
  }));
  // Prevents an unhandled rejection: it may fail before anybody awaits it.
  request.catch(() => undefined);
  if (storage === 'memory') return WorkerTransport.open(start(), request, signal, tracer?.record);
  return SharedTransport.openShared(start, request, signal, tracer?.record);
}

// Bundlers recognize this form. webpack names the file after `name`, so each worker has its own.
const ownWorker = (): Worker =>
  new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'mangrove-kv' });
const ownIndexedDbWorker = (): Worker =>
  new Worker(new URL('./worker-indexeddb.js', import.meta.url), { type: 'module', name: 'mangrove-kv-indexeddb' });

/**
 * Removes a database; returns whether there was one. Other files in its directory stay.
 *
 * @throws KvError KV_LOCKED if it is open; KV_CORRUPT if a file belongs to another program, or its
 * start is too damaged to tell: then all files stay, unless `force` is set.
 */
export async function destroy(name: string | URL, options: DestroyOptions = {}): Promise<boolean> {
  const storage = checkDestroy(options);
  const { destroy } = await loadChunk(
    storage === undefined ? import('./browser-destroy.ts') : import('./browser-indexeddb.ts'),
  );
  return destroy(String(name), options);
}

/** Lists the databases of this origin, with their size in bytes. */
export async function list(options: PlaceOptions = {}): Promise<{ name: string; size: number }[]> {
  if (checkPlace('list', options) !== undefined)
    return (await loadChunk(import('./browser-indexeddb.ts'))).list(options);
  return (await loadChunk(import('./browser-destroy.ts'))).list(options);
}

/**
 * Asks the browser to keep the origin's data when space runs short, for which it may ask the user;
 * returns whether it will. Returns false too if the browser does not answer within 30 seconds; a
 * later call returns the outcome.
 */
export async function persist(): Promise<boolean> {
  const asked = globalThis.navigator?.storage?.persist?.();
  return asked === undefined ? false : within(asked, BROWSER_MS, 'persist').catch(() => false);
}

/**
 * The browser's estimate of the bytes that the origin uses and may use; 0 where it has none.
 *
 * @throws KvError KV_TIMEOUT if the browser does not answer within 30 seconds, or KV_IO if it refuses to.
 */
export async function estimate(): Promise<{ usage: number; quota: number }> {
  const asked = globalThis.navigator?.storage?.estimate?.();
  const { usage = 0, quota = 0 } =
    asked === undefined
      ? {}
      : await within(asked, BROWSER_MS, 'estimate').catch((error: unknown) => {
          throw toKvError(error, 'estimate');
        });
  return { usage, quota };
}
