// A sorted part of a collection in the memory of the page, for synchronous reads.
import { checkCount, dispose, ignore } from '../base/async.ts';
import { KvError } from '../base/errors.ts';
import { checkNames } from '../base/names.ts';
import { Event, EventTarget as Target } from '../base/platform.ts';
import { decodeAny } from '../codec/key-bytes.ts';
import type { Key } from '../codec/keys.ts';
import { decodeKey } from '../wire/codecs.ts';
import type { ByteRange } from '../wire/protocol.ts';
import type {
  Bounds,
  Collection,
  IndexEntry,
  IndexRange,
  LiveIndex,
  Range,
  SetOptions,
  SyncIndexRange,
  Updater,
  WriteOptions,
} from '../types/index.ts';
import { ENTRY_BYTES, MirrorHub, guarded } from './hub.ts';
import type { Keeper } from './hub.ts';
import { bytesOf, intersection, keyNameOf, overlaps, partsOf } from './names.ts';
import { isWithin } from './sorted-entries.ts';
import type { Held, Span } from './sorted-entries.ts';
import { checkedSource } from './source.ts';
import type { Source } from './source.ts';
import { CollectionStore, IndexStore } from './store.ts';
import type { Store } from './store.ts';
import { MirrorWriter } from './writer.ts';

/** Options of `mirror`. */
export interface MirrorOptions {
  /**
   * Bound of what is held: the bytes of keys and values as they are stored, and 80 more for each entry. Default: 16 MiB.
   */
  readonly maxBytes?: number | undefined;
}

/** A write through a mirror was undone, as its commit failed. */
export interface RollbackEvent extends Event {
  /** Why: what the write's promise rejects with. */
  readonly error: unknown;
  /** The keys that were written. They show what the newest commit has again. */
  readonly keys: readonly unknown[];
}

/** The entries came to have more than `maxBytes`, so the mirror ends earlier from now on. */
export interface ShrinkEvent extends Event {
  /** The first key that is no longer in the mirror; in an index, the index key of the first entry that is not. */
  readonly end: unknown;
}

/** The mirror cannot follow the database any more; its status is `failed`. */
export interface MirrorErrorEvent extends Event {
  readonly error: unknown;
}

/** Events of a mirror. */
export interface MirrorEventMap {
  rollback: RollbackEvent;
  shrink: ShrinkEvent;
  error: MirrorErrorEvent;
}

/**
 * - `loading`: nothing can be read yet.
 * - `ready`: reads answer at once.
 * - `failed`: it could not be loaded, or cannot be followed any more. Reads throw why.
 * - `closed`: `close` was called. Reads throw KV_CLOSED.
 */
export type MirrorStatus = 'loading' | 'ready' | 'failed' | 'closed';

/** A range of one of a collection's indexes. */
export interface MirroredIndexRange extends Omit<IndexRange, 'signal' | 'reverse' | 'limit' | 'offset'> {
  /** Name of the index. */
  index: string;
}

const DEFAULT_BYTES = 16 << 20;
const OPTIONS = { maxBytes: 1 } as const;
/** `toWindow` knows further options, which make no part of a collection that can be kept. */
const NOT_OF_MIRRORS = ['reverse', 'limit', 'offset', 'signal'] as const;

// Typed by the platform: a declaration that imports ours would need the types of pages.
const Events: typeof EventTarget = Target;

/** What mirrors of collections and of indexes have in common: `Item` is what is read of an entry, `R` is a bound of ranges. */
export abstract class BaseMirror<K, V, I, R, Item> extends Events {
  /** @internal */
  protected readonly source: Source;
  /** @internal */
  protected readonly store: Store;
  readonly #hub: MirrorHub;
  readonly #keeper: Keeper;
  /** What was asked for; the mirror may have shrunk to less. */
  readonly #whole: Span;
  readonly #writer: MirrorWriter<K, V, I> | undefined;
  readonly #listeners = new Set<{ readonly call: () => void }>();
  #status: MirrorStatus = 'loading';
  #error: unknown;
  /**
   * Resolves to the mirror when it is loaded.
   *
   * @throws KvError KV_RANGE_TOO_LARGE if the range has more than `maxBytes`; what reading it fails with.
   */
  readonly ready: Promise<this>;

