// Reads and writes of one collection, in the database or in a transaction.
import { KvError } from '../errors.ts';
import { DELETE, KEEP } from '../types.ts';
import type { Commit, CommitIterator, Subscription, WatchOptions } from '../feed-types.ts';
import type { Bounds, Collection, SetOptions, Updated, WriteOptions, Writer } from '../types.ts';
import { attempt, checkFunction } from './async.ts';
import { ChangeList } from './changes.ts';
import { decodeValue, encodeKey, encodeValue } from './codecs.ts';
import { toExpiry } from './expiry.ts';
import { subscribe, watch } from './feed/follow.ts';
import { Op } from './protocol.ts';
import { refuseWindow, toWindow } from './range.ts';
import { CollectionReader, NEWEST } from './reader.ts';
import type { Target, View } from './reader.ts';
import type { WriteScope } from './scope.ts';

/** Reads and writes where `scope` says. */
export class CollectionWriter<K, V> extends CollectionReader<K, V> implements Writer<K, V> {
  readonly #scope: WriteScope;

  constructor(target: Target<K, V>, view: View, scope: WriteScope) {
    super(target, view);
    this.#scope = scope;
  }

  set(key: K, value: V, options?: SetOptions): Promise<void> {
    return attempt(() => {
      const expiresAt = toExpiry(options, this.target.expireIn);
      if (expiresAt !== 0) {
        const changes = new ChangeList();
        changes.set(this.target, key, value, expiresAt);
        return this.writeBatch(changes, options).then(() => undefined);
      }
      const keyBytes = encodeKey(this.target.key, key);
      const valueBytes = encodeValue(this.target.value, value);
      return this.#scope.write(Op.set, options, (writer) => {
        writer.uv(this.target.index).bytes(keyBytes).bytes(valueBytes);
      }, () => undefined);
    });
  }

  setMany(entries: Iterable<readonly [K, V]>, options?: SetOptions): Promise<void> {
    return attempt(() => {
      const expiresAt = toExpiry(options, this.target.expireIn);
      const changes = new ChangeList();
      for (const [key, value] of entries) changes.set(this.target, key, value, expiresAt);
      return this.writeBatch(changes, options).then(() => undefined);
    });
  }

  delete(key: K, options?: WriteOptions): Promise<boolean> {
    return attempt(() => {
      const keyBytes = encodeKey(this.target.key, key);
      return this.#scope.write(Op.delete, options, (writer) => {
        writer.uv(this.target.index).bytes(keyBytes);
      }, (reader) => reader.u8() !== 0);
    });
  }

  deleteMany(keys: Iterable<K>, options?: WriteOptions): Promise<number> {
    return attempt(() => {
      const changes = new ChangeList();
      for (const key of keys) changes.delete(this.target, key);
      return this.writeBatch(changes, options).then(({ existed }) => existed);
    });
  }

  clear(range?: Bounds<K>, options?: WriteOptions): Promise<void> {
    return attempt(() => {
      refuseWindow(range);
      const window = toWindow(this.target.key, range);
      return this.#scope.write(Op.clear, options, (writer) => {
        writer.uv(this.target.index).range(window.range);
      }, (reader) => {
        reader.uv();
      });
    });
  }

  getOrInsert(key: K, value: V, options?: SetOptions): Promise<V> {
    return attempt(() => {
      const expiresAt = toExpiry(options, this.target.expireIn);
      const keyBytes = encodeKey(this.target.key, key);
      const valueBytes = encodeValue(this.target.value, value);
      return this.#scope.write(Op.getOrInsert, options, (writer) => {
        writer.uv(this.target.index).bytes(keyBytes).bytes(valueBytes).uv(expiresAt);
        // A value that is inserted comes out as a copy, like one that is found.
      }, (reader) => decodeValue(this.target.value, reader.optional() ?? valueBytes));
    });
  }

  async getOrInsertComputed(key: K, compute: (key: K) => V | Promise<V>, options?: SetOptions): Promise<V> {
    checkFunction(compute);
    const found = await this.get(key);
    return found === undefined ? this.getOrInsert(key, await compute(key), options) : found;
  }

  async update(
    key: K,
    fn: (old: V | undefined, key: K) => Updated<V> | Promise<Updated<V>>,
    options?: SetOptions,
  ): Promise<V | undefined> {
    checkFunction(fn);
    for (;;) {
      const entry = await this.getEntry(key);
      const next = await fn(entry?.value, key);
      if (next === KEEP) return entry?.value;
      const changes = new ChangeList();
      this.guard(changes, key, entry?.version ?? null);
      if (next === DELETE) changes.delete(this.target, key);
      else changes.set(this.target, key, next as V, toExpiry(options, this.target.expireIn));
      try {
        await this.writeBatch(changes, options);
        return next === DELETE ? undefined : next as V;
      } catch (error) {
        if (!(error instanceof KvError && error.code === 'KV_CONFLICT')) throw error;
      }
    }
  }

  /** Makes a change depend on the version that it was made from. */
  protected guard(changes: ChangeList, key: K, version: number | null): void {
    changes.check(this.target, key, version);
  }

  protected writeBatch(
    changes: ChangeList,
    options: WriteOptions | undefined,
  ): Promise<{ version: number; existed: number }> {
    return this.#scope.write(Op.batch, options, (writer) => {
      writer.uv(changes.length).raw(changes.bytes);
    }, (reader, version) => ({ version, existed: reader.uv() }));
  }
}

/** A collection of the database. */
export class KvCollection<K, V> extends CollectionWriter<K, V> implements Collection<K, V> {
  constructor(target: Target<K, V>, scope: WriteScope) {
    super(target, NEWEST, scope);
  }

  get name(): string {
    return this.target.name;
  }

  watch(options?: WatchOptions<K>): CommitIterator<K, V> {
    return watch(this.target, options);
  }

  subscribe(range: Bounds<K>, listener: (commit: Commit<K, V>) => void): Subscription {
    return subscribe(this.target, range, listener);
  }
}
