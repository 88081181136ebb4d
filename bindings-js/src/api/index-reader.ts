// Reads a collection through one of its indexes.
import { encodeBound, keyCodecs } from '../codec/keys.ts';
import type { Bound, Key } from '../codec/keys.ts';
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import { attempt } from '../base/async.ts';
import type { CommitIterator } from '../types/feed.ts';
import type { IndexEntry, IndexEntryWithMeta, IndexRange, IndexWatchOptions, LiveIndex } from '../types/indexes.ts';
import type { KvIterator, WithMeta } from '../types/range.ts';
import { Content } from '../wire/chunk.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import { decodeKey, decodeValue, keyPart } from '../wire/codecs.ts';
import { Op, ScanFlag } from '../wire/opcodes.ts';
import type { ByteRange, ReplyReader, RequestWriter } from '../wire/protocol.ts';
import type { Target, View } from '../wire/target.ts';
import { checkOpen, readMeta } from './calls.ts';
import { CursorIterator } from './cursor.ts';
import { watch } from './feed/follow.ts';
import { checkIndexName } from './indexes.ts';
import type { Indexes } from './indexes.ts';
import { FOLLOW, META, READ } from './names.ts';
import { compareBytes, encodeSeek, toWindow } from './range.ts';
import type { Window } from './range.ts';

const INDEX_READ: Names<IndexRange> = { ...READ, eq: 2 };
const INDEX_ENTRIES: Names<IndexRange & WithMeta> = { ...INDEX_READ, ...META };
const INDEX_WATCH: Names<IndexWatchOptions> = { ...FOLLOW, eq: 2 };
const BOUND_NAMES = ['gt', 'gte', 'lt', 'lte', 'prefix'] as const;

interface Item<K, V> {
  readonly entry: IndexEntry<K, V>;
  readonly meta: IndexEntryWithMeta<K, V>;
  readonly key: K;
  readonly value: V;
}

export class KvIndex<K, V> implements LiveIndex<K, V> {
  readonly name: string;
  readonly #target: Target<K, V>;
  readonly #view: View;
  readonly #indexes: Indexes<K, V>;
  readonly #place: number;
  /** Collection and codec of the index keys, for ranges and their errors. */
  readonly #keys: { readonly name: string; readonly key: typeof keyCodecs.any };

  constructor(target: Target<K, V>, view: View, name: string) {
    const { indexes } = target;
    checkIndexName(name);
    if (indexes === undefined) throw new KvError('KV_INVALID_ARGUMENT', 'the collection was opened without indexes');
    this.name = name;
    this.#target = target;
    this.#view = view;
    this.#indexes = indexes;
    this.#place = indexes.place(name);
    this.#keys = { name: target.name, key: keyCodecs.any };
  }

  entries(options: IndexRange & WithMeta): KvIterator<IndexEntryWithMeta<K, V>, Key>;
  entries(options?: IndexRange): KvIterator<IndexEntry<K, V>, Key>;
  entries(options?: IndexRange & Partial<WithMeta>): KvIterator<IndexEntry<K, V>, Key> {
    return options?.meta
      ? this.#iterate('entries', options, INDEX_ENTRIES, Content.meta, 'meta')
      : this.#iterate('entries', options, INDEX_ENTRIES, Content.entries, 'entry');
  }

  keys(options?: IndexRange): KvIterator<K, Key> {
    return this.#iterate('keys', options, INDEX_READ, Content.keys, 'key');
  }

  values(options?: IndexRange): KvIterator<V, Key> {
    return this.#iterate('values', options, INDEX_READ, ScanFlag.values, 'value');
  }

  get(indexKey: Key): Promise<V | undefined> {
    return this.first({ eq: indexKey as Bound<Key> }).then((entry) => entry?.value);
  }

  first(options?: IndexRange): Promise<IndexEntry<K, V> | undefined> {
    return this.#at('first', 0, options);
  }

  last(options?: IndexRange): Promise<IndexEntry<K, V> | undefined> {
    return this.#at('last', -1, options);
  }

  at(index: number, options?: IndexRange): Promise<IndexEntry<K, V> | undefined> {
    return this.#at('at', index, options);
  }

  count(options?: IndexRange): Promise<number> {
    return attempt(async () => {
      const window = this.#window('count', options, INDEX_READ);
      await this.#declared();
      return this.#count(this.#view.id, window);
    }, options?.signal);
  }