  /** @internal */
  constructor(source: Source, collection: Collection<K, V, I> | undefined, range: object, options: MirrorOptions) {
    super();
    checkNames('mirror', options, OPTIONS);
    const { maxBytes = DEFAULT_BYTES } = options;
    checkCount('maxBytes', maxBytes);
    const { target, place, name } = source;
    this.source = source;
    this.#hub = MirrorHub.of(target.connection);
    const make = (): Store => (place === undefined ? new CollectionStore(target) : new IndexStore(target, place));
    const bounds = source.window('mirror', range).range;
    this.store = this.#hub.store(name, make)!;
    this.#whole = this.store.spanOf(bounds);
    this.#keeper = {
      store: this.store,
      span: this.#whole,
      bytes: 0,
      isTouched: false,
      maxBytes,
      onChange: () => this.#changed(),
      onShrink: () => this.#report('shrink', { end: this.#end }),
      onFailure: (error) => this.#fail(error),
    };
    this.#writer =
      collection &&
      new MirrorWriter(collection, this.#hub, this.store, (error, keys) => this.#report('rollback', { error, keys }));
    this.ready = this.#load();
    this.ready.catch(ignore);
  }

  #load(): Promise<this> {
    try {
      const loading = this.#hub.keep(this.#keeper);
      if (loading !== undefined) {
        return loading.then(
          () => this.#loaded(),
          (error: unknown) => {
            this.#fail(error);
            throw error;
          },
        );
      }
      return Promise.resolve(this.#loaded());
    } catch (error) {
      this.#fail(error);
      return Promise.reject(error);
    }
  }

  #loaded(): this {
    if (this.#status === 'loading') this.#status = 'ready';
    this.#changed();
    return this;
  }

  get status(): MirrorStatus {
    return this.#status;
  }

  /** Why the mirror has failed, or why it cannot be brought up to date for the moment. */
  get error(): unknown {
    return this.#error ?? this.#hub.error;
  }

  /** Whether there may be commits that cannot be read for the moment, as another tab takes over. It shows what it had. */
  get isStale(): boolean {
    return this.#status === 'failed' || this.#hub.isStale;
  }

  /**
   * The commit that the mirror shows, with those writes through mirrors on top of it that are under way. All mirrors of an
   * open database are at the same one, and go on together.
   */
  get version(): number {
    return this.#hub.version;
  }

