// The verbs that read an index, each described once for all faces.
import { encodeBound, keyCodecs } from '../codec/keys.ts';
import type { Bound, Key } from '../codec/keys.ts';
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import type { IndexEntry, IndexEntryWithMeta, IndexRange, SyncIndexRange } from '../types/indexes.ts';
import type { WithMeta } from '../types/range.ts';
import { Content } from '../wire/chunk.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import { decodeKey, decodeValue, keyPart } from '../wire/codecs.ts';
import { Op, ScanFlag } from '../wire/opcodes.ts';
import type { ByteRange, ReplyReader, RequestWriter } from '../wire/protocol.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';
import { META, RANGE, READ } from './arguments.ts';
import { compareBytes, encodeSeek, toWindow } from './range.ts';
import type { Scan, Window } from './range.ts';
import { checkOpen, checkPosition, clip, inOneState, readMeta } from './read-verbs.ts';
import { step, within } from './task.ts';
import type { Call, Steps, Task } from './task.ts';

const SYNC_INDEX_READ: Names<SyncIndexRange> = { ...RANGE, eq: 2 };
const INDEX_READ: Names<IndexRange> = { ...READ, eq: 2 };
const SYNC_INDEX_ENTRIES: Names<SyncIndexRange & WithMeta> = { ...SYNC_INDEX_READ, ...META };
const INDEX_ENTRIES: Names<IndexRange & WithMeta> = { ...INDEX_READ, ...META };
const BOUND_NAMES = ['gt', 'gte', 'lt', 'lte', 'prefix'] as const;

/** What reads an index when it is incomplete: a promise to wait for, an exception, or nothing. */
type Ready = () => Promise<void> | undefined;

export class IndexVerbs<K, V> {
  readonly target: Target<K, V>;
  readonly view: View;
  /** Whether the face is asynchronous. */
  readonly canWait: boolean;
  readonly #ready: Ready;
  /** Collection and codec of the index keys, for ranges and their errors. */
  readonly #keys: { readonly name: string; readonly key: typeof keyCodecs.any };
  readonly #place: number;

  /** With `waits`, asynchronous reads wait until the index is built. */
  constructor(target: Target<K, V>, view: View, name: string, canWait: boolean, waits = false) {
    const { indexes } = target;
    if (indexes === undefined) throw new KvError('KV_INVALID_ARGUMENT', 'the collection was opened without indexes');
    this.target = target;
    this.view = view;
    this.canWait = canWait;
    this.#ready = () => (canWait ? indexes.ready(target, waits) : (indexes.declareSync(target) as undefined));
    this.#place = indexes.place(name);
    this.#keys = { name: target.name, key: keyCodecs.any };
  }

  entries(options?: IndexRange & Partial<WithMeta>): Scan<unknown, Key> {
    const names = this.canWait ? INDEX_ENTRIES : SYNC_INDEX_ENTRIES;
    return options?.meta
      ? this.#scan('entries', options, names, Content.meta, this.#meta)
      : this.#scan('entries', options, names, Content.entries, this.#entry);
  }

