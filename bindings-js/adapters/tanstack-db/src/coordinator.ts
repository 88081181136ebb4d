// Tells collections what has been committed, here and in other tabs. Nobody leads: every tab reads
// and writes the shared database, whose commits have one order.
import type { Change, Commit, KvError } from 'mangrove-kv';
import { safeRandomUUID } from '@tanstack/db';
import type {
  ApplyLocalMutationsResponse,
  PersistedCollectionCoordinator,
  PersistedMutationEnvelope,
  ProtocolEnvelope,
  TxCommitted,
} from '@tanstack/db-sqlite-persistence-core';
import type { Row } from './expressions.ts';
import type { MangrovePersistenceAdapter } from './adapter.ts';
import type { Layout, Position } from './layout.ts';

type RowKey = string | number;
type Listener = (message: ProtocolEnvelope<unknown>) => void;

/** What one commit changed in one collection. */
interface Changed {
  /** Rows by their keys; `undefined` for those that are gone. */
  readonly rows: Map<RowKey, Row | undefined>;
  readonly rowMetadata: Map<RowKey, unknown>;
  readonly metadata: Map<string, unknown>;
  rowVersion: number;
  /** Set if a range was cleared. */
  isUnknown: boolean;
}

const mutationsOf = <K>(
  changes: ReadonlyMap<K, unknown>,
): ({ type: 'set'; key: K; value: unknown } | { type: 'delete'; key: K })[] =>
  [...changes].map(([key, value]) => (value === undefined ? { type: 'delete', key } : { type: 'set', key, value }));

/** The listeners of a collection. */
interface Followed {
  readonly listeners: Set<Listener>;
  /** Keys that others have changed. Own changes of them are repeated, after theirs. */
  readonly contested: Set<RowKey>;
}

export class MangroveCoordinator implements PersistedCollectionCoordinator {
  readonly #nodeId = safeRandomUUID();
  readonly #layout: Promise<Layout>;
  /** The adapter for the transactions of collections without a source. */
  readonly #adapterOf: (id: string) => MangrovePersistenceAdapter;
  readonly #followed = new Map<string, Followed>();
  #stop: AbortController | undefined;
  #following: Promise<void> = Promise.resolve();
  /**
   * The newest term that any collection here knows. Each message has a later one, so that TanStack DB
   * takes none for old, and none for one after a gap. A collection counts from term 1 on by itself.
   */
  #term = 1;
  /** Commits of this handle that are being made, and the numbers of those that were. */
  readonly #committing = new Set<Promise<unknown>>();
  readonly #own = new Set<number>();

  constructor(layout: Promise<Layout>, adapterOf: (id: string) => MangrovePersistenceAdapter) {
    this.#layout = layout;
    this.#adapterOf = adapterOf;
  }

  getNodeId(): string {
    return this.#nodeId;
  }

  isLeader(): boolean {
    return true;
  }

  async ensureLeadership(): Promise<void> {}

  /** The commit itself tells everybody. */
  publish(): void {}

  /** The adapter has ensured it for everybody. */
  async requestEnsurePersistedIndex(): Promise<void> {}

