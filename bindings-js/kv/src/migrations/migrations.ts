/**
 * Upgrades of a database in steps, for `open(name, { version, upgrade: migrations({ … }) })`. Large
 * collections change in slices between which an upgrade can be interrupted: the next `open`
 * continues it.
 *
 * @module mangrove-kv/migrations
 */
import { keyCodecs } from '../codec/keys.ts';
import type { KeyCodec } from '../codec/keys.ts';
import { KvError } from '../base/errors.ts';
import { checkSignal } from '../base/async.ts';
import { performance } from '../base/platform.ts';
import { DELETE, KEEP } from '../types/collection.ts';
import type { CollectionOptions, Entry, SetOptions, Writer } from '../types/collection.ts';
import type { KvIterator } from '../types/range.ts';
import type { Transaction } from '../types/transaction.ts';
import { STEP_DONE } from '../types/versions.ts';
import type { MigrationStep, Migrations, StepRun } from '../types/versions.ts';

export { DELETE, KEEP } from '../types/collection.ts';
export type { MigrationStep, Migrations, StepRun } from '../types/versions.ts';

/** A slice ends after this many entries, or after this time. */
const SLICE_ENTRIES = 1000;
const SLICE_MS = 50;

const MAX_VERSION = 0xffff_ffff;

/**
 * The steps of an upgrade, by the version to which they lead. A database at version 1 that is
 * opened with version 3 runs those of 2 and then those of 3, each in the order of its list.
 *
 * Steps that users may have run must not change any more: an interrupted upgrade continues at a
 * step by its version and position.
 *
 * @throws KvError KV_INVALID_ARGUMENT if a version is not a whole number from 1 on, or its steps are
 * not an array of steps.
 */
export function migrations(steps: { readonly [version: number]: readonly MigrationStep[] }): Migrations {
  const list = Object.entries(steps ?? {}).map(([text, each]) => {
    const version = Number(text);
    if (!Number.isInteger(version) || version < 1 || version > MAX_VERSION) {
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `migrations: ${JSON.stringify(text)} is not a version, a whole number from 1 to ${MAX_VERSION}`,
      );
    }
    if (!Array.isArray(each) || each.some((step) => typeof step?.apply !== 'function')) {
      throw new KvError('KV_INVALID_ARGUMENT', `migrations: version ${version} has to have an array of steps`);
    }
    return [version, each] as const;
  });
  return { steps: new Map(list) };
}

function checkText(call: string, ...names: unknown[]): void {
  for (const name of names) {
    if (typeof name !== 'string' || name === '')
      throw new KvError('KV_INVALID_ARGUMENT', `${call} needs the name of a collection`);
  }
}

function checkCall(call: string, fn: unknown): void {
  if (typeof fn !== 'function') throw new KvError('KV_INVALID_ARGUMENT', `${call} needs a function`);
}

/** A step that is one commit. */
function once(name: string, work: (tx: Transaction) => Promise<unknown>): MigrationStep {
  return {
    name,
    apply: (run) =>
      run.slice(async (tx) => {
        await work(tx);
        return STEP_DONE;
      }),
  };
}

/** Renames a collection, if it exists. O(1). */
export function renameCollection(from: string, to: string): MigrationStep {
  checkText('renameCollection', from, to);
  return once(`renameCollection ${JSON.stringify(from)}`, (tx) => tx.renameCollection(from, to));
}

/** Drops a collection, if it exists. */
export function dropCollection(name: string): MigrationStep {
  checkText('dropCollection', name);
  return once(`dropCollection ${JSON.stringify(name)}`, (tx) => tx.dropCollection(name));
}

/** Drops an index of a collection, if it exists. */
export function dropIndex(collection: string, index: string): MigrationStep {
  checkText('dropIndex', collection, index);
  return {
    name: `dropIndex ${JSON.stringify(index)} of ${JSON.stringify(collection)}`,
    apply: (run) => run.db.collection(collection).dropIndex(index),
  };
}

