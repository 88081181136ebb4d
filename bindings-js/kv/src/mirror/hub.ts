// Keeps everything that is mirrored of one database at one commit: loads segments, follows the commits that touch them, and
// moves all of them on in one step.
import { KvError } from '../base/errors.ts';
import { ignore, turn } from '../base/async.ts';
import { performance, queueMicrotask } from '../base/platform.ts';
import { isSnapshotLost } from '../base/superseded.ts';
import { Content } from '../wire/chunk.ts';
import type { Connection } from '../wire/connection.ts';
import { Op } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';
import { gaps, overlaps, rangeOf, union } from './names.ts';
import { rawCommits } from './raw-commits.ts';
import type { RawCommit } from './raw-commits.ts';
import { hubOf, setHub } from './registry.ts';
import type { MirroredStores, View } from './registry.ts';
import { isWithin } from './sorted-entries.ts';
import type { Held, Span } from './sorted-entries.ts';
import type { Segment, Store, Written } from './store.ts';

/** What the engine sends at most in one reply. */
const REPLY_BYTES = 8 << 20;
const ALL_ITEMS = 0x7fff_ffff;
/** What an entry takes in memory beyond its bytes, in bounds of bytes. */
export const ENTRY_BYTES = 80;

/** Decoding goes on for at most this long before other tasks get their turn. */
const SLICE_MS = 8;
const LOOK_EVERY = 256;

const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2000;
const MAX_TIMER_MS = 0x7fff_ffff;

/** Keeps a span loaded. */
export interface Keeper extends View {
  readonly maxBytes: number;
  /** The span was cut, as its entries had more than `maxBytes`. */
  onShrink(): void;
  /** Nothing follows the commits any more. */
  onFailure(error: unknown): void;
}

/** An iterator over commits in the engine. */
interface Follower {
  /** `undefined` while it is not open. */
  id: number | undefined;
  readonly store: Store;
  /** What it follows; `undefined` for all of the collection. */
  readonly span: Span | undefined;
  readonly segments: Set<FollowedSegment>;
  /** Commits that were sent and are not applied yet. */
  queue: RawCommit[];
  /** Everything up to this version is in the queue, or applied. */
  reached: number;
  /** The last reply did not have all commits that there were. */
  isBehind: boolean;
}

interface FollowedSegment extends Segment {
  readonly store: Store;
  readonly follower: Follower;
  readonly keepers: Set<Keeper>;
  lower: string;
  upper: string | undefined;
}

/** A write through a mirror, until its commit is applied here. */
export interface Write {
  readonly store: Store;
  /** By the names of the keys. */
  entries: ReadonlyMap<string, Written>;
  /** Number of reads of the feed that had begun when it was committed: the next one has its commit. */
  committedAt: number | undefined;
}

interface Part {
  readonly segment: FollowedSegment;
  readonly entries: readonly Held[];
  /** Where reading ended, if it did before the end. */
  readonly cut: Cut | undefined;
}

/** An entry that nobody may hold: all keepers whose spans have it have more than their bounds allow. */
interface Cut {
  readonly at: string;
  readonly keepers: readonly Keeper[];
}

interface Loaded {
  readonly version: number;
  readonly parts: readonly Part[];
}

/** A keeper that waits for segments of its span. */
interface Request {
  readonly keeper: Keeper;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  failures: number;
}

/** Whether a later attempt may succeed. */
function isPassing(error: unknown): boolean {
  const { code, retryable } = (error ?? {}) as Partial<KvError>;
  return retryable === true || code === 'KV_INDEX_INCOMPLETE' || isInterrupted(error);
}

/** Whether the tab is gone that had what is asked for: another attempt need not wait. */
function isInterrupted(error: unknown): boolean {
  return (error as Partial<KvError> | undefined)?.code === 'KV_TRUNCATED_FEED' || isSnapshotLost(error);
}

