// Checks the options of `open`, and of the calls that find databases by their storage.
import { KvError } from '../base/errors.ts';
import { Tracer } from '../base/tracer.ts';
import type { TraceEvent } from '../base/trace.ts';
import type { Names } from '../base/names.ts';
import { crypto } from '../base/platform.ts';
import type {
  AdvancedOptions,
  CollectionOptions,
  CustomStorage,
  DestroyOptions,
  Durability,
  OpenOptions,
  PlaceOptions,
  WasmSource,
  WorkerSource,
} from '../types/index.ts';
import { isWasmSource } from '../engine/wasm.ts';
import { checkBoolean, checkCount, checkFunction, checkLimit, checkOneOf, checkSignal } from '../base/async.ts';
import { checkCodec } from '../wire/codecs.ts';
import type { EngineOptions } from '../wire/contracts.ts';
import { COLLECTION, checkWait, durabilityCode } from './arguments.ts';
import { checkNames } from '../base/names.ts';
import { toIndexes } from './indexes.ts';
import { toValidate } from './schema.ts';
import type { SchemaOptions } from './versions.ts';

const MAX_U32 = 0xffff_ffff;
/** Browsers release the files of a page late. */
const BROWSER_LOCK_TIMEOUT_MS = 10_000;
const DEFAULT_IDLE_TIMEOUT_MS = 3_600_000;
const DEFAULT_FEED_COMMITS = 10_000;

export interface CheckedOptions {
  readonly storage: 'auto' | 'opfs' | 'indexeddb' | 'fs' | 'memory' | CustomStorage;
  /** Name of the storage bucket, once its options are checked. */
  readonly bucket?: string | undefined;
  readonly onUnavailable: 'throw' | 'indexeddb' | 'memory';
  readonly durability: Durability;
  readonly lockTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly takeOver: boolean;
  readonly share: boolean;
  readonly onBlocked: ((error: KvError) => void) | undefined;
  readonly trace: boolean | ((event: TraceEvent) => void);
  /** See `withTracer`. */
  readonly tracer?: Tracer | undefined;
  readonly signal: AbortSignal | undefined;
  readonly wasm: WasmSource | undefined;
  readonly worker: WorkerSource | undefined;
  readonly thread: 'auto' | 'worker' | 'same';
  readonly schema: SchemaOptions | undefined;
  readonly engine: EngineOptions;
}

/** Whether the default value codec refuses class instances. */
export function checkStrict<K, V, I>({ strictValues, value }: CollectionOptions<K, V, I>, byDefault: boolean): boolean {
  const isStrict = checkBoolean('strictValues', strictValues ?? byDefault);
  if (strictValues !== true || value === undefined) return isStrict;
  throw new KvError(
    'KV_INVALID_ARGUMENT',
    'strictValues applies to the default value codec only; leave out strictValues or value',
  );
}

function checkSize(name: string, value: number | undefined): number | undefined {
  return value === undefined ? undefined : checkCount(name, value, MAX_U32);
}

function checkAdvanced(advanced: AdvancedOptions = {}): Pick<EngineOptions, 'unitBytes' | 'nodeBytes'> {
  if (typeof advanced !== 'object')
    throw new KvError('KV_INVALID_ARGUMENT', 'advanced has to be an object with unitBytes and nodeBytes');
  checkNames('advanced', advanced, ADVANCED);
  return {
    unitBytes: checkSize('unitBytes', advanced.unitBytes),
    nodeBytes: checkSize('nodeBytes', advanced.nodeBytes),
  };
}

const FEED = { retainCommits: 1 } as const;

function checkFeed(feed: OpenOptions['feed']): number {
  if (feed === undefined || feed === false) return 0;
  if (feed === true) return DEFAULT_FEED_COMMITS;
  if (typeof feed !== 'object' || feed === null) {
    throw new KvError('KV_INVALID_ARGUMENT', 'feed has to be a boolean or an object with retainCommits');
  }
  checkNames('feed', feed, FEED);
  const { retainCommits = DEFAULT_FEED_COMMITS } = feed;
  if (retainCommits === 0) throw new KvError('KV_INVALID_ARGUMENT', 'retainCommits has to be at least 1');
  return checkCount('retainCommits', retainCommits, MAX_U32);
}

function checkStorage(storage: OpenOptions['storage']): CheckedOptions['storage'] {
  if (storage === undefined) return 'auto';
  if (typeof storage === 'object' && storage !== null) {
    const { open, list, remove } = storage;
    if ([open, list, remove].every((method) => typeof method === 'function')) return storage;
  } else if (['auto', 'opfs', 'indexeddb', 'fs', 'memory'].includes(storage)) {
    return storage;
  }
  throw new KvError(
    'KV_INVALID_ARGUMENT',
    'storage has to be "auto", "opfs", "indexeddb", "fs", "memory" or an object with open, list and remove',
  );
}

function checkSchema<K, V, I>({
  version,
  upgrade,
  onUpgrade,
  signal,
}: OpenOptions<K, V, I>): SchemaOptions | undefined {
  if (onUpgrade !== undefined) checkFunction(onUpgrade);
  const isUpgrade = upgrade === undefined || typeof upgrade === 'function' || upgrade?.steps instanceof Map;
  const isVersion =
    version === undefined ? upgrade === undefined : Number.isInteger(version) && version > 0 && version <= MAX_U32;
  if (!isUpgrade || !isVersion) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'version has to be a whole number from 1 on, upgrade a function or the result of migrations, given with a version',
    );
  }
  return version === undefined
    ? undefined
    : { version, upgrade: upgrade as SchemaOptions['upgrade'], onUpgrade, signal };
}