  /** What it holds, as `maxBytes` counts it. O(log n). */
  get bytes(): number {
    const [from, to] = this.store.entries.positions(this.#keeper.span);
    return this.#keeper.bytes + (to - from) * ENTRY_BYTES;
  }

  /** Number of entries. O(log n). */
  get size(): number {
    const [from, to] = this.store.entries.positions(this.#open().span);
    return to - from;
  }

  /** Whether the mirror has all entries of a range now. */
  covers(range: Bounds<R>): boolean {
    const asked = this.store.spanOf(this.source.window('covers', range).range);
    const { span } = this.#keeper;
    return this.#status === 'ready' && contains(span, asked);
  }

  /** The entries of a range, in order; an entry is the same object until it changes. Do not modify them. O(log n + entries). */
  range(options?: Range<R>): readonly Item[] {
    return this.#select('range', options).map((held) => this.store.itemOf(held) as Item);
  }

  /** The keys of `range(options)`. */
  keys(options?: Range<R>): readonly K[] {
    return this.#select('keys', options).map((held) => this.keyOf(held));
  }

  /** The values of `range(options)`. */
  values(options?: Range<R>): readonly V[] {
    return this.#select('values', options).map(({ value }) => value as V);
  }

  /** Number of entries in `range(options)`. O(log n). */
  count(options?: Range<R>): number {
    const { from, to } = this.#window('count', options);
    return to - from;
  }

  /** The first item of `range(options)`. O(log n). */
  first(options?: Range<R>): Item | undefined {
    return this.#at('first', 0, options);
  }

  /** The last item of `range(options)`. O(log n). */
  last(options?: Range<R>): Item | undefined {
    return this.#at('last', -1, options);
  }

  /** The item of `range(options)` at a position; a negative one counts from the end. O(log n). */
  at(index: number, options?: Range<R>): Item | undefined {
    if (!Number.isSafeInteger(index)) throw new KvError('KV_INVALID_ARGUMENT', 'index has to be a whole number');
    return this.#at('at', index, options);
  }

  /** Calls `onChange` after each step that changed what the mirror shows, or its status. Returns the function that ends this. */
  readonly subscribe = (onChange: () => void): (() => void) => {
    const listener = { call: onChange };
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };

  /** Lets go of the entries that no other mirror has. Idempotent. */
  close(): void {
    if (this.#status === 'closed') return;
    const isKept = this.#status !== 'failed';
    this.#status = 'closed';
    if (isKept) this.#hub.release(this.#keeper);
    this.#changed();
  }

  /** Same as `close()`. */
  [dispose](): void {
    this.close();
  }

  /** As `set` of the collection, and shown at once. */
  set(key: K, value: I, options?: SetOptions): Promise<void> {
    return this.#write((writer) => writer.set(key, value, options));
  }

  /** As `setMany` of the collection, and shown at once. */
  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): Promise<void> {
    return this.#write((writer) => writer.setMany(entries, options));
  }

  /** As `delete` of the collection, and shown at once. */
  delete(key: K, options?: WriteOptions): Promise<boolean> {
    return this.#write((writer) => writer.delete(key, options));
  }

  /** As `deleteMany` of the collection, and shown at once. */
  deleteMany(keys: Iterable<K>, options?: WriteOptions): Promise<number> {
    return this.#write((writer) => writer.deleteMany(keys, options));
  }

  /**
   * As `update` of the collection. What `fn` makes of the entry that is mirrored is shown at once, unless `fn` is
   * asynchronous or no mirror has that entry. `fn` runs again on the entry in the database; what it makes of that is
   * stored, and shown from then on.
   */
  update(key: K, fn: Updater<K, V, I>, options?: SetOptions): Promise<V | undefined> {
    return this.#write((writer) => writer.update(key, fn, options));
  }

  override addEventListener<E extends keyof MirrorEventMap>(
    type: E,
    listener: (event: MirrorEventMap[E]) => void,
    options?: Parameters<EventTarget['addEventListener']>[2],
  ): void;
  override addEventListener(...listener: Parameters<EventTarget['addEventListener']>): void;
  override addEventListener(...listener: unknown[]): void {
    super.addEventListener(...(listener as Parameters<EventTarget['addEventListener']>));
  }

  override removeEventListener<E extends keyof MirrorEventMap>(
    type: E,
    listener: (event: MirrorEventMap[E]) => void,
    options?: Parameters<EventTarget['removeEventListener']>[2],
  ): void;
  override removeEventListener(...listener: Parameters<EventTarget['removeEventListener']>): void;
  override removeEventListener(...listener: unknown[]): void {
    super.removeEventListener(...(listener as Parameters<EventTarget['removeEventListener']>));
  }

  /** @internal The key of an entry. */
  protected abstract keyOf(held: Held): K;

  /** @internal An entry by its name. Throws if the mirror does not have that part of the collection. */
  protected held(name: string): Held | undefined {
    if (isWithin(this.#open().span, name)) return this.store.entries.get(name);
    throw outside('the key is outside of the mirror; read the collection, or mirror a range that has it');
  }

  /** @internal The number of entries of a range that are before a name. */
  protected before(name: string, range: ByteRange): number {
    const [from, to] = this.store.entries.positions(this.#within(range));
    return Math.min(Math.max(this.store.entries.position(name) - from, 0), to - from);
  }

  #write<T>(write: (writer: MirrorWriter<K, V, I>) => Promise<T>): Promise<T> {
    try {
      if (this.#writer !== undefined) return write(this.#writer);
    } catch (error) {
      return Promise.reject(error);
    }
    const message = 'this mirror of an index has no collection to write to; use mirror(collection, { index, …range })';
    return Promise.reject(new KvError('KV_UNSUPPORTED', message));
  }

  #at(call: string, index: number, options: Range<R> | undefined): Item | undefined {
    const { from, to, reverse } = this.#window(call, options);
    const position = index < 0 ? to - from + index : index;
    if (position < 0 || position >= to - from) return undefined;
    return this.store.itemOf(this.store.entries.at(reverse ? to - 1 - position : from + position)!) as Item;
  }

  #select(call: string, options: Range<R> | undefined): Held[] {
    const { from, to, reverse } = this.#window(call, options);
    const found = this.store.entries.slice(from, to);
    return reverse ? found.reverse() : found;
  }

  /** The positions in the store of what is asked for. */
  #window(call: string, options: Range<R> = {}): { from: number; to: number; reverse: boolean } {
    const window = this.source.window(call, options);
    const [from, to] = this.store.entries.positionsOf(this.#within(window.range), window);
    return { from, to, reverse: window.reverse };
  }

  /** The part of the mirror that is within a range. Throws if the mirror has lost some of that, as it has shrunk. */
  #within(range: ByteRange): Span {
    const { span } = this.#open();
    if (range.lower === undefined && range.upper === undefined) return span;
    const asked = this.store.spanOf(range);
    if (!overlaps(asked, this.#whole)) return { lower: span.lower, upper: span.lower };
    const within = intersection(asked, this.#whole);
    if (contains(span, within)) return within;
    throw outside('the range reaches beyond what the mirror has kept, as its entries came to have more than maxBytes');
  }

  /** What is kept. Nothing that has expired is in the store afterwards. */
  #open(): Keeper {
    if (this.#status === 'ready') {
      this.#hub.expire(this.store);
      return this.#keeper;
    }
    if (this.#status === 'failed') throw this.#error;
    if (this.#status === 'closed') throw new KvError('KV_CLOSED', 'the mirror is closed');
    throw new KvError('KV_LOADING', 'the mirror is being loaded; await its `ready` first', { retryable: true });
  }

  get #end(): unknown {
    const { upper = '' } = this.#keeper.span;
    const { place, target } = this.source;
    if (place === undefined) return decodeKey(target.key, bytesOf(upper));
    return decodeAny(bytesOf(partsOf(upper).indexKey));
  }

  #changed(): void {
    // One that was called before may have ended it.
    for (const listener of [...this.#listeners]) if (this.#listeners.has(listener)) guarded(listener.call);
  }

  #fail(error: unknown): void {
    if (this.#status !== 'loading' && this.#status !== 'ready') return;
    this.#status = 'failed';
    this.#error = error;
    this.#report('error', { error });
    this.#changed();
  }

  #report(type: keyof MirrorEventMap, fields: object): void {
    this.dispatchEvent(Object.assign(new Event(type), fields));
  }
}

function contains(outer: Span, inner: Span): boolean {
  if (inner.upper !== undefined && inner.upper <= inner.lower) return true;
  return (
    inner.lower >= outer.lower &&
    (outer.upper === undefined || (inner.upper !== undefined && inner.upper <= outer.upper))
  );
}

function outside(message: string): KvError {
  return new KvError('KV_OUT_OF_RANGE', message);
}

/** A part of a collection in memory, in the order of its keys. */
export class Mirror<K, V, I = V> extends BaseMirror<K, V, I, K, readonly [K, V]> {
  /**
   * The value, or `undefined` if and only if there is no entry: the same object until the entry changes. Do not modify it.
   * O(log n).
   *
   * @throws KvError KV_OUT_OF_RANGE for a key outside of the mirror, which the collection may have.
   */
  get(key: K): V | undefined {
    return this.held(this.#nameOf(key))?.value as V | undefined;
  }

  /** Whether there is an entry. O(log n). Throws as `get`. */
  has(key: K): boolean {
    return this.held(this.#nameOf(key)) !== undefined;
  }

  /** The number of keys in the mirror that sort before `key`, with bounds only those within them. O(log n). */
  rank(key: K, options: Bounds<K> = {}): number {
    return this.before(this.#nameOf(key), this.source.window('rank', options).range);
  }

  #nameOf(key: K): string {
    return keyNameOf(this.source.target, key);
  }

  protected override keyOf(held: Held): K {
    return (this.store.itemOf(held) as readonly [K, V])[0];
  }
}

/** A part of a collection in memory, in the order of one of its indexes. Ranges, `get`, `has` and `rank` are about index keys. */
export class IndexMirror<K, V, I = V> extends BaseMirror<K, V, I, Key, IndexEntry<K, V>> {
  override range(options?: SyncIndexRange): readonly IndexEntry<K, V>[] {
    return super.range(options);
  }

  override keys(options?: SyncIndexRange): readonly K[] {
    return super.keys(options);
  }

  override values(options?: SyncIndexRange): readonly V[] {
    return super.values(options);
  }

  override count(options?: SyncIndexRange): number {
    return super.count(options);
  }

  /** The value of the first entry with this index key, or `undefined`. O(log n). */
  get(indexKey: Key): V | undefined {
    return this.first({ eq: indexKey } as SyncIndexRange)?.value;
  }

  /** Whether there is an entry with this index key. O(log n). */
  has(indexKey: Key): boolean {
    return this.count({ eq: indexKey } as SyncIndexRange) > 0;
  }

  /** The number of entries in `range(options)` whose index keys sort before this one. O(log n). */
  rank(indexKey: Key, options: SyncIndexRange = {}): number {
    const { lower } = this.store.spanOf(this.source.window('rank', { gte: indexKey }).range);
    return this.before(lower, this.source.window('rank', options).range);
  }

  protected override keyOf(held: Held): K {
    return (this.store.itemOf(held) as IndexEntry<K, V>).key;
  }
}

/**
 * A part of a collection in the order of one of its indexes. Commits that touch the collection anywhere are followed, as
 * they may bring entries into the range. While the index is being built, the mirror loads. Writes are those of the
 * collection, by its keys.
 */
export function mirror<K, V, I = V>(
  collection: Collection<K, V, I>,
  range: MirroredIndexRange,
  options?: MirrorOptions,
): IndexMirror<K, V, I>;
/** As for a collection with `index`, without writes. */
export function mirror<K, V>(
  index: LiveIndex<K, V>,
  range?: Omit<MirroredIndexRange, 'index'>,
  options?: MirrorOptions,
): IndexMirror<K, V, never>;
/**
 * Keeps the entries of a range in memory, for synchronous reads. They are loaded at once, all from one state, and follow
 * the commits of all tabs and processes, also when another one takes the database over. Live queries of what is mirrored
 * have their entries at once. Mirrors whose ranges overlap hold the entries once.
 *
 * Within one task, all mirrors of an open database show the same commit, `version`. An expired entry is gone.
 *
 * Writes through a mirror are shown at once in all mirrors of the collection. If the commit fails, they are undone, with
 * the event `rollback`. Their promises are those of the collection's writes.
 *
 * A mirror follows until it or its database is closed.
 *
 * Loading takes O(log n + entries); each commit O(its changes · log entries + entries behind them).
 *
 * @throws KvError KV_INVALID_ARGUMENT if an argument is invalid. What loading fails with is what `ready` rejects with.
 */
export function mirror<K, V, I = V>(
  collection: Collection<K, V, I>,
  range?: Bounds<K>,
  options?: MirrorOptions,
): Mirror<K, V, I>;
export function mirror(given: unknown, range: object = {}, options: MirrorOptions = {}): unknown {
  for (const name of NOT_OF_MIRRORS)
    if (name in Object(range))
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `mirror: a mirror has all entries between two bounds; pass ${name} when you read it`,
      );
  const { index: name, ...bounds } = Object(range) as Partial<MirroredIndexRange>;
  const collection = given as Collection<unknown, unknown>;
  if (name === undefined) {
    const source = checkedSource('mirror', given);
    return source.place === undefined
      ? new Mirror(source, collection, range, options)
      : new IndexMirror(source, undefined, range, options);
  }
  if (checkedSource('mirror', given).place !== undefined)
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'mirror: a range with the name of an index needs a collection or a database',
    );
  return new IndexMirror(checkedSource('mirror', collection.index(name)), collection, bounds, options);
}