/** Builds the indexes that `options` declares, or builds newer versions of them anew. */
export function buildIndexes<K, V>(collection: string, options: CollectionOptions<K, V>): MigrationStep {
  checkText('buildIndexes', collection);
  return {
    name: `buildIndexes of ${JSON.stringify(collection)}`,
    apply: (run) =>
      run.db.collection<K, V>(collection, options).buildIndexes({
        onProgress: ({ done, total }) => run.progress(done, total),
        ...(run.signal && { signal: run.signal }),
      }),
  };
}

/** Runs `work` in one transaction. */
export function run(work: (tx: Transaction) => unknown): MigrationStep {
  checkCall('run', work);
  return once('run', async (tx) => work(tx));
}

/** Returns entries until the slice is full, and whether that was all. */
async function take<K, V>(entries: KvIterator<Entry<K, V>, K>): Promise<{ list: Entry<K, V>[]; isAll: boolean }> {
  const list: Entry<K, V>[] = [];
  const end = performance.now() + SLICE_MS;
  for await (const entry of entries) {
    list.push(entry);
    if (list.length === SLICE_ENTRIES || performance.now() > end) return { list, isAll: false };
  }
  return { list, isAll: true };
}

/** A collection's own `expireIn` does not apply: the entries are not new. */
function keepExpiry(expiresAt: number | undefined): SetOptions {
  return expiresAt === undefined ? { expireIn: Infinity } : { expireAt: expiresAt };
}

/**
 * Writes of a slice, in order, as few calls as that permits: a unique key may only be free after the
 * deletes and sets in front of it.
 */
class SliceWriter<K, V> {
  readonly #entries: Writer<K, V>;
  readonly #areBlobs: boolean;
  #sets: (readonly [K, V])[] = [];
  #deletes: K[] = [];

  constructor(entries: Writer<K, V>, options: CollectionOptions<K, V> | undefined) {
    this.#entries = entries;
    this.#areBlobs = options?.value?.isBlob === true;
  }