function pauseAfter(failures: number): number {
  return Math.min(FIRST_PAUSE_MS * 2 ** failures, LAST_PAUSE_MS);
}

export class MirrorHub implements MirroredStores {
  readonly #connection: Connection;
  readonly #stores = new Map<string, Store>();
  readonly #followers = new Set<Follower>();
  readonly #views = new Set<View>();
  /** In the order of the calls. */
  readonly #writes = new Set<Write>();
  readonly #requests: Request[] = [];
  readonly #released = new WeakSet<Keeper>();
  #version = 0;
  /** How often the commits were asked for. */
  #reads = 0;
  #isRunning = false;
  #mustRun = false;
  /** The followers are gone: everything has to be read again. */
  #isBroken = false;
  #failures = 0;
  #error: unknown;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #expiry: { readonly at: number; readonly timer: ReturnType<typeof setTimeout> } | undefined;

  static of(connection: Connection): MirrorHub {
    const hub = (hubOf(connection) as MirrorHub | undefined) ?? new MirrorHub(connection);
    setHub(connection, hub);
    return hub;
  }

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** The commit that everything shows, under the writes that are under way. */
  get version(): number {
    return this.#version;
  }

  /** Whether there may be newer commits that cannot be read now. */
  get isStale(): boolean {
    return this.#isBroken;
  }

  /** Why they cannot be read. */
  get error(): unknown {
    return this.#error;
  }

  /** The store of a collection or an index, by a name that tells how it is decoded. */
  store(name: string, make?: () => Store): Store | undefined {
    let store = this.#stores.get(name);
    if (store === undefined && make !== undefined) this.#stores.set(name, (store = make()));
    return store;
  }

  /** The entry of a key as it is shown; `undefined` if nothing that is mirrored tells whether there is one. */
  find(store: Store, keyName: string): { readonly held: Held | undefined } | undefined {
    for (const each of this.#stores.values()) {
      if (!isSameCollection(each, store)) continue;
      this.expire(each);
      const held = each.find(keyName);
      if (held !== undefined || each.tells(keyName)) return { held };
    }
    return undefined;
  }

  /** Tells a view of changes, until the returned function is called. */
  watch(view: View): () => void {
    view.store.watch(view);
    this.#views.add(view);
    return () => this.#forget(view);
  }

  #forget(view: View): void {
    const { store } = view;
    store.viewers.delete(view);
    this.#views.delete(view);
    if (store.segments.length > 0 || store.viewers.size > 0) return;
    for (const [name, each] of this.#stores) if (each === store) this.#stores.delete(name);
  }

  /**
   * Loads what is missing of a keeper's span. Returns `undefined` if nothing is.
   *
   * @throws KvError KV_RANGE_TOO_LARGE, also later.
   */
  keep(keeper: Keeper): Promise<void> | undefined {
    const { store, span } = keeper;
    for (const gap of gaps(span, store.segments)) this.#newSegment(store, gap);
    for (const segment of store.segments as FollowedSegment[]) if (overlaps(segment, span)) segment.keepers.add(keeper);
    if (store.covers(span)) {
      this.#begin(keeper);
      return undefined;
    }
    return new Promise((resolve, reject) => {
      this.#requests.push({ keeper, resolve, reject, failures: 0 });
      this.#run();
    });
  }

