// Shared by the entries for Node, Deno and Bun. The engine runs in the caller's thread unless
// `thread` is "worker", and a database is a directory.
import * as fs from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Key } from '../codec/keys.ts';
import { abortable, ignore } from '../base/async.ts';
import { Connection } from '../wire/connection.ts';
import { KvDatabase } from '../api/database.ts';
import { noBuckets } from '../api/bucket.ts';
import { checkModule, toSecret, toSecretSync, withKey } from '../api/encryption.ts';
import { reportBlocked } from '../api/events.ts';
import { InThreadTransport } from '../engine/in-thread-transport.ts';
import { checkOptions, checkDestroy, checkPlace, noStorageInWorker, withTracer } from '../api/options.ts';
import type { CheckedOptions } from '../api/options.ts';
import type { EngineOptions } from '../wire/contracts.ts';
import { makeForUpgrade, openAtVersion } from '../api/open-version.ts';
import { syncFaces } from '../api/synchronous.ts';
import { settle, settleSync } from '../api/versions.ts';
import type { Transport } from '../wire/transport.ts';
import type { Tracer } from '../base/tracer.ts';
import { traceOpen, traceOpenSync } from './node-calls.ts';
import { ThreadTransport } from '../processes/thread-transport.ts';
import { NoWorkerError, WorkerTransport } from '../wire/worker-transport.ts';
import { KvError } from '../base/errors.ts';
import { placeOf } from '../base/names.ts';
import { WatchedStorage } from '../storage/custom.ts';
import { MemoryStorage } from '../storage/memory.ts';
import { checkFilesOurs, hasDatabase, prepareDirectory, toPath } from '../storage/node-directory.ts';
import {
  DATA_FILE,
  LOG_FILE,
  NodeStorage,
  adviceFor,
  attemptTo,
  isMissing,
  syncDirectory,
  toKvError,
} from '../storage/node-fs.ts';
import { lockDirectory, lockDirectorySync } from '../storage/node-lock.ts';
import { removeAddress } from '../processes/address.ts';
import { newClientId } from '../processes/client-id.ts';
import { EngineHost } from '../engine/engine-host.ts';
import { FollowingTransport } from '../processes/following-transport.ts';
import { GuestTransport } from '../processes/guest-transport.ts';
import { Hub } from '../processes/hub.ts';
import { LeadingTransport } from '../processes/leading-transport.ts';
import { NodeMachine } from '../processes/node-machine.ts';
import type { ServedEngine } from '../processes/served-engine.ts';
import { FRONT_BYTES, checkForce, hasMagic } from '../storage/recognize.ts';
import type {
  CustomStorage,
  Database,
  DestroyOptions,
  OpenOptions,
  PlaceOptions,
  Support,
  SyncDatabase,
} from '../types/index.ts';
import type { NodeLoader } from '../engine/node-wasm.ts';
import { NodeWorkerPort } from '../engine/node-worker-port.ts';

/** Here the lock of a process that ends is free at once. */
const LOCK_TIMEOUT_MS = 2_000;

interface Place {
  readonly path: string;
  readonly persistence: Database['persistence'];
  readonly storage: CustomStorage;
  readonly release: () => void;
  /** What a database that is shared needs. `lock` is missing if another handle has it, and so leads. */
  readonly shared?: { readonly machine: NodeMachine; readonly lock: (() => void) | undefined };
}

/** The loader with a check of modules that the caller gives: one without encryption would make a plain database. */
function onlyEncrypted({ load, loadSync, worker }: NodeLoader): NodeLoader {
  return {
    load: async (source) => checkModule(await load(source)),
    loadSync: (source) => checkModule(loadSync(source)),
    worker,
  };
}

/** @internal */
export async function openIn<K = Key, V = unknown, I = V>(
  own: NodeLoader,
  name: string | URL,
  options: OpenOptions<K, V, I>,
): Promise<Database<K, V, I>> {
  const checked = withTracer(checkOptions(options, undefined, LOCK_TIMEOUT_MS), name);
  return traceOpen(name, () => {
    const opening = openChecked(own, name, options, checked);
    return checked.tracer?.opening(opening) ?? opening;
  });
}