export function checkWasm(wasm: unknown): WasmSource | undefined {
  if (wasm === undefined || isWasmSource(wasm)) return wasm;
  throw new KvError('KV_INVALID_ARGUMENT', 'wasm has to be a URL, a Response, bytes or a WebAssembly.Module');
}

export function checkWorker(worker: WorkerSource | undefined): WorkerSource | undefined {
  if (worker === undefined || ['string', 'function'].includes(typeof worker) || worker instanceof URL) return worker;
  throw new KvError('KV_INVALID_ARGUMENT', 'worker has to be a URL or a function that returns a Worker');
}

export const VERSIONS = { version: 1, upgrade: 1, onUpgrade: 1 } as const;
const OPEN: Names<OpenOptions> = {
  storage: 1,
  bucket: 1,
  create: 1,
  exclusive: 1,
  readOnly: 1,
  onUnavailable: 1,
  lockTimeout: 1,
  takeOver: 1,
  share: 1,
  onBlocked: 1,
  idleTimeout: 1,
  thread: 1,
  durability: 1,
  cacheBytes: 1,
  compression: 1,
  advanced: 1,
  feed: 1,
  trace: 1,
  signal: 1,
  wasm: 1,
  worker: 1,
  encryption: 1,
  ...VERSIONS,
  ...COLLECTION,
};
const ADVANCED: Names<AdvancedOptions> = { unitBytes: 1, nodeBytes: 1 };
const PLACE: Names<PlaceOptions> = { storage: 1, bucket: 1 };
const DESTROY: Names<DestroyOptions> = { force: 1, ...PLACE };

export function checkPlace(call: string, options: PlaceOptions): PlaceOptions['storage'] {
  checkNames(call, options, PLACE);
  return checkPlaceStorage(options.storage);
}

export function checkDestroy(options: DestroyOptions): PlaceOptions['storage'] {
  checkNames('destroy', options, DESTROY);
  return checkPlaceStorage(options.storage);
}

export function checkPlaceStorage(storage: PlaceOptions['storage']): PlaceOptions['storage'] {
  if (storage === undefined || storage === 'indexeddb') return storage;
  throw new KvError('KV_INVALID_ARGUMENT', 'storage has to be "indexeddb" or left out');
}

/** `names` holds the options that the runtime's `open` accepts, and `lockTimeoutMs` is its default. */
export function checkOptions<K, V, I>(
  options: OpenOptions<K, V, I>,
  names: object = OPEN,
  lockTimeoutMs = BROWSER_LOCK_TIMEOUT_MS,
): CheckedOptions {
  checkNames('open', options, names);
  const { create = true, exclusive = false, readOnly = false, durability = 'strict', compression } = options;
  const {
    lockTimeout = lockTimeoutMs,
    idleTimeout = DEFAULT_IDLE_TIMEOUT_MS,
    onUnavailable = 'throw',
    thread = 'auto',
    trace = false,
    signal,
  } = options;
  checkSignal(signal);
  durabilityCode(durability);
  if (options.onBlocked !== undefined) checkFunction(options.onBlocked);
  checkOneOf('onUnavailable', onUnavailable, ['throw', 'indexeddb', 'memory']);
  checkOneOf('thread', thread, ['auto', 'worker', 'same']);
  if (compression !== undefined) checkOneOf('compression', compression, ['lz4', 'none']);
  if (options.expireIn !== undefined) checkWait(options.expireIn);
  if (options.key !== undefined) checkCodec('key', options.key);
  if (options.value !== undefined) checkCodec('value', options.value);
  checkStrict(options, false);
  toValidate(options.schema);
  toIndexes(options.indexes);
  return {
    storage: checkStorage(options.storage),
    onUnavailable,
    durability,
    idleTimeoutMs: checkLimit('idleTimeout', idleTimeout),
    takeOver: checkBoolean('takeOver', options.takeOver ?? false),
    share: checkBoolean('share', options.share ?? true),
    onBlocked: options.onBlocked,
    lockTimeoutMs: checkLimit('lockTimeout', lockTimeout),
    trace: typeof trace === 'function' ? trace : checkBoolean('trace', trace),
    signal,
    wasm: checkWasm(options.wasm),
    worker: checkWorker(options.worker),
    thread,
    schema: checkSchema(options),
    engine: {
      create: checkBoolean('create', create),
      exclusive: checkBoolean('exclusive', exclusive),
      readOnly: checkBoolean('readOnly', readOnly),
      cacheBytes: checkSize('cacheBytes', options.cacheBytes),
      compression,
      ...checkAdvanced(options.advanced),
      feedCommits: checkFeed(options.feed),
      opening: crypto.getRandomValues(new Uint8Array(16)),
    },
  };
}

/** Adds what records the traces of this database, if somebody wants them. */
export function withTracer(options: CheckedOptions, name: string | URL): CheckedOptions {
  return { ...options, tracer: Tracer.of(String(name), options.trace) };
}

export function noStorageInWorker(): KvError {
  return new KvError(
    'KV_UNSUPPORTED',
    'a custom storage cannot be passed to a worker; thread has to be "auto" or "same"',
  );
}