  #begin(keeper: Keeper): void {
    this.watch(keeper);
    if (!isTooLarge(keeper)) return;
    this.release(keeper);
    throw keeper.store.tooLarge(keeper.maxBytes);
  }

  /** Lets go of what only this keeper has kept. If it still waits, that fails with `reason`. */
  release(keeper: Keeper, reason: unknown = closedError()): void {
    const { store } = keeper;
    this.#released.add(keeper);
    const waiting = this.#requests.findIndex((request) => request.keeper === keeper);
    if (waiting >= 0) this.#requests.splice(waiting, 1)[0]!.reject(reason);
    for (const segment of [...store.segments] as FollowedSegment[])
      if (segment.keepers.delete(keeper)) this.#trim(segment);
    this.#forget(keeper);
    this.#touchQueries(store);
    this.#tell();
  }

  #newSegment(store: Store, span: Span): FollowedSegment {
    // An entry may come to or leave any range of index keys by a commit that touches it anywhere.
    const shared = store.isIndex ? [...this.#followers].find((each) => each.store === store) : undefined;
    const follower = shared ?? {
      id: undefined,
      store,
      span: store.isIndex ? undefined : span,
      segments: new Set<FollowedSegment>(),
      queue: [],
      reached: 0,
      isBehind: false,
    };
    this.#followers.add(follower);
    const segment = { ...span, store, follower, keepers: new Set<Keeper>(), loadedAt: undefined };
    follower.segments.add(segment);
    store.segments.push(segment);
    return segment;
  }

  /** Narrows a segment to what its keepers ask for: to several, where there is something between them. */
  #trim(segment: FollowedSegment): void {
    const { store, follower, keepers } = segment;
    const spans = [...keepers].map(({ span }) => span);
    const [first, ...others] = union(segment, spans);
    for (const span of gaps(segment, first === undefined ? [] : [first, ...others])) store.forget(span);
    for (const part of others) {
      const own = [...keepers].filter(({ span }) => overlaps(part, span));
      const split = { ...segment, ...part, keepers: new Set(own) };
      follower.segments.add(split);
      store.segments.push(split);
    }
    if (first !== undefined) {
      segment.lower = first.lower;
      segment.upper = first.upper;
      for (const keeper of keepers) if (!overlaps(first, keeper.span)) keepers.delete(keeper);
      return;
    }
    store.segments.splice(store.segments.indexOf(segment), 1);
    follower.segments.delete(segment);
    if (follower.segments.size > 0) return;
    this.#followers.delete(follower);
    this.#close(follower);
  }

  #close(follower: Follower): void {
    const { id } = follower;
    if (id === undefined) return;
    follower.id = undefined;
    follower.queue = [];
    this.#connection.waiting.delete(id);
    this.#connection.postLater((writer) => writer.u8(Op.changesClose).uv(id));
  }

  // Reading: one thing at a time, so that all of it is at one commit.

  #run(): void {
    this.#mustRun = true;
    if (this.#isRunning) return;
    this.#isRunning = true;
    void this.#runUntilDone().finally(() => {
      this.#isRunning = false;
      // It may have been asked for in between.
      if (this.#mustRun && this.#followers.size > 0) this.#run();
    });
  }

  async #runUntilDone(): Promise<void> {
    while (this.#mustRun && this.#followers.size > 0) {
      this.#mustRun = false;
      const read = ++this.#reads;
      if (this.#isBroken) {
        await this.#readAll(read);
        continue;
      }
      const request = this.#requests.shift();
      if (this.#requests.length > 0) this.#mustRun = true;
      const loaded = request && (await this.#load(request));
      const hasAdvanced = await this.#advance(read, loaded);
      if (request === undefined || loaded === undefined) continue;
      if (hasAdvanced) this.#finish(request);
      else this.#again(request);
    }
  }

  /** Reads what a keeper lacks, of which others may wait for a part; `undefined` if that has to wait, or has failed. */
  async #load(request: Request): Promise<Loaded | undefined> {
    const { keeper } = request;
    const segments = (keeper.store.segments as FollowedSegment[]).filter(
      ({ keepers, loadedAt }) => loadedAt === undefined && keepers.has(keeper),
    );
    try {
      const loaded = await this.#read(segments);
      const tooLarge = loaded.parts.flatMap(({ cut }) => cut?.keepers ?? []);
      if (loaded.parts.every(({ cut }) => cut === undefined)) return loaded;
      // Without them, less has to be read.
      for (const each of [...this.#requests, request]) if (tooLarge.includes(each.keeper)) this.#refuse(each);
      this.#again(request);
    } catch (failure) {
      const error = reasonOf(failure);
      if (!this.#isPassing(error)) this.#refuse(request, error);
      else if (request.failures++ === 0 && isInterrupted(error)) this.#again(request);
      else unref(setTimeout(() => this.#again(request), pauseAfter(request.failures)));
    }
    for (const { follower } of segments) if (!isFollowing(follower)) this.#close(follower);
    return undefined;
  }

  #again(request: Request): void {
    if (this.#released.has(request.keeper)) return request.reject(closedError());
    this.#requests.push(request);
    this.#run();
  }

  #refuse({ keeper, reject }: Request, error: unknown = keeper.store.tooLarge(keeper.maxBytes)): void {
    reject(error);
    this.release(keeper);
  }

  #isPassing(error: unknown): boolean {
    return this.#connection.status === 'open' && isPassing(error);
  }

  /**
   * Applies the commits since the last time, and shows what was loaded. Returns whether that succeeded; if not,
   * everything has to be read again.
   */
  async #advance(read: number, loaded: Loaded | undefined): Promise<boolean> {
    // What is the first of all need not wait for others.
    const isFirst = ![...this.#followers].some(isFollowing);
    const followers = isFirst ? [] : [...this.#followers].filter(({ id }) => id !== undefined);
    for (let behind = followers; behind.length > 0; ) {
      const pulled = await Promise.allSettled(behind.map((follower) => this.#pull(follower)));
      for (const [at, result] of pulled.entries()) {
        if (result.status === 'fulfilled') continue;
        if (this.#isPassing(result.reason)) {
          this.#break(result.reason);
          return false;
        }
        this.#failStore(behind[at]!.store, result.reason);
      }
      behind = behind.filter((follower) => follower.isBehind && this.#followers.has(follower));
      // More than one reply holds. What was loaded, and what is known of writes, is shown once all of that is.
      if (behind.length > 0)
        this.#step(Math.min(this.#reachedBy(followers), loaded?.version ?? Infinity), 0, undefined);
      if (this.#isBroken) return false;
    }
    const reached = this.#reachedBy(followers);
    if (reached < Infinity) this.#step(reached, read, loaded);
    else if (loaded !== undefined) this.#step(loaded.version, read, loaded);
    // The engine wakes only those that have read everything before.
    if (isFirst && loaded !== undefined) this.#mustRun = true;
    return true;
  }

  /** The version that all of them have reached which are still followed. */
  #reachedBy(followers: readonly Follower[]): number {
    const left = followers.filter((follower) => this.#followers.has(follower));
    return Math.min(...left.map(({ reached }) => reached));
  }

  #finish(request: Request): void {
    const { keeper, resolve, reject } = request;
    if (this.#released.has(keeper)) return reject(closedError());
    // A part of the span may have come while this was read.
    if (!keeper.store.covers(keeper.span)) return this.#again(request);
    try {
      this.#begin(keeper);
      resolve();
    } catch (error) {
      reject(error);
    }
  }

  /** Begins anew, as commits were missed. */
  #break(error: unknown): void {
    this.#isBroken = true;
    this.#error = error;
    for (const follower of this.#followers) this.#close(follower);
    this.#run();
  }

  async #readAll(read: number): Promise<void> {
    const segments = [...this.#followers].flatMap((follower) => [...follower.segments]);
    const loadedOnes = segments.filter(({ loadedAt }) => loadedAt !== undefined);
    try {
      const loaded = await this.#read(loadedOnes);
      this.#failures = 0;
      for (const { cut } of loaded.parts) if (cut !== undefined) this.#cut(cut);
      if (!this.#isWhole(loaded)) {
        this.#tell();
        return this.#run();
      }
      this.#isBroken = false;
      this.#error = undefined;
      this.#touchAll();
      this.#step(loaded.version, read, loaded);
      this.#run();
    } catch (failure) {
      for (const follower of this.#followers) this.#close(follower);
      const reason = reasonOf(failure);
      if (!this.#isPassing(reason)) {
        const failed = failure instanceof ReadFailure ? [failure.store] : [...this.#stores.values()];
        for (const store of failed) this.#failStore(store, reason);
        return this.#run();
      }
      this.#error = reason;
      this.#touchAll();
      this.#tell();
      const failures = this.#failures++;
      if (failures === 0 && isInterrupted(reason)) return this.#run();
      clearTimeout(this.#timer);
      this.#timer = unref(setTimeout(() => this.#run(), pauseAfter(failures)));
    }
  }

  /** Whether everything that is loaded was read again: also what was split meanwhile, and what is behind a cut. */
  #isWhole({ parts }: Loaded): boolean {
    const all = [...this.#followers].flatMap((follower) => [...follower.segments]);
    return all.every((segment) => {
      const part = parts.find((each) => each.segment === segment);
      if (part === undefined) return segment.loadedAt === undefined;
      return part.cut === undefined || !isWithin(segment, part.cut.at);
    });
  }

  /** Reads segments, all in one state, and follows them from that state or an earlier one on. */
  async #read(segments: readonly FollowedSegment[]): Promise<Loaded> {
    const connection = this.#connection;
    const followers = [...new Set(segments.map(({ follower }) => follower))];
    // The state to be read has to have the indexes.
    for (const { store } of followers)
      if (store.isIndex) await failing(store, Promise.resolve(store.target.indexes!.ready(store.target, false)));
    // One that was let go of meanwhile would never be closed.
    const left = followers.filter((follower) => this.#followers.has(follower));
    const opened = Promise.all(left.map((follower) => failing(follower.store, this.#open(follower))));
    const snapshot = connection.newId();
    const version = connection.request(
      (writer) => writer.u8(Op.snapshotOpen).uv(snapshot),
      (reader) => reader.uv(),
    );
    const parts = Promise.all(
      segments
        .filter(({ follower }) => left.includes(follower))
        .map((segment) => failing(segment.store, this.#scan(segment, snapshot))),
    );
    for (const each of [opened, version, parts]) each.catch(ignore);
    try {
      await opened;
      return { version: await version, parts: await parts };
    } finally {
      connection.postLater((writer) => writer.u8(Op.snapshotClose).uv(snapshot));
    }
  }

  #open(follower: Follower): Promise<void> {
    if (follower.id !== undefined) return Promise.resolve();
    const id = this.#connection.newId();
    follower.id = id;
    const { span, store } = follower;
    this.#connection.waiting.set(id, () => this.#run());
    return this.#connection.request(
      (writer) =>
        writer
          .u8(Op.changesOpen)
          .uv(id)
          .uv(0)
          .u8(1)
          .uv(store.target.index)
          .range(span === undefined ? {} : rangeOf(span)),
      (reader) => {
        follower.reached = reader.uv();
      },
    );
  }

  async #pull(follower: Follower): Promise<void> {
    const { id } = follower;
    const { isAll, version, bytes } = await this.#connection.request(
      (writer) => writer.u8(Op.changesNext).uv(id!).uv(REPLY_BYTES),
      (reader) => ({ isAll: reader.u8() !== 0, version: reader.uv(), bytes: reader.bytes() }),
    );
    follower.isBehind = false;
    if (follower.id !== id) return;
    follower.queue.push(...rawCommits(bytes));
    follower.reached = version;
    follower.isBehind = !isAll;
  }

  /** Reads a segment in as few messages as there can be; no further than its keepers may hold. */
  async #scan(segment: FollowedSegment, snapshot: number): Promise<Part> {
    const counted = new CountedEntries(segment);
    const { maxBytes } = counted;
    const connection = this.#connection;
    const { store } = segment;
    const { isIndex } = store;
    const id = connection.newId();
    const ask = (write: (writer: RequestWriter) => RequestWriter): Promise<Chunk> => {
      const whole = (writer: RequestWriter): unknown =>
        write(writer)
          .uv(ALL_ITEMS)
          .uv(Math.min(REPLY_BYTES, maxBytes + ENTRY_BYTES));
      return isIndex ? connection.requestLoading(whole, readChunk) : connection.request(whole, readChunk);
    };
    let sliceEnd = performance.now() + SLICE_MS;
    let chunk = await ask((writer) =>
      store
        .writeSource(
          writer
            .u8(isIndex ? Op.indexScan : Op.scanOpen)
            .uv(id)
            .uv(snapshot),
        )
        .range(store.rangeOf(segment))
        .u8(Content.meta)
        .uv(0)
        .uv(0),
    );
    try {
      for (;;) {
        const { reader } = chunk;
        for (let left = chunk.count; left > 0; left--) {
          if (left % LOOK_EVERY === 0 && performance.now() >= sliceEnd) {
            await turn();
            sliceEnd = performance.now() + SLICE_MS;
          }
          const entry = store.readEntry(reader);
          if (!isWithin(segment, entry.name)) continue;
          const keepers = counted.add(entry);
          if (keepers !== undefined) return { segment, entries: counted.entries, cut: { at: entry.name, keepers } };
        }
        if (chunk.isLast) return { segment, entries: counted.entries, cut: undefined };
        chunk = await ask((writer) => writer.u8(Op.scanNext).uv(id));
      }
    } finally {
      if (!chunk.isLast) connection.postLater((writer) => writer.u8(Op.scanClose).uv(id));
    }
  }

  // Steps. Nothing else runs during one.

  /** Everything that is mirrored goes from one commit to another. */
  #step(version: number, read: number, loaded: Loaded | undefined): void {
    let wasRenamed = false;
    for (const follower of [...this.#followers]) {
      const { store, segments } = follower;
      const commits = follower.queue.filter((commit) => commit.version <= version);
      follower.queue = follower.queue.filter((commit) => commit.version > version);
      if (follower.queue.length > 0) this.#mustRun = true;
      wasRenamed ||= commits.some(({ changes }) => changes.some(({ type }) => type === 'rename'));
      try {
        for (const segment of segments) {
          const part = loaded?.parts.find((each) => each.segment === segment);
          // Keepers may have gone since it was read.
          if (part !== undefined) store.install(segment, loaded!.version, within(segment, part.entries));
          const { loadedAt } = segment;
          if (loadedAt === undefined) continue;
          for (const commit of commits) if (commit.version > loadedAt) store.apply(commit, segment);
        }
      } catch (error) {
        this.#failStore(store, error);
      }
    }
    this.#version = version;
    if (loaded !== undefined) for (const write of this.#writes) this.#show(write);
    for (const write of this.#writes) if (write.committedAt !== undefined && write.committedAt < read) this.#end(write);
    // The collection of a new name has other entries than the one that followers know.
    if (wasRenamed) this.#break(undefined);
    this.#tell();
  }

  /** Shows a write at once, and follows what becomes of it. */
  write(write: Write, commit: Promise<unknown>, onRollback: (error: unknown) => void): void {
    this.#writes.add(write);
    this.#show(write);
    this.#tell();
    commit.then(
      () => {
        write.committedAt = this.#reads;
        this.#run();
      },
      (error: unknown) => {
        this.#end(write);
        this.#tell();
        onRollback(error);
      },
    );
  }

  /** Shows something else for a write that is under way. */
  rewrite(write: Write, entries: Write['entries']): void {
    if (!this.#writes.has(write)) return;
    const { store, entries: before } = write;
    write.entries = entries;
    for (const keyName of before.keys()) if (!entries.has(keyName)) this.#showKey(store, keyName, undefined);
    this.#show(write);
    this.#tell();
  }

  #show({ store, entries }: Write): void {
    for (const [keyName, written] of entries) this.#showKey(store, keyName, written);
  }

  /** Later writes of the same key hide it. */
  #showKey(store: Store, keyName: string, written: Written | undefined): void {
    let newest = written;
    for (const write of this.#writes)
      if (isSameCollection(write.store, store) && write.entries.has(keyName)) newest = write.entries.get(keyName);
    for (const each of this.#stores.values()) {
      if (!isSameCollection(each, store)) continue;
      if (newest === undefined) each.uncover(keyName);
      else each.cover(keyName, newest);
    }
  }

  /** The commit shows the same from here on, or there is none. */
  #end(write: Write): void {
    this.#writes.delete(write);
    for (const keyName of write.entries.keys()) this.#showKey(write.store, keyName, undefined);
  }

  #shrink(): void {
    for (const view of this.#views) {
      if (!view.isTouched || !isKeeper(view) || !isTooLarge(view)) continue;
      const { entries } = view.store;
      let at = entries.position(view.span.upper);
      let bytes = view.bytes + (at - entries.position(view.span.lower)) * ENTRY_BYTES;
      while (bytes > view.maxBytes) bytes -= entries.at(--at)!.bytes + ENTRY_BYTES;
      this.#cutKeeper(view, entries.at(at)!.name);
    }
  }

  #cut({ at, keepers }: Cut): void {
    for (const keeper of keepers)
      if (!this.#released.has(keeper) && isWithin(keeper.span, at)) this.#cutKeeper(keeper, at);
  }

  #cutKeeper(keeper: Keeper, upper: string): void {
    const { store } = keeper;
    keeper.span = { lower: keeper.span.lower, upper };
    for (const segment of [...store.segments] as FollowedSegment[]) {
      if (segment.keepers.has(keeper)) this.#trim(segment);
    }
    store.watch(keeper);
    keeper.isTouched = true;
    this.#touchQueries(store);
    this.#shrunk.add(keeper);
  }

  readonly #shrunk = new Set<Keeper>();

  #failStore(store: Store, error: unknown): void {
    const keepers = new Set((store.segments as FollowedSegment[]).flatMap((segment) => [...segment.keepers]));
    // Those that are told of another one's failure still have their entries.
    for (const keeper of keepers) keeper.onFailure(error);
    for (const keeper of keepers) this.release(keeper, error);
  }

  /** Live queries of what is gone read by themselves from now on. Mirrors show what they did. */
  #touchQueries(store: Store): void {
    for (const view of this.#views) if (view.store === store && !isKeeper(view)) view.isTouched = true;
  }

  #touchAll(): void {
    for (const view of this.#views) view.isTouched = true;
  }

  /** Calls those whose view has changed, once all of it has. */
  #tell(): void {
    this.#shrink();
    this.#watchExpiry();
    const touched = [...this.#views].filter(({ isTouched }) => isTouched);
    for (const view of touched) view.isTouched = false;
    const shrunk = [...this.#shrunk];
    this.#shrunk.clear();
    for (const keeper of shrunk) guarded(() => keeper.onShrink());
    for (const view of touched) guarded(() => view.onChange());
  }

  /** To be called before a read, which sees nothing that has expired. Views are told later. */
  expire(store: Store): void {
    if (store.nextExpiry === Infinity || !store.expire(Date.now())) return;
    queueMicrotask(() => this.#tell());
  }

  #watchExpiry(): void {
    const next = Math.min(...[...this.#stores.values()].map(({ nextExpiry }) => nextExpiry));
    if (next === (this.#expiry?.at ?? Infinity)) return;
    clearTimeout(this.#expiry?.timer);
    this.#expiry = undefined;
    if (next === Infinity) return;
    const wake = (): void => {
      this.#expiry = undefined;
      for (const store of this.#stores.values()) store.expire(Date.now());
      this.#tell();
    };
    const wait = Math.min(Math.max(next - Date.now(), 0) + 1, MAX_TIMER_MS);
    this.#expiry = { at: next, timer: unref(setTimeout(wake, wait)) };
  }
}

/** Entries of a segment as they are read, up to the first one that none of its keepers may hold. */
class CountedEntries {
  readonly entries: Held[] = [];
  /** The largest bound. Up to there, there is nothing to look at but the sum. */
  readonly maxBytes: number;
  readonly #keepers: ReadonlySet<Keeper>;
  #bytes = 0;
  /** What keepers have of the entries, once all together are more than that. */
  readonly #bytesOf = new Map<Keeper, number>();

  constructor({ keepers }: FollowedSegment) {
    this.#keepers = keepers;
    this.maxBytes = Math.max(0, ...[...keepers].map(({ maxBytes }) => maxBytes));
  }

  /** Adds an entry, or returns the keepers that have too much with it. */
  add(entry: Held): readonly Keeper[] | undefined {
    const bytes = entry.bytes + ENTRY_BYTES;
    this.#bytes += bytes;
    if (this.#bytes > this.maxBytes) {
      const having = [...this.#keepers].filter(({ span }) => isWithin(span, entry.name));
      for (const keeper of having) this.#bytesOf.set(keeper, this.#sum(keeper) + bytes);
      if (having.every((keeper) => this.#bytesOf.get(keeper)! > keeper.maxBytes)) return having;
    }
    this.entries.push(entry);
    return undefined;
  }

  #sum(keeper: Keeper): number {
    const counted = this.#bytesOf.get(keeper);
    if (counted !== undefined) return counted;
    return within(keeper.span, this.entries).reduce((sum, { bytes }) => sum + bytes + ENTRY_BYTES, 0);
  }
}

/** Why something of a store could not be read. */
class ReadFailure extends Error {
  readonly store: Store;

  constructor(store: Store, cause: unknown) {
    super('', { cause });
    this.store = store;
  }
}

function failing<T>(store: Store, reading: Promise<T>): Promise<T> {
  return reading.catch((error: unknown) => {
    throw new ReadFailure(store, error);
  });
}

function reasonOf(failure: unknown): unknown {
  return failure instanceof ReadFailure ? failure.cause : failure;
}

function closedError(): KvError {
  return new KvError('KV_CLOSED', 'the mirror was closed before it was loaded');
}

function isFollowing({ id, segments }: Follower): boolean {
  return id !== undefined && [...segments].some(({ loadedAt }) => loadedAt !== undefined);
}

/** Of entries in order, those of a span. */
function within(span: Span, entries: readonly Held[]): readonly Held[] {
  const [first, last] = [entries[0], entries.at(-1)];
  if (first === undefined || (isWithin(span, first.name) && isWithin(span, last!.name))) return entries;
  return entries.filter(({ name }) => isWithin(span, name));
}

function isKeeper(view: View): view is Keeper {
  return 'maxBytes' in view;
}

function isTooLarge({ store: { entries }, span, bytes, maxBytes }: Keeper): boolean {
  return bytes + (entries.position(span.upper) - entries.position(span.lower)) * ENTRY_BYTES > maxBytes;
}

/** Stores of the same collection show each other's writes. */
function isSameCollection(a: Store, b: Store): boolean {
  return a.target.name === b.target.name;
}

/** Keeps no process alive. */
function unref(timer: ReturnType<typeof setTimeout>): ReturnType<typeof setTimeout> {
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

/** What a listener throws is reported as an uncaught error. */
export function guarded(call: () => void): void {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

interface Chunk {
  readonly isLast: boolean;
  readonly count: number;
  readonly reader: ReplyReader;
}

function readChunk(reader: ReplyReader): Chunk {
  const isLast = reader.u8() !== 0;
  const count = reader.uv();
  return { isLast, count, reader: reader.fork(reader.uv()) };
}
