/**
 * A database with the interface of abstract-level.
 *
 * @module @mangrove-kv/level
 */
import { AbstractIterator, AbstractLevel, AbstractSnapshot } from 'abstract-level';
import type { AbstractDatabaseOptions, AbstractOpenOptions } from 'abstract-level';
import { KvError, keyCodecs, open, openSync, valueCodecs } from 'mangrove-kv';
import type {
  Bounds,
  Database,
  KvIterator,
  OpenOptions,
  Reader,
  Snapshot,
  SyncReader,
  WriteOptions,
} from 'mangrove-kv';
import { nearest, untilWhole } from 'mangrove-kv/internal';
import type { Names } from 'mangrove-kv/internal';

type Bytes = Uint8Array;

/**
 * Options that the database has in both interfaces. `createIfMissing` and `errorIfExists` are those
 * of abstract-level. Other options, such as tuning options of other Level databases, are only
 * passed to hooks, as in abstract-level; an option that looks like a misspelling of one of these is
 * refused.
 *
 * In Node, Deno and Bun `lockTimeout` defaults to 0. So a database that is open elsewhere is
 * refused at once, with LEVEL_LOCKED as the code of the cause. `share` lets processes share it instead.
 */
export type MangroveLevelOptions<K = string, V = string> = AbstractDatabaseOptions<K, V> &
  Pick<OpenOptions, 'storage' | 'lockTimeout' | 'share' | 'durability' | 'cacheBytes' | 'thread'> & {
    /**
     * Same as the option of `open`. As in other Level databases, `true` stands for "lz4" and `false`
     * for "none".
     */
    compression?: OpenOptions['compression'] | boolean;
  };

const OWN: Names<Pick<OpenOptions, 'storage' | 'lockTimeout' | 'share' | 'durability' | 'cacheBytes' | 'thread'>> = {
  storage: 1,
  lockTimeout: 1,
  share: 1,
  durability: 1,
  cacheBytes: 1,
  thread: 1,
};
const NAMES = [
  ...Object.keys(OWN),
  'compression',
  'createIfMissing',
  'errorIfExists',
  'keyEncoding',
  'valueEncoding',
  'passive',
  'signal',
];

function checked<T extends object>(options: T): T {
  if (typeof options !== 'object' || options === null)
    throw new KvError('KV_INVALID_ARGUMENT', 'the options of MangroveLevel have to be an object');
  for (const name in options) {
    const near = NAMES.includes(name) ? undefined : nearest(name, NAMES);
    if (near !== undefined)
      throw new KvError('KV_INVALID_ARGUMENT', `unknown option "${name}" of MangroveLevel; did you mean "${near}"?`);
  }
  return options;
}

function toCompression(compression: MangroveLevelOptions['compression']): OpenOptions['compression'] {
  return typeof compression === 'boolean' ? (compression ? 'lz4' : 'none') : compression;
}

/** The option that ends a wait in abstract-level. */
interface LevelSignal {
  readonly signal?: AbortSignal | undefined;
}
interface LevelRange {
  readonly gt?: Bytes;
  readonly gte?: Bytes;
  readonly lt?: Bytes;
  readonly lte?: Bytes;
  readonly reverse: boolean;
  readonly limit: number;
}
interface ReadOptions {
  readonly snapshot?: LevelSnapshot | undefined;
}
/**
 * As in other Level databases, writes with `sync: false` may be lost in a power cut. Default: the
 * database's durability.
 */
interface LevelWriteOptions {
  readonly sync?: boolean | undefined;
}
type Scan = LevelRange & ReadOptions & LevelSignal & { readonly keys: boolean; readonly values: boolean };
type LevelEntry = [Bytes | undefined, Bytes | undefined];
type Operation =
  | { readonly type: 'put'; readonly key: Bytes; readonly value: Bytes }
  | { readonly type: 'del'; readonly key: Bytes };