async function openChecked<K, V, I>(
  own: NodeLoader,
  name: string | URL,
  options: OpenOptions<K, V, I>,
  checked: CheckedOptions,
): Promise<Database<K, V, I>> {
  const { signal, tracer } = checked;
  const { encryption } = options;
  signal?.throwIfAborted();
  if (options.bucket !== undefined) throw noBuckets();
  // Before the first await, so that the stack of the error leads to the caller.
  if (checked.storage === 'auto' || checked.storage === 'fs') toPath(name);
  if (encryption !== undefined) checked = withKey(checked, await abortable(toSecret(encryption), signal));
  const loader = encryption === undefined ? own : onlyEncrypted(own);
  const { module, place } = await prepare(loader, name, checked);
  const isLocked = isExclusive(place, checked);
  const engine = toEngine(place, checked);
  const transport =
    checked.thread === 'worker'
      ? await openInWorker(loader, module, place, engine, checked)
      : place.shared !== undefined
        ? await openShared(module, place, place.shared, engine, checked)
        : newTransport(module, place, engine, place.release, tracer);
  const connection = new Connection(transport, checked.idleTimeoutMs, tracer);
  const info = { ...place, isLocked, durability: checked.durability };
  const { schema } = checked;
  if (schema === undefined) return new KvDatabase(connection, info, options);
  return openAtVersion(
    connection,
    info,
    options,
    Promise.resolve((make) => settle(connection, schema, make)),
  );
}

/**
 * Loads the module and locks the directory. Both at once if there is a database: taking the lock
 * may start a program, while other threads compile. A module that cannot be loaded leaves no
 * directory behind.
 */
async function prepare(
  loader: NodeLoader,
  name: string | URL,
  options: CheckedOptions,
): Promise<{ module: WebAssembly.Module; place: Place }> {
  const { signal, storage, wasm } = options;
  const loading = abortable(loader.load(wasm), signal);
  // The place may be refused first.
  loading.catch(ignore);
  const exists = (storage === 'auto' || storage === 'fs') && hasDatabase(toPath(name));
  if (!exists) return { module: await loading, place: await toPlace(name, options) };
  // So the caller can still listen for `blocked`, which a database in this thread reports.
  await undefined;
  const place = await toPlace(name, options);
  try {
    return { module: await loading, place };
  } catch (error) {
    place.release();
    throw error;
  }
}

/** @internal */
export function openSyncIn<K = Key, V = unknown, I = V>(
  own: NodeLoader,
  name: string | URL,
  options: OpenOptions<K, V, I>,
): SyncDatabase<K, V, I> {
  const checked = withTracer(checkOptions(options, undefined, LOCK_TIMEOUT_MS), name);
  try {
    const db = traceOpenSync(name, () => openSyncChecked(own, name, options, checked));
    checked.tracer?.opened(db);
    return db.sync;
  } catch (error) {
    throw checked.tracer?.failed(error) ?? error;
  }
}

function openSyncChecked<K, V, I>(
  own: NodeLoader,
  name: string | URL,
  options: OpenOptions<K, V, I>,
  checked: CheckedOptions,
): KvDatabase<K, V, I> {
  const { tracer } = checked;
  const { encryption } = options;
  checked.signal?.throwIfAborted();
  if (options.bucket !== undefined) throw noBuckets();
  if (checked.thread === 'worker')
    throw new KvError('KV_INVALID_ARGUMENT', 'openSync needs the engine in this thread; use open');
  if (encryption !== undefined) checked = withKey(checked, toSecretSync(encryption));
  const { loadSync } = encryption === undefined ? own : onlyEncrypted(own);
  const module = loadSync(checked.wasm);
  const place = toPlaceUnlocked(name, checked);
  const isLocked = isExclusive(place, checked);
  const led = isLocked && checked.share ? new NodeMachine(place.path, checked.takeOver).local() : undefined;
  if (led instanceof Hub && led.engine !== undefined) return openBeside(led.engine, module, place, options, checked);
  if (isLocked) reportWaiting(place, checked);
  const release = isLocked ? lockDirectorySync(place.path, checked.lockTimeoutMs, checked.takeOver) : place.release;
  const transport = newTransport(module, place, toEngine(place, checked), release, tracer);
  return toSyncDatabase(transport, { ...place, isLocked }, options, checked);
}

/** Opens a database that a handle of this thread leads, as another client of its engine. */
function openBeside<K, V, I>(
  engine: ServedEngine,
  module: WebAssembly.Module,
  place: Place,
  options: OpenOptions<K, V, I>,
  checked: CheckedOptions,
): KvDatabase<K, V, I> {
  if (checked.engine.exclusive)
    throw new KvError('KV_EXISTS', `the database ${place.path} exists already, and is open in this thread`);
  const refusal = EngineHost.refusal(module, checked.engine, engine.sealedKey);
  if (refusal !== undefined) throw refusal;
  return toSyncDatabase(new GuestTransport(engine, place.path, syncFaces), place, options, checked);
}