  rank(indexKey: Key, options?: IndexRange): Promise<number> {
    return attempt(async () => {
      const { range } = this.#window('rank', options, INDEX_READ);
      const bytes = keyPart(this.#keys, () => encodeBound(this.#keys.key, indexKey as Bound<Key>));
      await this.#declared();
      return this.#count(this.#view.id, { range: before(range, bytes), offset: 0, limit: Infinity });
    }, options?.signal);
  }

  watch(options?: IndexWatchOptions): CommitIterator<K, V> {
    return watch(this.#target, { signal: options?.signal }, undefined, () => this.#window('watch', options, INDEX_WATCH));
  }

  [Symbol.asyncIterator](): KvIterator<IndexEntry<K, V>, Key> {
    return this.entries();
  }

  #declared(): Promise<void> | undefined {
    return this.#indexes.declare(this.#target);
  }

  #window<T>(call: string, options: IndexRange | undefined, names: Names<T>): Window {
    checkOpen(this.#view);
    if (options?.eq === undefined) return toWindow(this.#keys, call, options, names);
    if (BOUND_NAMES.some((name) => options[name] !== undefined)) throw new KvError('KV_INVALID_ARGUMENT', `${call}: eq is a whole range; leave out the other bounds`);
    const { eq, ...rest } = options;
    return toWindow(this.#keys, call, { ...rest, gte: eq, lte: eq }, names);
  }

  /** Writes view, collection and index. */
  #source(writer: RequestWriter, view: number): RequestWriter {
    return writer.uv(view).uv(this.#target.index).uv(this.#place);
  }

  #count(view: number, { range, offset, limit }: Pick<Window, 'range' | 'offset' | 'limit'>): Promise<number> {
    return this.#target.connection.requestLoading(
      (writer) => this.#source(writer.u8(Op.indexCount), view).range(range),
      (reader) => Math.min(Math.max(reader.uv() - offset, 0), limit),
    );
  }

  #at(call: string, index: number, options: IndexRange | undefined): Promise<IndexEntry<K, V> | undefined> {
    return attempt(async () => {
      if (!Number.isSafeInteger(index)) throw new KvError('KV_INVALID_ARGUMENT', 'index has to be a whole number');
      const window = this.#window(call, options, INDEX_READ);
      await this.#declared();
      const { range, reverse, offset, limit } = window;
      if (index >= 0) return this.#entryAt(this.#view.id, window, index);
      if (offset === 0 && limit === Infinity) return this.#find(this.#view.id, range, !reverse, -index - 1);
      return this.#inOneState(async (view) => this.#entryAt(view, window, await this.#count(view, window) + index));
    }, options?.signal);
  }

  async #inOneState<T>(read: (view: number) => Promise<T>): Promise<T> {
    if (this.#view.id !== 0) return read(this.#view.id);
    const { connection } = this.#target;
    const id = connection.newId();
    connection.post((writer) => writer.u8(Op.snapshotOpen).uv(id), (reader) => reader.uv());
    try {
      return await read(id);
    } finally {
      connection.post((writer) => writer.u8(Op.snapshotClose).uv(id), () => undefined);
    }
  }

  #entryAt(view: number, { range, reverse, offset, limit }: Window, index: number): Promise<IndexEntry<K, V> | undefined> {
    const position = offset + index;
    if (index < 0 || index >= limit || !Number.isSafeInteger(position)) return Promise.resolve(undefined);
    return this.#find(view, range, reverse, position);
  }

  #find(view: number, range: ByteRange, fromEnd: boolean, position: number): Promise<IndexEntry<K, V> | undefined> {
    return this.#target.connection.requestLoading(
      (writer) => this.#source(writer.u8(Op.indexAt), view).range(range).u8(fromEnd ? 1 : 0).uv(position),
      (reader) => {
        if (reader.u8() === 0) return undefined;
        return this.#entry(reader.bytes(), reader.bytes(), reader.bytes());
      },
    );
  }

  #entry(indexKey: Uint8Array, key: Uint8Array, value: Uint8Array): IndexEntry<K, V> {
    const target = this.#target;
    return { indexKey: decodeKey(keyCodecs.any, indexKey), key: decodeKey(target.key, key), value: decodeValue(target.value, value) };
  }

  /** All fields of an item are read before any is decoded. */
  readonly #decoders: { readonly [N in keyof Item<K, V>]: DecodeItem<Item<K, V>[N]> } = {
    entry: (reader) => this.#entry(reader.bytes(), reader.bytes(), reader.bytes()),
    meta: (reader) => {
      const parts = [reader.bytes(), reader.bytes(), reader.bytes()] as const;
      const known = readMeta(reader);
      return { ...this.#entry(...parts), ...known };
    },
    key: (reader) => decodeKey(this.#target.key, second(reader)),
    value: (reader) => {
      second(reader);
      return decodeValue(this.#target.value, reader.bytes());
    },
  };

  #iterate<N extends keyof Item<K, V>, T>(
    call: string, options: IndexRange | undefined, names: Names<T>, content: number, kind: N,
  ): KvIterator<Item<K, V>[N], Key> {
    return new CursorIterator<Item<K, V>[N], Key>({
      connection: this.#target.connection,
      op: Op.indexScan,
      before: this.#declared(),
      window: () => this.#window(call, options, names),
      writeSource: (writer) => this.#source(writer, this.#view.id),
      content,
      signal: options?.signal,
      decode: this.#decoders[kind],
      isFast: false,
      whenEmpty: () => Promise.resolve(),
      encodeSeek: (prefix) => encodeSeek(this.#keys, prefix),
    });
  }
}

/** Skips the index key; returns the key. */
function second(reader: ReplyReader): Uint8Array {
  reader.bytes();
  return reader.bytes();
}

/** The part of a range below a key. */
function before(range: ByteRange, key: Uint8Array): ByteRange {
  const { upper } = range;
  return upper !== undefined && compareBytes(upper, key) < 0 ? range : { ...range, upper: key, upperExclusive: true };
}