function compare(a: Bytes, b: Bytes): number {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    const difference = (a[index] as number) - (b[index] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

/** If both are given, the inclusive bound takes precedence. */
function toBounds({ gt, gte, lt, lte }: LevelRange): Bounds<Bytes> {
  return {
    ...(gte === undefined ? gt !== undefined && { gt } : { gte }),
    ...(lte === undefined ? lt !== undefined && { lt } : { lte }),
  };
}

function isWithin(key: Bytes, { gt, gte, lt, lte }: Bounds<Bytes>): boolean {
  const order = (bound: unknown): number => compare(key, bound as Bytes);
  return (
    (gt === undefined || order(gt) > 0) &&
    (gte === undefined || order(gte) >= 0) &&
    (lt === undefined || order(lt) < 0) &&
    (lte === undefined || order(lte) <= 0)
  );
}

function toWriteOptions({ sync }: LevelWriteOptions): WriteOptions {
  return sync === undefined ? {} : { durability: sync ? 'strict' : 'relaxed' };
}

/** Creates an error with a code, by which Level identifies errors. */
function levelError(code: string, message: string, name?: string, cause?: unknown): Error {
  return Object.assign(new Error(message, { cause }), { code }, name && { name });
}

/** Whether this is Node, Deno or Bun; elsewhere `openSync` is always refused. */
function isOutsideBrowsers(): boolean {
  try {
    openSync('', { signal: AbortSignal.abort() }).close();
    return true;
  } catch (error) {
    return codeOf(error) !== 'KV_UNSUPPORTED';
  }
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | undefined)?.code;
}

/** Whether the engine runs in this thread, as it always does with a storage object. */
function isEngineHere(storage: OpenOptions['storage'], thread: OpenOptions['thread'] = 'auto'): boolean {
  return typeof storage === 'object' || (thread === 'auto' ? isOutsideBrowsers() : thread === 'same');
}

/** A separate value, since the manifest's type lacks `getSync`. */
function manifestOf({ storage, thread }: Pick<OpenOptions, 'storage' | 'thread'>) {
  return {
    encodings: { view: true },
    createIfMissing: true,
    // A database in memory belongs to its instance; another instance with the same name finds
    // nothing.
    errorIfExists: storage !== 'memory',
    explicitSnapshots: true,
    has: true,
    signals: { iterators: true },
    getSync: isEngineHere(storage, thread),
    permanence: storage !== 'memory',
  };
}

class LevelSnapshot extends AbstractSnapshot {
  readonly reader: Snapshot<Bytes, Bytes>;

  constructor(reader: Snapshot<Bytes, Bytes>, options: object) {
    // The types omit the constructor that only implementations call.
    super(...([options] as unknown as []));
    this.reader = reader;
  }

  _close(): Promise<void> {
    return this.reader.close();
  }
}

class LevelIterator<K, V> extends AbstractIterator<MangroveLevel<K, V>, K, V> {
  readonly #scan: Scan;
  readonly #bounds: Bounds<Bytes>;
  readonly #reader: Reader<Bytes, Bytes>;
  readonly #own: Snapshot<Bytes, Bytes> | undefined;
  #entries: KvIterator<LevelEntry, Bytes> | undefined;

  constructor(level: MangroveLevel<K, V>, db: Database<Bytes, Bytes>, scan: Scan) {
    super(level, scan as object);
    this.#scan = scan;
    this.#bounds = toBounds(scan);
    // Reads from a snapshot, since a seek may come after the end, when the package's iterator has
    // released its state.
    this.#own = scan.snapshot === undefined ? db.snapshot() : undefined;
    this.#reader = this.#own ?? (scan.snapshot as LevelSnapshot).reader;
    this.#entries = this.#open(this.#bounds);
  }

  async _next(): Promise<LevelEntry | undefined> {
    return (await this.#unlessAborted(this.#entries?.next()))?.value;
  }

  async _nextv(size: number): Promise<LevelEntry[]> {
    return (await this.#unlessAborted(this.#entries?.nextMany(size))) ?? [];
  }

  async _all(): Promise<LevelEntry[]> {
    return this._nextv(this.limit - this.count);
  }

  _seek(target: Bytes): void {
    this.#stop();
    const { reverse } = this.#scan;
    // A target outside the range finds nothing, even if the range lies ahead of it.
    if (!isWithin(target, this.#bounds)) return;
    const { gt, gte, ...upper } = this.#bounds;
    const { lt, lte, ...lower } = this.#bounds;
    this.#entries = this.#open(reverse ? { ...lower, lte: target } : { ...upper, gte: target });
  }

  async _close(): Promise<void> {
    this.#stop();
    await this.#own?.close();
  }

  /** Returns the result of `read`, unless the signal was aborted by then. */
  async #unlessAborted<T>(read: Promise<T> | undefined): Promise<T | undefined> {
    const { signal } = this.#scan;
    try {
      const result = await read;
      if (!signal?.aborted) return result;
    } catch (error) {
      if (!signal?.aborted) throw error;
    }
    throw levelError('LEVEL_ABORTED', 'Operation has been aborted', 'AbortError', signal.reason);
  }

  #open(bounds: Bounds<Bytes>): KvIterator<LevelEntry, Bytes> {
    const { keys, values, reverse, signal } = this.#scan;
    const range = { ...bounds, reverse, limit: this.limit - this.count, signal };
    if (!values) return this.#reader.keys(range).map((key) => [key, undefined]);
    if (!keys) return this.#reader.values(range).map((value) => [undefined, value]);
    return this.#reader.entries(range);
  }

  #stop(): void {
    this.#entries?.return().catch(() => undefined);
    this.#entries = undefined;
  }
}

/** A database with the interface of abstract-level, for packages written for Level. */
export class MangroveLevel<K = string, V = string> extends AbstractLevel<Uint8Array, K, V> {
  /** The name or path that was passed to the constructor. */
  readonly location: string;
  /**
   * A database in memory stays open as long as this object exists: Level's in-memory databases keep
   * their contents across `close` and `open`.
   */
  #db: Database<Bytes, Bytes> | undefined;
  #isKept = false;

  /**
   * Opens itself on the next tick, as every abstract-level database does. `location` is the name
   * passed to `open`.
   */
  constructor(location: string | URL, options: MangroveLevelOptions<K, V> = {}) {
    super(manifestOf(checked(options)), options);
    if (typeof location !== 'string' && !(location instanceof URL))
      throw new KvError('KV_INVALID_ARGUMENT', 'location has to be a string or a URL');
    this.location = String(location);
  }

  /** @hidden */
  async _open(options: AbstractOpenOptions & MangroveLevelOptions): Promise<void> {
    const {
      storage,
      lockTimeout,
      share = false,
      durability,
      cacheBytes,
      compression,
      thread,
      createIfMissing,
      errorIfExists,
    } = checked(options);
    if (this.#isKept) {
      if (errorIfExists)
        throw new KvError('KV_EXISTS', `${this.location} already exists in memory, and errorIfExists is set`);
      return;
    }
    try {
      this.#db = await open<Bytes, Bytes>(this.location, {
        storage,
        durability,
        cacheBytes,
        thread,
        compression: toCompression(compression),
        lockTimeout: lockTimeout ?? (isOutsideBrowsers() ? 0 : undefined),
        share,
        create: createIfMissing,
        exclusive: errorIfExists,
        key: keyCodecs.bytes,
        value: valueCodecs.bytes,
      });
    } catch (error) {
      if (codeOf(error) !== 'KV_LOCKED') throw error;
      throw levelError('LEVEL_LOCKED', (error as Error).message, undefined, error);
    }
    this.#isKept = storage === 'memory';
  }

  /** @hidden */
  async _close(): Promise<void> {
    if (!this.#isKept) await this.#open.close();
  }

  /** @hidden */
  _get(key: Bytes, options: ReadOptions): Promise<Bytes | undefined> {
    return this.#reader(options).get(key);
  }

  /** @hidden Called only where `supports.getSync` is true. */
  _getSync(key: Bytes, { snapshot }: ReadOptions): Bytes | undefined {
    const reader: SyncReader<Bytes, Bytes> = (snapshot?.reader ?? this.#open).sync;
    return reader.get(key);
  }

  /** @hidden */
  _getMany(keys: Bytes[], options: ReadOptions): Promise<(Bytes | undefined)[]> {
    return this.#reader(options).getMany(keys);
  }

  /** @hidden */
  _has(key: Bytes, options: ReadOptions): Promise<boolean> {
    return this.#reader(options).has(key);
  }

  /** @hidden */
  _hasMany(keys: Bytes[], options: ReadOptions): Promise<boolean[]> {
    return this.#reader(options).hasMany(keys);
  }

  /** @hidden */
  _put(key: Bytes, value: Bytes, options: LevelWriteOptions): Promise<void> {
    return this.#open.set(key, value, toWriteOptions(options));
  }

  /** @hidden */
  async _del(key: Bytes, options: LevelWriteOptions): Promise<void> {
    await this.#open.delete(key, toWriteOptions(options));
  }

  /** @hidden */
  async _batch(operations: Operation[], options: LevelWriteOptions): Promise<void> {
    const batch = this.#open.batch();
    for (const operation of operations) {
      if (operation.type === 'put') batch.set(operation.key, operation.value);
      else batch.delete(operation.key);
    }
    await batch.commit(toWriteOptions(options));
  }

  /** @hidden */
  async _clear(options: LevelRange & ReadOptions & LevelWriteOptions): Promise<void> {
    const bounds = toBounds(options);
    if (options.limit === -1 && options.snapshot === undefined)
      return this.#open.clear(bounds, toWriteOptions(options));
    const limit = options.limit === -1 ? Infinity : options.limit;
    const list = (): Promise<Bytes[]> =>
      this.#reader(options)
        .keys({ ...bounds, reverse: options.reverse, limit })
        .toArray();
    const keys = await (options.snapshot === undefined ? untilWhole(list) : list());
    await this.#open.deleteMany(keys, toWriteOptions(options));
  }

  /** @hidden */
  _iterator(options: Scan): LevelIterator<K, V> {
    return new LevelIterator(this, this.#open, options);
  }

  /** @hidden */
  _snapshot(options: object): LevelSnapshot {
    return new LevelSnapshot(this.#open.snapshot(), options);
  }

  get #open(): Database<Bytes, Bytes> {
    return this.#db as Database<Bytes, Bytes>;
  }

  #reader({ snapshot }: ReadOptions): Reader<Bytes, Bytes> {
    return snapshot?.reader ?? this.#open;
  }
}
