// The provider: what it loads into its document, stores of it, and when.
import { KvError } from 'mangrove-kv';
import type { Database, Durability, Key } from 'mangrove-kv';
import * as Y from 'yjs';
import { Emitter, reportUncaught } from './emitter.ts';
import type { Contents, UpdateCollection, UpdateKey, UpdateLog } from './log.ts';
import { NAMES, PREFERRED_TRIM_SIZE, checkDocument, invalid, leaseOf, logOf } from './options.ts';
import type { MangrovePersistenceOptions } from './options.ts';
import type { Lease } from './places.ts';
import { UpdateQueue } from './queue.ts';
import { Rescue } from './rescue.ts';
import type { Rescued } from './rescue.ts';

const EMPTY_STATE_BYTES = 2;

/** Events of a provider, with the arguments of their listeners. */
export interface PersistenceEvents {
  /** Everything stored was applied to the document. */
  readonly synced: readonly [provider: MangrovePersistence];
  /**
   * The document could not be opened, or something could not be stored. Updates that were not
   * stored stay with the provider: it writes them with the next update, `flush()` or `destroy()`,
   * and after a retryable error also a second later. If the database is closed, create another
   * provider for the document, which stores all of it.
   */
  readonly error: readonly [error: KvError];
  readonly [name: string]: readonly unknown[];
}

/** The document's state as an update; `undefined` if there is nothing in it. */
function stateOf(doc: Y.Doc): Uint8Array | undefined {
  const state = Y.encodeStateAsUpdate(doc);
  return state.length === EMPTY_STATE_BYTES ? undefined : state;
}

function ignore(): void {}

/** Returns the promise. Its rejection is no unhandled one, as the event `error` reports it too. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(ignore);
  return promise;
}

/**
 * Keeps a Yjs document in a database: loads what is stored into it, and stores its updates, those of
 * one tick as one commit. Any number of documents share a database, and any number of tabs a
 * document: each stores its own updates, and opening a document loads all of them. Tabs do not see
 * each other's updates through the provider while they are open.
 *
 * It can take the place of y-indexeddb's `IndexeddbPersistence`, under which name it is exported
 * too. It works in browsers, Node, Deno and Bun.
 */
export class MangrovePersistence extends Emitter<PersistenceEvents> {
  /** The document. */
  readonly doc: Y.Doc;
  /** The document's name in the database. */
  readonly name: string;
  /** The database, once it is open. */
  db: Database | null = null;
  /** Whether everything stored was applied to the document. */
  synced = false;
  /**
   * Resolves to this provider when it is synced; rejects if the document cannot be opened. Stays
   * pending if the provider is destroyed before.
   */
  readonly whenSynced: Promise<this>;
  /** The database, as a promise. */
  readonly _db: Promise<Database>;
  /** Number of stored updates, as far as this provider knows. */
  _dbsize = 0;
  /** Whether `destroy` was called. */
  _destroyed = false;
  /** Milliseconds from the update that reaches `trimSize` to the compaction. Default: 1000. */
  _storeTimeout = 1000;

  readonly #options: MangrovePersistenceOptions;
  readonly #trimSize: number;
  readonly #lease: Lease;
  readonly #log: Promise<UpdateLog>;
  /** Resolves when the document is loaded, or when the provider was destroyed before. */
  readonly #opened: Promise<void>;
  readonly #queue: UpdateQueue;
  readonly #calls = new Set<Promise<unknown>>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Keeps what is not stored yet when the page is left; from the opening of the database to the end of `destroy`. */
  #rescue: Rescue | undefined;
  /** The log, once the document is loaded. */
  #loaded: UpdateLog | undefined;
  #hasWritten = false;
  /** Version of the mark under which this provider's updates are stored. */
  #mark = 0;
  /** Version of the newest entry that was read. */
  #seen = 0;
  #reported: unknown;
  #destroying: Promise<void> | undefined;

