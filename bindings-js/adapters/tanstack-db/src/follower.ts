// Keeps a collection of TanStack DB the same as the rows that it was asked for, for one run of its sync.
import type { LoadSubsetOptions, SyncConfig } from '@tanstack/db';
import { MAX_KEY, compareKeys } from 'mangrove-kv';
import type { Bounds, Commit, CommitIterator, Key, KvError } from 'mangrove-kv';
import { isSnapshotLost, untilWhole } from 'mangrove-kv/internal';
import type { ReplicationCommits } from 'mangrove-kv/internal';
import type { Row } from './expressions.ts';
import type { Rows } from './indexes.ts';
import { readSubset } from './load.ts';
import type { Read } from './read.ts';
import { Subsets } from './subsets.ts';
import type { Subset } from './subsets.ts';

/** The key of a row in TanStack DB. */
export type RowKey = string | number;

/** What TanStack DB gives to a sync. */
export type SyncParameters = Parameters<SyncConfig<Row, RowKey>['sync']>[0];

/** Commits that are followed, and how to learn which have arrived even if they changed nothing here. */
type Commits = CommitIterator<Key, Row> & Partial<Pick<ReplicationCommits, 'look'>>;

/** A row that the collection has, and the commit that it is from. */
interface Present {
  readonly version: number;
  readonly value: Row;
}

/** What was read from one state. */
interface State {
  readonly version: number;
  readonly rows: readonly Read[];
}

/** What to change in the collection. */
type Writes = Map<RowKey, Present | undefined>;

export interface FollowerOptions {
  readonly isEager: boolean;
  readonly keyPath: readonly string[] | undefined;
  /** Milliseconds for which a subset stays that nobody uses. */
  readonly subsetGcTime: number;
}

/** Thrown when a commit does not say which rows it changed. */
const UNKNOWN_CHANGES = new Error('the rows have to be read again');

/** Whether commits were lost, or the state that they follow; the rows are read again then. */
const isInterrupted = (error: unknown): boolean =>
  error === UNKNOWN_CHANGES ||
  isSnapshotLost(error) ||
  (error as Partial<KvError> | undefined)?.code === 'KV_TRUNCATED_FEED';

function isIn(key: Key, { gt, gte, lt, lte, prefix }: Bounds<Key>): boolean {
  if (prefix !== undefined) throw UNKNOWN_CHANGES;
  const order = (bound: unknown): number => {
    if (typeof bound === 'symbol' || (Array.isArray(bound) && bound.includes(MAX_KEY))) throw UNKNOWN_CHANGES;
    return compareKeys(key, bound as Key);
  };
  return (
    (gt === undefined || order(gt) > 0) &&
    (gte === undefined || order(gte) >= 0) &&
    (lt === undefined || order(lt) < 0) &&
    (lte === undefined || order(lte) <= 0)
  );
}