function toSyncDatabase<K, V, I>(
  transport: Transport,
  place: Place & { readonly isLocked?: boolean },
  options: OpenOptions<K, V, I>,
  checked: CheckedOptions,
): KvDatabase<K, V, I> {
  const connection = new Connection(transport, checked.idleTimeoutMs, checked.tracer);
  const info = { ...place, durability: checked.durability };
  if (checked.schema === undefined) return new KvDatabase(connection, info, options);
  try {
    const follow = settleSync(connection, checked.schema, makeForUpgrade(connection, info, options));
    const db = new KvDatabase(connection, info, options);
    follow(db as unknown as Database);
    return db;
  } catch (error) {
    connection.closeSync();
    throw error;
  }
}

function newTransport(
  module: WebAssembly.Module,
  place: Place,
  engine: EngineOptions,
  release: () => void,
  tracer: Tracer | undefined,
): Transport {
  return new InThreadTransport(module, place.storage, engine, { release, syncFaces, trace: tracer?.record });
}

async function openInWorker(
  loader: NodeLoader,
  module: WebAssembly.Module,
  place: Place,
  engine: EngineOptions,
  { worker: source, signal, lockTimeoutMs, takeOver, tracer }: CheckedOptions,
): Promise<Transport> {
  const { path, persistence } = place;
  const request = {
    module,
    storage: persistence === 'memory' ? 'memory' : 'fs',
    name: path,
    lockTimeoutMs,
    engine,
    isTraced: tracer !== undefined,
    takeOver,
  } as const;
  try {
    if (persistence === 'custom') {
      throw noStorageInWorker();
    }
    if (typeof source === 'function') {
      throw new KvError('KV_INVALID_ARGUMENT', 'here worker has to be the URL of dist/node-worker.js');
    }
    const script = source === undefined ? loader.worker() : new URL(source, pathToFileURL(`${process.cwd()}/`));
    // Importing this replaces globals in Deno, so it is loaded only when needed.
    const { Worker } = await import('node:worker_threads');
    const start = (): NodeWorkerPort => new NodeWorkerPort(new Worker(script, NodeWorkerPort.options), place.release);
    const asked = Promise.resolve(request);
    return await (place.shared === undefined
      ? WorkerTransport.open(start(), asked, signal, tracer?.record)
      : ThreadTransport.openShared(start, asked, signal, tracer?.record));
  } catch (error) {
    place.release();
    throw error instanceof KvError || signal?.aborted
      ? error
      : new NoWorkerError(`${error instanceof Error ? error.message : String(error)}${adviceFor(error)}`, {
          cause: error,
        });
  }
}

async function openShared(
  module: WebAssembly.Module,
  { storage }: Place,
  { machine, lock }: NonNullable<Place['shared']>,
  engine: EngineOptions,
  { lockTimeoutMs, signal, onBlocked, tracer }: CheckedOptions,
): Promise<Transport> {
  const trace = tracer?.record;
  const client = newClientId();
  if (lock === undefined) {
    return FollowingTransport.open({ module, engine, machine, client, lockTimeoutMs, signal, trace, onBlocked });
  }
  try {
    return new LeadingTransport(module, storage, engine, machine, client, lock, { syncFaces, trace });
  } catch (error) {
    lock();
    throw error;
  }
}

/** Whether a handle locks out others; a read-only one does not. */
function isExclusive(place: Place, options: CheckedOptions): boolean {
  return place.persistence === 'fs' && !options.engine.readOnly && place.shared === undefined;
}

function reportWaiting({ persistence, path }: Place, { lockTimeoutMs }: CheckedOptions): void {
  if (lockTimeoutMs > 0) reportBlocked(placeOf(persistence, path, undefined));
}

function toEngine(place: Place, { engine }: CheckedOptions): EngineOptions {
  return { ...engine, besideWriter: engine.readOnly && place.persistence === 'fs' };
}

async function toPlace(name: string | URL, options: CheckedOptions): Promise<Place> {
  const place = toPlaceUnlocked(name, options);
  if (!isExclusive(place, options)) return place;
  if (options.share) {
    const machine = attemptTo(`open ${place.path}`, () => new NodeMachine(place.path, options.takeOver));
    // The thread takes it, if it is its turn.
    const lock = options.thread === 'worker' ? undefined : machine.tryLock();
    return { ...place, release: lock ?? ignore, shared: { machine, lock } };
  }
  reportWaiting(place, options);
  return { ...place, release: await lockDirectory(place.path, options) };
}