  async requestApplyLocalMutations(
    id: string,
    mutations: PersistedMutationEnvelope[],
  ): Promise<ApplyLocalMutationsResponse> {
    const position = await this.#adapterOf(id).apply(id, ({ term, seq, rowVersion }) => ({
      txId: safeRandomUUID(),
      term: Math.max(term, 1),
      seq: seq + 1,
      rowVersion: rowVersion + 1,
      mutations: mutations.map(({ type, key, value }) => ({ type, key, value })),
    }));
    this.observe(position);
    return {
      type: 'rpc:applyLocalMutations:res',
      rpcId: safeRandomUUID(),
      ok: true,
      term: position.term,
      seq: position.seq,
      latestRowVersion: position.rowVersion,
      acceptedMutationIds: mutations.map(({ mutationId }) => mutationId),
    };
  }

  subscribe(id: string, listener: Listener): () => void {
    let followed = this.#followed.get(id);
    if (followed === undefined) this.#followed.set(id, (followed = { listeners: new Set(), contested: new Set() }));
    followed.listeners.add(listener);
    if (this.#stop === undefined) this.#start();
    return () => {
      followed.listeners.delete(listener);
      if (followed.listeners.size > 0 || this.#followed.get(id) !== followed) return;
      this.#followed.delete(id);
      if (this.#followed.size > 0) return;
      this.#stop?.abort();
      this.#stop = undefined;
    };
  }

  /** Resolves when commits are being followed, if anybody has subscribed. */
  following(): Promise<void> {
    return this.#following;
  }

  /** Notes a position that TanStack DB gets to know. */
  observe({ term }: Position): void {
    this.#term = Math.max(this.#term, term);
  }

  /** Notes a commit of this handle, from before it is made. */
  committing(commit: Promise<number | undefined>): void {
    const noted = commit.then((version) => {
      if (version !== undefined && this.#stop !== undefined) this.#own.add(version);
      this.#committing.delete(noted);
    });
    this.#committing.add(noted);
  }

  #start(): void {
    const stop = new AbortController();
    this.#stop = stop;
    this.#own.clear();
    const opened = this.#layout.then((layout) => ({
      layout,
      commits: layout.database.changes({ signal: stop.signal }),
    }));
    // Reads report why the database cannot be opened.
    this.#following = opened.then(
      () => undefined,
      () => undefined,
    );
    void opened.then(({ layout, commits }) => this.#follow(layout, commits, stop.signal)).catch(() => undefined);
  }

  async #follow(layout: Layout, first: AsyncIterable<Commit>, signal: AbortSignal): Promise<void> {
    let commits = first;
    for (;;) {
      try {
        for await (const commit of commits) {
          // Then it is known whether it is one of this handle.
          await Promise.all(this.#committing);
          if (signal.aborted) return;
          this.#tell(layout, commit);
        }
        return;
      } catch (error) {
        if (signal.aborted || (error as Partial<KvError>).code !== 'KV_TRUNCATED_FEED') throw error;
      }
      // Commits were lost: everything is read again.
      commits = layout.database.changes({ signal });
      for (const id of this.#followed.keys()) this.#send(id, { requiresFullReload: true });
    }
  }

  #tell(layout: Layout, { version, changes }: Commit): void {
    const isOwn = this.#own.delete(version);
    for (const [id, changed] of byCollection(layout, changes)) {
      const followed = this.#followed.get(id);
      if (followed === undefined) continue;
      // The collection that made the commit has it. Two of one id cannot be told apart.
      if (isOwn && followed.listeners.size === 1) {
        if (changed.isUnknown && followed.contested.size === 0) continue;
        keepOnly(changed, followed.contested);
      } else for (const key of changed.rows.keys()) followed.contested.add(key);
      if (changed.isUnknown) this.#send(id, { requiresFullReload: true }, changed.rowVersion);
      else if (changed.rows.size + changed.rowMetadata.size + changed.metadata.size > 0)
        this.#send(id, toPayload(changed), changed.rowVersion);
    }
  }

  #send(id: string, payload: Payload, latestRowVersion = 0): void {
    const message = {
      type: 'tx:committed',
      term: ++this.#term,
      seq: 1,
      txId: safeRandomUUID(),
      latestRowVersion,
      ...payload,
    } as TxCommitted;
    const envelope = { v: 1 as const, dbName: id, collectionId: id, senderId: '', ts: Date.now(), payload: message };
    for (const listener of this.#followed.get(id)?.listeners ?? []) listener(envelope);
  }
}

type Payload =
  | { readonly requiresFullReload: true }
  | Omit<Extract<TxCommitted, { requiresFullReload: false }>, 'type' | 'term' | 'seq' | 'txId' | 'latestRowVersion'>;

function toPayload({ rows, rowMetadata, metadata }: Changed): Payload {
  return {
    requiresFullReload: false,
    changedRows: [...rows].flatMap(([key, value]) => (value === undefined ? [] : [{ key, value }])),
    deletedKeys: [...rows].flatMap(([key, value]) => (value === undefined ? [key] : [])),
    rowMetadataMutations: mutationsOf(rowMetadata),
    collectionMetadataMutations: mutationsOf(metadata),
  };
}

function keepOnly({ rows, rowMetadata, metadata }: Changed, keys: ReadonlySet<RowKey>): void {
  for (const changes of [rows, rowMetadata]) for (const key of changes.keys()) if (!keys.has(key)) changes.delete(key);
  metadata.clear();
}

/** The changes of a commit by the collection of TanStack DB that they are of. */
function byCollection(layout: Layout, changes: readonly Change[]): Map<string, Changed> {
  const all = new Map<string, Changed>();
  const of = (id: string): Changed => {
    let changed = all.get(id);
    if (changed === undefined) {
      changed = { rows: new Map(), rowMetadata: new Map(), metadata: new Map(), rowVersion: 0, isUnknown: false };
      all.set(id, changed);
    }
    return changed;
  };
  for (const change of changes) {
    const value = change.type === 'set' ? change.value : undefined;
    if (change.collection === layout.state.name) {
      if (change.type !== 'set' && change.type !== 'delete') continue;
      const [id, kind, name] = change.key as [string, string, string];
      if (kind === 'metadata') of(id).metadata.set(name, value);
      if (kind === 'position' && value !== undefined) of(id).rowVersion = (value as Position).rowVersion;
      continue;
    }
    const place = layout.placeOf(change.collection);
    if (place === undefined) continue;
    const changed = of(place.id);
    if (change.type !== 'set' && change.type !== 'delete') changed.isUnknown = true;
    else if (place.kind === 'rows') changed.rows.set(change.key as RowKey, value as Row | undefined);
    else changed.rowMetadata.set(change.key as RowKey, value);
  }
  return all;
}