export class Follower {
  readonly #sync: SyncParameters;
  readonly #options: FollowerOptions;
  readonly #rows: Promise<Rows>;
  readonly #stop = new AbortController();
  /** The rows of the collection. */
  readonly #present = new Map<RowKey, Present>();
  readonly #subsets = new Subsets();
  /** Keys that were written through this collection: they stay, whatever the subsets. */
  readonly #own = new Set<RowKey>();
  /** Number of the newest commit that has been taken over. */
  #reached = 0;
  readonly #waiting = new Set<{ readonly version: number; readonly resolve: () => void }>();
  /** While subsets are read: the keys that changed meanwhile, with the numbers of the commits. */
  readonly #changed = new Map<RowKey, number>();
  /** While subsets are read: the newest commit that cleared a range. */
  #cleared = 0;
  #reading = 0;
  #name = '';
  /** Resolves when the commits are being watched. */
  #watching: Promise<void>;
  #commits: Commits | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(sync: SyncParameters, rows: Promise<Rows>, options: FollowerOptions) {
    this.#sync = sync;
    this.#rows = rows;
    this.#options = options;
    this.#watching = this.#run();
    // Loads report it, too.
    this.#watching.catch(() => undefined);
    if (!options.isEager) sync.markReady();
  }

  get #isStopped(): boolean {
    return this.#stop.signal.aborted;
  }

  /** Ends the run. */
  stop(): void {
    this.#stop.abort();
    this.#subsets.clear();
    this.#settle(Infinity);
  }

  /** Resolves when the collection has the rows of a commit, or does not follow them any more. */
  reached(version: number): Promise<void> {
    if (this.#isStopped || this.#failure !== undefined || this.#reached >= version) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiting.add({ version, resolve });
      // A commit that has changed none of these rows does not arrive by itself.
      this.#commits?.look?.();
    });
  }

  /** Notes keys that are about to be written through the collection. */
  own(keys: Iterable<RowKey>): void {
    if (!this.#options.isEager) for (const key of keys) this.#own.add(key);
  }

  /** Loads a subset and keeps it current; `true` if it is there already. */
  load(options: LoadSubsetOptions): true | Promise<void> {
    const { subset, isNew } = this.#subsets.acquire(options);
    if (isNew || (options.refetch === true && subset.loading === undefined)) this.#load(subset);
    return subset.loading ?? true;
  }

  /** Ends a use of a subset. Its rows stay for a while, for the next one. */
  unload(options: LoadSubsetOptions): void {
    const subset = this.#subsets.release(options);
    if (subset === undefined) return;
    const { subsetGcTime } = this.#options;
    if (subsetGcTime === Infinity) return;
    subset.timer = setTimeout(() => this.#forget(subset), subsetGcTime);
    // It is no reason for a process to go on.
    (subset.timer as { unref?: () => void }).unref?.();
  }

  #settle(version: number): void {
    this.#reached = Math.max(this.#reached, version);
    for (const waiting of this.#waiting) {
      if (waiting.version > this.#reached) continue;
      this.#waiting.delete(waiting);
      waiting.resolve();
    }
  }

  #fail(error: unknown): void {
    if (this.#isStopped) return;
    this.#failure = { error };
    this.#settle(Infinity);
    this.#sync.markError(error);
  }

  // Commits are followed from before rows are read, so that none is missed.
  async #run(): Promise<void> {
    let rows: Rows;
    let commits: CommitIterator<Key, Row>;
    try {
      rows = await this.#rows;
      if (this.#isStopped) return;
      this.#name = rows.name;
      commits = this.#watch(rows);
    } catch (error) {
      this.#fail(error);
      throw error;
    }
    void this.#follow(rows, commits).catch((error: unknown) => this.#fail(error));
  }

  #watch(rows: Rows): CommitIterator<Key, Row> {
    const commits: Commits = rows.collection.watch({ initial: this.#options.isEager, signal: this.#stop.signal });
    this.#commits = commits;
    if (this.#waiting.size > 0) commits.look?.();
    return commits;
  }

  async #follow(rows: Rows, first: CommitIterator<Key, Row>): Promise<void> {
    let commits = first;
    for (;;) {
      try {
        let isFirst = this.#options.isEager;
        for await (const commit of commits) {
          if (this.#isStopped) return;
          if (isFirst) this.#replace(commit);
          else this.#take(commit);
          isFirst = false;
        }
        // The database was closed: the collection keeps what it has.
        this.#settle(Infinity);
        return;
      } catch (error) {
        if (this.#isStopped) return;
        if (!isInterrupted(error)) throw error;
      }
      commits = this.#watch(rows);
      if (!this.#options.isEager) await this.#reload(rows);
      if (this.#isStopped) return;
    }
  }

  /** Makes the collection what an initial commit says. */
  #replace({ version, changes }: Commit<Key, Row>): void {
    const writes: Writes = new Map();
    for (const key of this.#present.keys()) writes.set(key, undefined);
    for (const change of changes) {
      if (change.type === 'set') writes.set(change.key as RowKey, { version, value: change.value });
    }
    void this.#write(writes);
    this.#settle(version);
    this.#sync.markReady();
  }

  /** Takes over a commit. */
  #take({ version, changes }: Commit<Key, Row>): void {
    const writes: Writes = new Map();
    const isNewer = (key: RowKey): boolean => version > (this.#present.get(key)?.version ?? 0);
    for (const change of changes) {
      if (change.type === 'set' || change.type === 'delete') {
        const key = change.key as RowKey;
        if (this.#reading > 0) this.#changed.set(key, version);
        if (!isNewer(key)) continue;
        const value = change.type === 'set' && this.#isWanted(key, change.value, version) ? change.value : undefined;
        writes.set(key, value === undefined ? undefined : { version, value });
      } else if (change.type === 'rename' ? change.to === this.#name : change.type === 'clear' && !change.isExact) {
        throw UNKNOWN_CHANGES;
      } else {
        if (this.#reading > 0) this.#cleared = version;
        for (const key of new Set([...this.#present.keys(), ...writes.keys()])) {
          if (isNewer(key) && (change.type !== 'clear' || isIn(key, change.range))) writes.set(key, undefined);
        }
      }
    }
    for (const [key, value] of writes) if (value === undefined && !this.#present.has(key)) writes.delete(key);
    void this.#write(writes);
    this.#settle(version);
  }

  /** Whether the collection has to have a row that a commit has written. */
  #isWanted(key: RowKey, value: Row, version: number): boolean {
    if (this.#options.isEager || this.#own.has(key)) return true;
    // What a subset has read from a later state does not change by an earlier commit.
    for (const subset of this.#subsets) if (version > subset.version && subset.fits(value)) return true;
    return this.#present.has(key) && this.#isInSubset(value);
  }

  #isInSubset(value: Row): boolean {
    for (const { fits } of this.#subsets) if (fits(value)) return true;
    return false;
  }

  /** Writes to the collection in one transaction of its own; resolves when that can be seen. */
  #write(writes: Writes): true | Promise<void> {
    if (writes.size === 0 || this.#isStopped) return true;
    const { begin, write, commit } = this.#sync;
    begin();
    for (const [key, row] of writes) {
      const isPresent = this.#present.has(key);
      if (row === undefined) {
        this.#present.delete(key);
        if (isPresent) write({ type: 'delete', key });
      } else {
        this.#present.set(key, row);
        write({ type: isPresent ? 'update' : 'insert', value: row.value });
      }
    }
    return commit();
  }

  #load(subset: Subset): void {
    const loading = this.#read(subset).then(
      () => {
        if (subset.loading === loading) subset.loading = undefined;
      },
      (error: unknown) => {
        if (subset.loading === loading) subset.loading = undefined;
        // The next request tries again.
        this.#subsets.remove(subset);
        throw error;
      },
    );
    subset.loading = loading;
  }

  async #read(subset: Subset): Promise<void> {
    await this.#watching;
    const rows = await this.#rows;
    if (this.#failure !== undefined) throw this.#failure.error;
    let visible: true | Promise<void> = true;
    await this.#reads(rows, [subset], (state) => {
      visible = this.#install(state.rows);
      subset.version = state.version;
    });
    await visible;
  }

  /** Reads subsets while changes are noted, and again if a range was cleared meanwhile. */
  async #reads(rows: Rows, subsets: readonly Subset[], use: (state: State) => void | Promise<void>): Promise<void> {
    this.#reading++;
    try {
      for (;;) {
        const state = await untilWhole(() => this.#readState(rows, subsets));
        if (this.#isStopped) return;
        if (state.version < this.#cleared) continue;
        await use(state);
        return;
      }
    } finally {
      if (--this.#reading === 0) {
        this.#changed.clear();
        this.#cleared = 0;
      }
    }
  }

  /** Reads subsets from one state. */
  async #readState(rows: Rows, subsets: readonly Subset[]): Promise<State> {
    const snapshot = rows.database.snapshot();
    try {
      const source = {
        rows: snapshot.collection(rows.collection),
        indexes: rows.indexes,
        keyPath: this.#options.keyPath,
      };
      const version = await snapshot.version;
      const read = await Promise.all(subsets.map(({ options }) => readSubset(source, options)));
      return { version, rows: read.flat() };
    } finally {
      await snapshot.close();
    }
  }

  /** Adds rows that were read, but for those that have changed since. */
  #install(read: readonly Read[]): true | Promise<void> {
    const writes: Writes = new Map();
    for (const { key, value, version } of read) {
      const row = key as RowKey;
      if ((this.#changed.get(row) ?? 0) > version || (this.#present.get(row)?.version ?? 0) >= version) continue;
      writes.set(row, { version, value });
    }
    return this.#write(writes);
  }

  /** After lost commits: reads all subsets again, and the rows that belong to none. */
  #reload(rows: Rows): Promise<void> {
    const subsets = [...this.#subsets];
    return this.#reads(rows, subsets, async (state) => {
      const found = new Map<RowKey, Present>(state.rows.map((row) => [row.key as RowKey, row]));
      const others = [...this.#present.keys()].filter((key) => !found.has(key));
      const entries = await Promise.all(others.map((key) => rows.collection.getEntry(key)));
      for (const entry of entries) {
        if (entry === undefined) continue;
        const key = entry.key as RowKey;
        if (this.#own.has(key) || this.#isInSubset(entry.value)) found.set(key, entry);
      }
      const writes: Writes = new Map();
      const versionOf = (key: RowKey): number => this.#present.get(key)?.version ?? 0;
      for (const key of others) if (!found.has(key) && versionOf(key) <= state.version) writes.set(key, undefined);
      for (const [key, { value, version }] of found) if (versionOf(key) < version) writes.set(key, { version, value });
      void this.#write(writes);
      for (const subset of subsets) subset.version = Math.max(subset.version, state.version);
      this.#settle(state.version);
    });
  }

  /** Drops a subset, and the rows that only it needs. */
  #forget(subset: Subset): void {
    if (subset.users > 0 || this.#isStopped) return;
    if (subset.loading !== undefined) {
      const again = (): void => this.#forget(subset);
      subset.loading.then(again, again);
      return;
    }
    this.#subsets.remove(subset);
    const writes: Writes = new Map();
    for (const [key, { value }] of this.#present) {
      if (subset.fits(value) && !this.#own.has(key) && !this.#isInSubset(value)) writes.set(key, undefined);
    }
    void this.#write(writes);
  }
}