  keys(options?: IndexRange): Scan<K, Key> {
    return this.#scan('keys', options, this.#read, Content.keys, (reader) =>
      decodeKey(this.target.key, second(reader)),
    );
  }

  values(options?: IndexRange): Scan<V, Key> {
    return this.#scan('values', options, this.#read, ScanFlag.values, (reader) => {
      second(reader);
      return decodeValue(this.target.value, reader.bytes());
    });
  }

  *get(indexKey: Key): Steps<V | undefined> {
    return (yield* this.first({ eq: indexKey } as IndexRange))?.value;
  }

  first(options?: IndexRange): Steps<IndexEntry<K, V> | undefined> {
    return this.#at('first', 0, options);
  }

  last(options?: IndexRange): Steps<IndexEntry<K, V> | undefined> {
    return this.#at('last', -1, options);
  }

  at(index: number, options?: IndexRange): Steps<IndexEntry<K, V> | undefined> {
    return this.#at('at', index, options);
  }

  *count(options?: IndexRange): Steps<number> {
    const call = this.#count(this.window('count', options));
    yield* this.#untilReady();
    return yield* step(call);
  }

  *rank(indexKey: Key, options?: IndexRange): Steps<number> {
    const { range } = this.window('rank', options);
    const bytes = keyPart(this.#keys, () => encodeBound(keyCodecs.any, indexKey as Bound<Key>));
    yield* this.#untilReady();
    return yield* step(this.#count({ range: before(range, bytes), reverse: false, offset: 0, limit: Infinity }));
  }

  window(call: string, options: IndexRange | undefined, names: object = this.#read): Window {
    checkOpen(this.view);
    if (options?.eq === undefined) return toWindow(this.#keys, call, options, names);
    if (BOUND_NAMES.some((name) => options[name] !== undefined))
      throw new KvError('KV_INVALID_ARGUMENT', `${call}: eq is a whole range; leave out the other bounds`);
    const { eq, ...rest } = options;
    return toWindow(this.#keys, call, { ...rest, gte: eq, lte: eq }, names);
  }

  get #read(): object {
    return this.canWait ? INDEX_READ : SYNC_INDEX_READ;
  }

  *#untilReady(): Steps<void> {
    const ready = this.#ready();
    if (ready !== undefined) yield ready;
  }

  *#at(name: string, index: number, options: IndexRange | undefined): Steps<IndexEntry<K, V> | undefined> {
    checkPosition(index);
    const window = this.window(name, options);
    yield* this.#untilReady();
    const { range, reverse, offset, limit } = window;
    if (index >= 0) return yield* within(this.#from(window, index));
    if (offset === 0 && limit === Infinity) return yield* step(this.#find(range, !reverse, -index - 1));
    return yield* inOneState(this, function* (this: IndexVerbs<K, V>, view) {
      const count = yield* step(this.#count(window, view));
      return yield* within(this.#from(window, count + index, view));
    });
  }

  #count({ range, offset, limit }: Window, view?: number): Call<number> {
    return this.#call(
      (writer) => this.#source(writer.u8(Op.indexCount), view).range(range),
      (reader) => clip(reader.uv(), offset, limit),
    );
  }

  /** The item at a position of a window; none if it is outside of that. */
  #from({ range, reverse, offset, limit }: Window, index: number, view?: number): Task<IndexEntry<K, V> | undefined> {
    const position = offset + index;
    return index < 0 || index >= limit || !Number.isSafeInteger(position)
      ? { found: undefined }
      : this.#find(range, reverse, position, view);
  }

  #find(range: ByteRange, fromEnd: boolean, position: number, view?: number): Call<IndexEntry<K, V> | undefined> {
    return this.#call(
      (writer) =>
        this.#source(writer.u8(Op.indexAt), view)
          .range(range)
          .u8(fromEnd ? 1 : 0)
          .uv(position),
      (reader) => (reader.u8() === 0 ? undefined : this.#entry(reader)),
    );
  }

  #call<T>(write: Call<T>['write'], read: Call<T>['read']): Call<T> {
    return { write, read, loads: true };
  }

  #scan<T>(
    call: string,
    options: IndexRange | undefined,
    names: object,
    content: number,
    decode: DecodeItem<T>,
  ): Scan<T, Key> {
    return {
      connection: this.target.connection,
      op: Op.indexScan,
      ready: this.#ready,
      window: () => this.window(call, options, names),
      writeSource: (writer) => this.#source(writer),
      content,
      signal: options?.signal,
      decode,
      isFast: false,
      misread: () => undefined,
      encodeSeek: (prefix) => encodeSeek(this.#keys, prefix),
    };
  }

  /** Writes view, collection and index. */
  #source(writer: RequestWriter, view = this.view.id): RequestWriter {
    return writer.uv(view).uv(this.target.index).uv(this.#place);
  }

  /** All fields of an item are read before any is decoded. */
  readonly #entry = (reader: ReplyReader): IndexEntry<K, V> =>
    this.#decoded(reader.bytes(), reader.bytes(), reader.bytes());

  readonly #meta = (reader: ReplyReader): IndexEntryWithMeta<K, V> => {
    const parts = [reader.bytes(), reader.bytes(), reader.bytes()] as const;
    const known = readMeta(reader);
    return { ...this.#decoded(...parts), ...known };
  };

  #decoded(indexKey: Uint8Array, key: Uint8Array, value: Uint8Array): IndexEntry<K, V> {
    const { target } = this;
    return {
      indexKey: decodeKey(keyCodecs.any, indexKey),
      key: decodeKey(target.key, key),
      value: decodeValue(target.value, value),
    };
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
