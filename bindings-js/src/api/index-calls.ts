// Requests that read an index, for the asynchronous and the synchronous API.
import { encodeBound, keyCodecs } from '../codec/keys.ts';
import type { Bound, Key } from '../codec/keys.ts';
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import type { IndexEntry, IndexEntryWithMeta, IndexRange, SyncIndexRange } from '../types/indexes.ts';
import type { WithMeta } from '../types/range.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import { decodeKey, decodeValue, keyPart } from '../wire/codecs.ts';
import { Op } from '../wire/opcodes.ts';
import type { ByteRange, ReplyReader, RequestWriter } from '../wire/protocol.ts';
import type { Target, View } from '../wire/target.ts';
import { checkOpen, readMeta } from './calls.ts';
import type { Call } from './calls.ts';
import type { Indexes } from './indexes.ts';
import { META, RANGE, READ } from './names.ts';
import { compareBytes, toWindow } from './range.ts';
import type { Window } from './range.ts';

export const SYNC_INDEX_READ: Names<SyncIndexRange> = { ...RANGE, eq: 2 };
export const INDEX_READ: Names<IndexRange> = { ...READ, eq: 2 };
export const INDEX_ENTRIES: Names<IndexRange & WithMeta> = { ...INDEX_READ, ...META };
const BOUND_NAMES = ['gt', 'gte', 'lt', 'lte', 'prefix'] as const;

/** The kinds of item that a scan of an index returns. */
export interface IndexItems<K, V> {
  readonly entry: IndexEntry<K, V>;
  readonly meta: IndexEntryWithMeta<K, V>;
  readonly key: K;
  readonly value: V;
}

/** Counts and positions in an index of one view of a collection. */
export class IndexCalls<K, V> {
  readonly name: string;
  readonly target: Target<K, V>;
  readonly view: View;
  readonly indexes: Indexes<K, V>;
  /** Collection and codec of the index keys, for ranges and their errors. */
  readonly keys: { readonly name: string; readonly key: typeof keyCodecs.any };
  readonly #place: number;

  constructor(target: Target<K, V>, view: View, name: string) {
    const { indexes } = target;
    if (indexes === undefined) throw new KvError('KV_INVALID_ARGUMENT', 'the collection was opened without indexes');
    this.name = name;
    this.target = target;
    this.view = view;
    this.indexes = indexes;
    this.#place = indexes.place(name);
    this.keys = { name: target.name, key: keyCodecs.any };
  }

  window<T>(call: string, options: IndexRange | undefined, names: Names<T>): Window {
    checkOpen(this.view);
    if (options?.eq === undefined) return toWindow(this.keys, call, options, names);
    if (BOUND_NAMES.some((name) => options[name] !== undefined)) throw new KvError('KV_INVALID_ARGUMENT', `${call}: eq is a whole range; leave out the other bounds`);
    const { eq, ...rest } = options;
    return toWindow(this.keys, call, { ...rest, gte: eq, lte: eq }, names);
  }

  /** What `at` reads; throws unless `index` is a whole number. */
  atWindow<T>(call: string, index: number, options: IndexRange | undefined, names: Names<T>): Window {
    if (!Number.isSafeInteger(index)) throw new KvError('KV_INVALID_ARGUMENT', 'index has to be a whole number');
    return this.window(call, options, names);
  }

  /** What `rank` counts. */
  rankWindow<T>(indexKey: Key, options: IndexRange | undefined, names: Names<T>): Window {
    const { range } = this.window('rank', options, names);
    const bytes = keyPart(this.keys, () => encodeBound(this.keys.key, indexKey as Bound<Key>));
    return { range: before(range, bytes), reverse: false, offset: 0, limit: Infinity };
  }

  /** Writes view, collection and index. */
  source(writer: RequestWriter, view = this.view.id): RequestWriter {
    return writer.uv(view).uv(this.target.index).uv(this.#place);
  }

  count({ range, offset, limit }: Window, view?: number): Call<number> {
    return {
      write: (writer) => this.source(writer.u8(Op.indexCount), view).range(range),
      read: (reader) => Math.min(Math.max(reader.uv() - offset, 0), limit),
    };
  }

  /** The item at a position of a window; `undefined` if it is outside of that. */
  at({ range, reverse, offset, limit }: Window, index: number, view?: number): Call<IndexEntry<K, V> | undefined> | undefined {
    const position = offset + index;
    return index < 0 || index >= limit || !Number.isSafeInteger(position) ? undefined : this.find(range, reverse, position, view);
  }

  find(range: ByteRange, fromEnd: boolean, position: number, view?: number): Call<IndexEntry<K, V> | undefined> {
    return {
      write: (writer) => this.source(writer.u8(Op.indexAt), view).range(range).u8(fromEnd ? 1 : 0).uv(position),
      read: (reader) => (reader.u8() === 0 ? undefined : this.decoders.entry(reader)),
    };
  }

  #entry(indexKey: Uint8Array, key: Uint8Array, value: Uint8Array): IndexEntry<K, V> {
    const { target } = this;
    return { indexKey: decodeKey(keyCodecs.any, indexKey), key: decodeKey(target.key, key), value: decodeValue(target.value, value) };
  }

  /** All fields of an item are read before any is decoded. */
  readonly decoders: { readonly [N in keyof IndexItems<K, V>]: DecodeItem<IndexItems<K, V>[N]> } = {
    entry: (reader) => this.#entry(reader.bytes(), reader.bytes(), reader.bytes()),
    meta: (reader) => {
      const parts = [reader.bytes(), reader.bytes(), reader.bytes()] as const;
      const known = readMeta(reader);
      return { ...this.#entry(...parts), ...known };
    },
    key: (reader) => decodeKey(this.target.key, second(reader)),
    value: (reader) => {
      second(reader);
      return decodeValue(this.target.value, reader.bytes());
    },
  };
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
