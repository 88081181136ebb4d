// The stored updates of a document. Under the codec `tuple`, in one collection for all documents:
//
//   [document]                        the mark: the format of what follows. Clearing a document removes it, so its
//                                     version tells a writer whether what it has read and written is still there
//   [document, 0]                     the state into which earlier updates were compacted
//   [document, time, writer, number]  an update: when its writer handed it over in milliseconds since 1970, a random
//                                     number for each provider, and how many updates that provider wrote before
//
// Writers share no counter, so that appending is one message without a read before it, and tabs never conflict. Updates
// of one writer are in order; those of several need none, since Yjs applies updates in any order.
import { KvError, keyCodecs, valueCodecs } from 'mangrove-kv';
import type { Batch, Collection, Database, Durability, Entry, Key } from 'mangrove-kv';
import { untilWhole } from 'mangrove-kv/internal';
import { forgetRescued } from './rescue.ts';

/** Key of an entry in the collection of updates. */
export type UpdateKey = readonly [document: string, ...rest: readonly number[]];
/** The collection of updates, of all documents. */
export type UpdateCollection = Collection<UpdateKey, Uint8Array>;

/** What is stored of a document at one moment. */
export interface Contents {
  /** Version of the mark. */
  readonly mark: number;
  /** The compacted state, if there is one, and the updates. */
  readonly updates: readonly Entry<UpdateKey, Uint8Array>[];
}

const FORMAT = 1;

/** Where a log is, and how it is written. */
export interface LogOptions {
  readonly collection: string;
  readonly document: string;
  readonly durability: Durability;
}

export class UpdateLog {
  readonly db: Database;
  /** Names the document among those of all databases. */
  readonly place: readonly string[];
  readonly updates: UpdateCollection;
  /** Values that programs store beside a document, by document and key. */
  readonly custom: Collection<readonly [document: string, key: Key], unknown>;
  readonly #document: string;
  readonly #durability: Durability;
  /** A random number that stands for this log in the keys of its updates. */
  readonly writer: number;
  #time = 0;
  #written = 0;

  constructor(db: Database, { collection, document, durability }: LogOptions) {
    this.db = db;
    const storage = db.bucket === undefined ? db.persistence : `${db.persistence}@${db.bucket}`;
    this.place = [storage, db.path, collection, document];
    this.updates = db.collection(collection, { key: keyCodecs.tuple<UpdateKey>(), value: valueCodecs.bytes });
    this.custom = db.collection(`${collection}/custom`, { key: keyCodecs.tuple<readonly [string, Key]>() });
    this.#document = document;
    this.#durability = durability;
    const [high, low] = crypto.getRandomValues(new Uint32Array(2)) as unknown as [number, number];
    this.writer = (high >>> 11) * 2 ** 32 + low;
  }

  /** Whether this log has written the entry. */
  isOwn({ key }: Entry<UpdateKey, Uint8Array>): boolean {
    return key[2] === this.writer;
  }

  /** Reads everything, and marks the document if it is not. */
  async read(): Promise<Contents> {
    for (;;) {
      const [mark, ...updates] = await this.#entries();
      if (mark?.key.length === 1) {
        if (mark.value[0] === FORMAT) return { mark: mark.version, updates };
        throw new KvError(
          'KV_VERSION_UNSUPPORTED',
          `document "${this.#document}" was written by a newer version of mangrove-kv/yjs; update the package`,
        );
      }
      const key: UpdateKey = [this.#document];
      await this.#batch().check(key, null).set(key, Uint8Array.of(FORMAT)).tryCommit({ durability: this.#durability });
    }
  }

  /** Adds updates as one commit, unless the document was cleared since it had this mark. */
  async append(updates: readonly Uint8Array[], mark: number): Promise<boolean> {
    const batch = this.#batch().check([this.#document], mark);
    for (const update of updates) batch.set(this.#nextKey(), update);
    return this.#commit(batch);
  }

  /** Adds an update whatever is stored. */
  async add(update: Uint8Array): Promise<void> {
    await this.updates.set(this.#nextKey(), update, { durability: this.#durability });
  }

  /**
   * Puts a state in the place of the updates that it contains, in one commit. Updates that others
   * wrote meanwhile stay. Nothing happens if one of the updates is no longer there as it was read,
   * because another tab has compacted or cleared the document.
   */
  async replace({ mark, updates }: Contents, state: Uint8Array): Promise<boolean> {
    const stateKey: UpdateKey = [this.#document, 0];
    const batch = this.#batch().check([this.#document], mark);
    if (updates[0]?.key.length !== stateKey.length) batch.check(stateKey, null);
    for (const { key, version } of updates) batch.check(key, version).delete(key);
    return this.#commit(batch.set(stateKey, state));
  }

  /** Removes the document with its custom values. */
  async clear(): Promise<void> {
    await this.db.transaction(
      async (tx) => {
        await tx.collection(this.updates).clear({ prefix: [this.#document] });
        await tx.collection(this.custom).clear({ prefix: [this.#document] });
      },
      { durability: this.#durability },
    );
    forgetRescued(this.place);
  }

  #entries(): Promise<Entry<UpdateKey, Uint8Array>[]> {
    return untilWhole(() => this.updates.entries({ prefix: [this.#document], meta: true }).toArray());
  }

  #batch(): Batch<UpdateKey, Uint8Array> {
    return this.db.batch().collection(this.updates);
  }

  async #commit(batch: Batch<UpdateKey, Uint8Array>): Promise<boolean> {
    const result = await batch.tryCommit({ durability: this.#durability });
    if (result.ok || result.reason === 'conflict') return result.ok;
    throw result.error;
  }

  #nextKey(): UpdateKey {
    // A clock that was set back does not change the order of this writer's updates.
    this.#time = Math.max(this.#time, Date.now());
    return [this.#document, this.#time, this.writer, this.#written++];
  }
}