  /** Opens the document `name` and loads it into `doc`, which may have content already. */
  constructor(name: string, doc: Y.Doc, options: MangrovePersistenceOptions = {}) {
    super();
    checkDocument('MangrovePersistence', name, options, NAMES);
    if (typeof doc?.on !== 'function' || typeof doc.transact !== 'function')
      throw invalid('new MangrovePersistence needs a Y.Doc');
    this.doc = doc;
    this.name = name;
    this.#options = options;
    this.#trimSize = options.trimSize ?? PREFERRED_TRIM_SIZE;
    this.#lease = leaseOf(options);
    this._db = this.#lease.opening;
    this.#log = handled(
      this._db.then((db) => {
        this.db = db;
        const log = logOf(db, name, options);
        // Memory ends with the page, and with it what the updates build on.
        if (db.persistence !== 'memory') this.#rescue = new Rescue(log.place, log.writer, () => this.#unstored());
        return log;
      }),
    );
    this.#queue = new UpdateQueue({
      write: (updates) => this.#append(updates),
      failed: (error) => this.#report(error),
    });
    this.destroy = this.destroy.bind(this);
    doc.on('update', this._storeUpdate);
    doc.on('destroy', this.destroy);
    this.#opened = handled(this.#open());
    // A provider that was destroyed never becomes synced.
    this.whenSynced = handled(this.#opened.then(() => (this.synced ? this : new Promise<never>(ignore))));
  }

  /** Stores an update of the document, unless it comes from this provider. */
  readonly _storeUpdate = (update: Uint8Array, origin: unknown): void => {
    // Before the document is loaded its state has the update, which is stored then or by `destroy`.
    if (origin !== this && this.#loaded !== undefined) this.#queue.add(update);
  };

  /**
   * Resolves when all updates made so far are stored and survive a power cut. Rejects if some could
   * not be stored, now or before.
   */
  async flush(): Promise<void> {
    await this.#opened;
    await (this.#destroying ?? this.#flush(await this.#log));
  }

  /**
   * Stops following the document and stores what is not stored yet, which then survives a power
   * cut; also called when the document is destroyed. Rejects if something could not be stored.
   * Idempotent.
   */
  destroy(): Promise<void> {
    return (this.#destroying ??= handled(this.#destroy()));
  }

  /** Destroys this provider, and removes the document and its custom values from the database. */
  async clearData(): Promise<void> {
    // Keeps the database open in between.
    const kept = leaseOf(this.#options);
    try {
      await this.destroy();
      await logOf(await kept.opening, this.name, this.#options).clear();
    } finally {
      await kept.release();
    }
  }

  /** Returns a custom value, or `undefined`. Custom values are not part of the document. */
  get<T = unknown>(key: Key): Promise<T> {
    return this.#withCustom((custom) => custom.get([this.name, key]) as Promise<T>);
  }

  /** Stores a custom value; returns its key. `undefined` cannot be stored. */
  set<K extends Key>(key: K, value: unknown): Promise<K> {
    return this.#withCustom(async (custom) => {
      await custom.set([this.name, key], value, { durability: this.#durability });
      this.#hasWritten = true;
      return key;
    });
  }

  /** Deletes a custom value. */
  del(key: Key): Promise<undefined> {
    return this.#withCustom(async (custom) => {
      const isDeleted = await custom.delete([this.name, key], { durability: this.#durability });
      this.#hasWritten ||= isDeleted;
      return undefined;
    });
  }

  /** @internal Applies what others have stored. */
  async _fetch(
    before: (updates: UpdateCollection) => unknown,
    after: (updates: UpdateCollection) => unknown,
  ): Promise<UpdateCollection> {
    const log = await this.#usable();
    const contents = await log.read();
    if (this._destroyed) return log.updates;
    before(log.updates);
    this.#apply(log, contents);
    after(log.updates);
    return log.updates;
  }

  /** @internal Compacts the document if it has at least `limit` updates. */
  async _compact(limit: number): Promise<void> {
    const log = await this.#usable();
    for (;;) {
      const contents = await log.read();
      if (this._destroyed) return;
      this.#apply(log, contents);
      const { length } = contents.updates;
      if (length < limit) return;
      // The document has applied all of them.
      if (await log.replace(contents, Y.encodeStateAsUpdate(this.doc))) {
        this.#hasWritten = true;
        this._dbsize += 1 - length;
        return;
      }
    }
  }

  get #durability(): Durability {
    return this.#options.durability ?? 'relaxed';
  }

  async #open(): Promise<void> {
    try {
      const log = await this.#log;
      const rescued = this.#rescue?.read() ?? [];
      const contents = this._destroyed ? undefined : await log.read();
      if (contents !== undefined && !this._destroyed) this.#load(log, contents, rescued);
    } catch (error) {
      this.#report(error);
      throw error;
    }
  }

  #load(log: UpdateLog, contents: Contents, rescued: readonly Rescued[]): void {
    const before = stateOf(this.doc);
    this.#mark = contents.mark;
    // Observers may change the document while it is loaded.
    this.#loaded = log;
    try {
      this.#apply(log, contents, rescued);
    } catch (error) {
      this.#loaded = undefined;
      throw error;
    }
    if (before !== undefined && !isStored(this.doc, contents)) this.#queue.add(before);
    if (rescued.length > 0) this.#store(rescued);
    if (this._destroyed) return;
    this.synced = true;
    this.emit('synced', [this]);
    this.#compactLater();
  }

  /** Applies what this provider has neither read nor written. */
  #apply(log: UpdateLog, { updates }: Contents, rescued: readonly Rescued[] = []): void {
    this._dbsize = updates.length;
    const news = updates.filter((entry) => entry.version > this.#seen && !log.isOwn(entry));
    const seen = updates.reduce((newest, { version }) => Math.max(newest, version), this.#seen);
    let isApplied = false;
    try {
      Y.transact(
        this.doc,
        () => {
          for (const { key, value } of news) applyStored(this.doc, key, value);
          for (const { update } of rescued) Y.applyUpdate(this.doc, update);
          isApplied = true;
        },
        this,
        false,
      );
    } catch (error) {
      if (!isApplied) throw error;
      // An observer has thrown, after everything was applied.
      reportUncaught(error);
    }
    this.#seen = seen;
  }

  /** Stores what earlier pages have left. */
  #store(rescued: readonly Rescued[]): void {
    for (const { update } of rescued) this.#queue.add(update);
    this.#track(this.#queue.drain().then(() => this.#rescue?.remove(rescued))).catch(ignore);
  }

  /** What would be lost if the page ended now, as one update. */
  #unstored(): Uint8Array | undefined {
    if (this.#loaded === undefined) return stateOf(this.doc);
    const { pending } = this.#queue;
    return pending.length === 0 ? undefined : Y.mergeUpdates([...pending]);
  }

  async #append(updates: readonly Uint8Array[]): Promise<void> {
    // Once the document is loaded, updates are handed over within their tick.
    const log = this.#loaded ?? (await this.#log);
    let size = updates.length;
    if (!(await log.append(updates, this.#mark))) {
      // The document was cleared. What it is now is stored anew, as these updates build on it.
      do {
        this.#mark = (await log.read()).mark;
      } while (!(await log.append([Y.encodeStateAsUpdate(this.doc)], this.#mark)));
      size = 1;
      this._dbsize = 0;
    }
    this.#hasWritten = true;
    this._dbsize += size;
    if (this.#queue.pending.length === updates.length) this.#rescue?.stored();
    this.#compactLater();
  }

  #compactLater(): void {
    if (this._dbsize < this.#trimSize || this.#timer !== undefined || this._destroyed) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#track(this._compact(this.#trimSize)).catch((error: unknown) => this.#report(error));
    }, this._storeTimeout);
    (this.#timer as { unref?: () => void }).unref?.();
  }

  async #flush({ db }: UpdateLog): Promise<void> {
    await this.#queue.drain();
    await Promise.all(this.#calls);
    if (this.#hasWritten && this.#durability !== 'strict') await db.flush();
  }

  async #destroy(): Promise<void> {
    clearTimeout(this.#timer);
    this.#queue.stop();
    this.doc.off('update', this._storeUpdate);
    this.doc.off('destroy', this.destroy);
    this._destroyed = true;
    const unsaved = this.#loaded === undefined ? stateOf(this.doc) : undefined;
    try {
      try {
        await this.#save(unsaved);
        await this.#opened.catch(ignore);
      } finally {
        this.#rescue?.stop();
        await this.#lease.release();
      }
    } catch (error) {
      this.#report(error);
      throw error;
    }
  }

  /** Stores what is not stored yet: `state` if the document was not loaded, otherwise the queue. */
  async #save(state: Uint8Array | undefined): Promise<void> {
    if (state === undefined && this.#loaded === undefined && this.#calls.size === 0) return;
    const log = await this.#log;
    if (state !== undefined) {
      await log.add(state);
      this.#hasWritten = true;
    }
    await this.#flush(log);
  }

  /** The log of a loaded document. */
  async #usable(): Promise<UpdateLog> {
    await this.#opened;
    const log = await this.#log;
    if (this._destroyed) throw this.#closed();
    return log;
  }

  async #withCustom<T>(call: (custom: UpdateLog['custom']) => Promise<T>): Promise<T> {
    if (this._destroyed) throw this.#closed();
    return this.#track(this.#log.then(({ custom }) => call(custom)));
  }

  /** Makes `flush` and `destroy` wait for a call. */
  #track<T>(call: Promise<T>): Promise<T> {
    const done: Promise<unknown> = call.then(ignore, ignore).then(() => this.#calls.delete(done));
    this.#calls.add(done);
    return call;
  }

  #closed(): KvError {
    return new KvError('KV_CLOSED', `the provider of "${this.name}" is destroyed; create another one`);
  }

  #report(error: unknown): void {
    // The error of an opening also ends what waits for the opening.
    if (error === this.#reported) return;
    this.#reported = error;
    this.emit('error', [error as KvError]);
  }
}

function applyStored(doc: Y.Doc, key: UpdateKey, update: Uint8Array): void {
  try {
    Y.applyUpdate(doc, update);
  } catch (cause) {
    throw new KvError(
      'KV_CORRUPT',
      `an entry of document "${key[0]}", at [${key.slice(1).join(', ')}], is not an update of Yjs`,
      { cause },
    );
  }
}

/** Whether a document, to which the contents were applied, has nothing beyond them. */
function isStored(doc: Y.Doc, { updates }: Contents): boolean {
  const { pendingStructs, pendingDs } = doc.store;
  if (pendingStructs !== null || pendingDs !== null) return false;
  const stored = new Y.Doc();
  for (const { value } of updates) Y.applyUpdate(stored, value);
  const isSame = Y.equalSnapshots(Y.snapshot(stored), Y.snapshot(doc));
  stored.destroy();
  return isSame;
}