function toPlaceUnlocked(name: string | URL, options: CheckedOptions): Place {
  const { storage } = options;
  const release = (): void => {};
  if (typeof storage === 'object') {
    return { path: String(name), persistence: 'custom', storage: new WatchedStorage(storage), release };
  }
  if (storage === 'memory') return { path: String(name), persistence: 'memory', storage: new MemoryStorage(), release };
  if (storage === 'indexeddb') throw noIndexedDb();
  if (storage === 'opfs') throw new KvError('KV_UNSUPPORTED', 'the origin private file system exists in browsers only');
  const path = toPath(name);
  const { create, readOnly } = options.engine;
  prepareDirectory(path, create && !readOnly);
  return { path, persistence: 'fs', storage: new NodeStorage(path, readOnly), release };
}

function noIndexedDb(): KvError {
  return new KvError('KV_UNSUPPORTED', 'databases in IndexedDB exist in browsers only');
}

/**
 * Removes a database; returns whether there was one. Other files in its directory stay.
 *
 * @throws KvError KV_LOCKED if it is open; KV_CORRUPT if a file belongs to another program, or its
 * start is too damaged to tell: then all files stay, unless `force` is set.
 */
export async function destroy(name: string | URL, options: DestroyOptions = {}): Promise<boolean> {
  if (checkDestroy(options) !== undefined) throw noIndexedDb();
  if (options.bucket !== undefined) throw noBuckets();
  const force = checkForce(options);
  const path = toPath(name);
  if (!hasDatabase(path)) return false;
  const data = join(path, DATA_FILE);
  const check = (): void => (force ? undefined : checkFilesOurs(path, [DATA_FILE, LOG_FILE]));
  // Checked before locking, which may create files, and again when nobody else can write.
  check();
  const release = await lockDirectory(path, { lockTimeoutMs: 0 });
  try {
    check();
    // Once the data is gone, the log and the leftovers of an interrupted restore mean nothing. The
    // data file goes last, as it may carry the lock.
    fs.truncateSync(data, 0);
    for (const name of [LOG_FILE, 'data.restoring', 'log.restoring', 'backup.restoring'])
      fs.rmSync(join(path, name), { force: true });
    removeAddress(path);
    fs.rmSync(data);
    syncDirectory(path);
  } catch (error) {
    throw toKvError(error, `remove ${path}`);
  } finally {
    release();
  }
  try {
    fs.rmdirSync(path);
  } catch {
    // Not empty: the rest is not ours.
  }
  return true;
}

/**
 * Lists the databases that are subdirectories of the working directory, with their size in bytes.
 */
export async function list(options: PlaceOptions = {}): Promise<{ name: string; size: number }[]> {
  if (checkPlace('list', options) !== undefined) throw noIndexedDb();
  if (options.bucket !== undefined) throw noBuckets();
  const found: { name: string; size: number }[] = [];
  for (const entry of attemptTo('list the working directory', () => fs.readdirSync('.', { withFileTypes: true }))) {
    const size = entry.isDirectory() ? databaseSize(entry.name) : undefined;
    if (size !== undefined) found.push({ name: entry.name, size });
  }
  return found;
}

/** Bytes of a database's files; `undefined` if the directory holds no database. */
function databaseSize(directory: string): number | undefined {
  const data = join(directory, DATA_FILE);
  let handle: number | undefined;
  try {
    handle = fs.openSync(data, 'r');
    const front = new Uint8Array(FRONT_BYTES);
    fs.readSync(handle, front, 0, front.length, 0);
    if (!hasMagic(DATA_FILE, front)) return undefined;
    const log = fs.statSync(join(directory, LOG_FILE), { throwIfNoEntry: false });
    return fs.fstatSync(handle).size + (log?.size ?? 0);
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw toKvError(error, `read ${data}`);
  } finally {
    if (handle !== undefined) fs.closeSync(handle);
  }
}

/** Returns whether databases can be kept here, and where: always in files. */
export async function checkSupport(): Promise<Support> {
  return { ok: true, storage: 'fs' };
}

/** Resolves to true: files are kept anyway. */
export async function persist(): Promise<boolean> {
  return true;
}

/**
 * Bytes used, and usable by this user, on the file system of the working directory.
 *
 * @throws KvError KV_IO.
 */
export async function estimate(): Promise<{ usage: number; quota: number }> {
  try {
    const { bsize, blocks, bfree, bavail } = fs.statfsSync(process.cwd());
    const usage = (blocks - bfree) * bsize;
    return { usage, quota: usage + bavail * bsize };
  } catch (error) {
    throw toKvError(error, 'estimate');
  }
}