  async delete(key: K): Promise<void> {
    if (this.#sets.length > 0) await this.flush();
    this.#deletes.push(key);
  }

  async set(key: K, value: V, expiresAt: number | undefined): Promise<void> {
    // Long Blobs are written in parts.
    const isMany = expiresAt === undefined && !this.#areBlobs;
    if (this.#deletes.length > 0 || !isMany) await this.flush();
    if (isMany) this.#sets.push([key, value]);
    else await this.#entries.set(key, value, keepExpiry(expiresAt));
  }

  async flush(): Promise<void> {
    const [sets, deletes] = [this.#sets.splice(0), this.#deletes.splice(0)];
    if (sets.length > 0) await this.#entries.setMany(sets, keepExpiry(undefined));
    if (deletes.length > 0) await this.#entries.deleteMany(deletes);
  }
}

/** What a slice of entries left behind: the last key, encoded, and the number of entries so far. */
interface EntryCursor {
  readonly after: Uint8Array | undefined;
  readonly done: number;
}

/**
 * Calls `fn` for each entry of a collection in the order of its keys, in slices, and stores what it
 * returns: a new value, `DELETE` to remove the entry, or `KEEP` to leave it as it is. Entries keep
 * their expiry. Each entry is updated once, however often the upgrade is interrupted, unless `fn`
 * throws; but `fn` may be called again for entries of a slice that was not committed, so it should
 * have no other effect.
 *
 * `options` are those with which the collection is opened from now on: codecs, which have to decode
 * the old values too, and all of its indexes, if it has any.
 */
export function updateEntries<K, V, W = V>(
  collection: string,
  fn: (value: V, key: K) => W | typeof DELETE | typeof KEEP | Promise<W | typeof DELETE | typeof KEEP>,
  options: CollectionOptions<K, W> = {},
): MigrationStep {
  checkText('updateEntries', collection);
  checkCall('updateEntries', fn);
  const codec = (options.key ?? keyCodecs.any) as KeyCodec<K>;
  return {
    name: `updateEntries of ${JSON.stringify(collection)}`,
    async apply(run) {
      const handle = run.db.collection<K, W>(collection, options);
      const total = await handle.size;
      let { after, done } = (run.cursor ?? { after: undefined, done: 0 }) as EntryCursor;
      for (let isAll = false; !isAll; ) {
        checkSignal(run.signal);
        run.progress(done, total);
        const next = await run.slice(async (tx) => {
          const entries = tx.collection<K, W, W>(handle);
          const slice = await take(entries.entries({ ...(after && { gt: codec.decode(after) }), meta: true }));
          const writer = new SliceWriter(entries, options);
          for (const { key, value, expiresAt } of slice.list) {
            const changed = await fn(value as unknown as V, key);
            if (changed === KEEP) continue;
            if (changed === DELETE) await writer.delete(key);
            else await writer.set(key, changed, expiresAt);
          }
          await writer.flush();
          isAll = slice.isAll;
          const last = slice.list.at(-1);
          // A copy: codecs may return a part of a buffer that they use again.
          return isAll
            ? STEP_DONE
            : ({ after: last && codec.encode(last.key).slice(), done: done + slice.list.length } satisfies EntryCursor);
        });
        if (next !== STEP_DONE) ({ after, done } = next as EntryCursor);
      }
    },
  };
}

/** Codecs and indexes of the two collections of `moveEntries`. */
export interface MoveOptions<K, V, K2, V2> {
  readonly from?: CollectionOptions<K, V>;
  readonly to?: CollectionOptions<K2, V2>;
}

/**
 * Moves the entries of a collection to another one, in slices, as what `fn` returns: a new key and
 * value, or `DELETE` to leave the entry out. This changes keys and codecs, which `updateEntries`
 * cannot. Entries keep their expiry. The old collection is dropped at the end; a `renameCollection`
 * after it can give the new one the old name.
 */
export function moveEntries<K, V, K2 = K, V2 = V>(
  from: string,
  to: string,
  fn: (value: V, key: K) => readonly [K2, V2] | typeof DELETE | Promise<readonly [K2, V2] | typeof DELETE>,
  options: MoveOptions<K, V, K2, V2> = {},
): MigrationStep {
  checkText('moveEntries', from, to);
  checkCall('moveEntries', fn);
  if (from === to)
    throw new KvError('KV_INVALID_ARGUMENT', 'moveEntries needs two collections; updateEntries changes one');
  return {
    name: `moveEntries of ${JSON.stringify(from)}`,
    async apply(run: StepRun) {
      const [source, target] = [run.db.collection<K, V>(from, options.from), run.db.collection<K2, V2>(to, options.to)];
      const left = await source.size;
      let { done } = (run.cursor ?? { done: 0 }) as EntryCursor;
      const total = done + left;
      for (let isAll = false; !isAll; ) {
        checkSignal(run.signal);
        run.progress(done, total);
        const next = await run.slice(async (tx) => {
          const [old, moved] = [tx.collection<K, V, V>(source), tx.collection<K2, V2, V2>(target)];
          const slice = await take(old.entries({ meta: true }));
          const writer = new SliceWriter(moved, options.to);
          for (const { key, value, expiresAt } of slice.list) {
            const entry = await fn(value, key);
            if (entry !== DELETE) await writer.set(entry[0], entry[1], expiresAt);
          }
          await writer.flush();
          await old.deleteMany(slice.list.map(({ key }) => key));
          isAll = slice.isAll;
          if (isAll) await tx.dropCollection(from);
          return isAll ? STEP_DONE : ({ after: undefined, done: done + slice.list.length } satisfies EntryCursor);
        });
        if (next !== STEP_DONE) ({ done } = next as EntryCursor);
      }
    },
  };
}
