// Reads a collection through one of its indexes.
import type { Key } from '../codec/keys.ts';
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import { attempt } from '../base/async.ts';
import type { CommitIterator } from '../types/feed.ts';
import type { IndexEntry, IndexEntryWithMeta, IndexRange, IndexReadOptions, IndexWatchOptions, LiveIndex } from '../types/indexes.ts';
import type { KvIterator, WithMeta } from '../types/range.ts';
import { Content } from '../wire/chunk.ts';
import { Op, ScanFlag } from '../wire/opcodes.ts';
import type { Target, View } from '../wire/target.ts';
import type { Call } from './calls.ts';
import { CursorIterator } from './cursor.ts';
import { watch } from './feed/follow.ts';
import { INDEX_ENTRIES, INDEX_READ, IndexCalls } from './index-calls.ts';
import type { IndexItems } from './index-calls.ts';
import { FOLLOW, checkNames } from './names.ts';
import { encodeSeek } from './range.ts';
import type { Window } from './range.ts';

const OPTIONS: Names<IndexReadOptions> = { whenIncomplete: 1 };
const INDEX_WATCH: Names<IndexWatchOptions> = { ...FOLLOW, eq: 2 };

export class KvIndex<K, V> implements LiveIndex<K, V> {
  readonly name: string;
  readonly #calls: IndexCalls<K, V>;
  readonly #waits: boolean;

  constructor(target: Target<K, V>, view: View, name: string, options: IndexReadOptions | undefined) {
    this.#calls = new IndexCalls(target, view, name);
    this.name = name;
    checkNames('index', options, OPTIONS);
    const { whenIncomplete = 'fail' } = options ?? {};
    this.#waits = whenIncomplete === 'wait';
    if (!this.#waits && whenIncomplete !== 'fail') throw new KvError('KV_INVALID_ARGUMENT', 'whenIncomplete has to be "wait" or "fail"');
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
    return this.first({ eq: indexKey } as IndexRange).then((entry) => entry?.value);
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
    return this.#count(() => this.#calls.window('count', options, INDEX_READ), options);
  }

  rank(indexKey: Key, options?: IndexRange): Promise<number> {
    return this.#count(() => this.#calls.rankWindow(indexKey, options, INDEX_READ), options);
  }

  watch(options?: IndexWatchOptions): CommitIterator<K, V> {
    const calls = this.#calls;
    return watch(calls.target, { signal: options?.signal }, undefined, () => calls.window('watch', options, INDEX_WATCH));
  }

  [Symbol.asyncIterator](): KvIterator<IndexEntry<K, V>, Key> {
    return this.entries();
  }

  #ready(): Promise<void> | undefined {
    const { indexes, target } = this.#calls;
    return indexes.ready(target, this.#waits);
  }

  #send<T>({ write, read }: Call<T>): Promise<T> {
    return this.#calls.target.connection.requestLoading(write, read);
  }

  #count(window: () => Window, options: IndexRange | undefined): Promise<number> {
    return attempt(async () => {
      const call = this.#calls.count(window());
      await this.#ready();
      return this.#send(call);
    }, options?.signal);
  }

  #at(name: string, index: number, options: IndexRange | undefined): Promise<IndexEntry<K, V> | undefined> {
    const calls = this.#calls;
    return attempt(async () => {
      const window = calls.atWindow(name, index, options, INDEX_READ);
      await this.#ready();
      const { range, reverse, offset, limit } = window;
      const fromEnd = offset === 0 && limit === Infinity;
      if (index < 0 && !fromEnd) return this.#inOneState(async (view) => calls.at(window, await this.#send(calls.count(window, view)) + index, view));
      const call = index < 0 ? calls.find(range, !reverse, -index - 1) : calls.at(window, index);
      return call && this.#send(call);
    }, options?.signal);
  }

  async #inOneState<T>(find: (view: number) => Promise<Call<T> | undefined>): Promise<T | undefined> {
    const { target: { connection }, view } = this.#calls;
    const id = view.id || connection.newId();
    if (id !== view.id) connection.post((writer) => writer.u8(Op.snapshotOpen).uv(id), (reader) => reader.uv());
    try {
      const call = await find(id);
      return call && await this.#send(call);
    } finally {
      if (id !== view.id) connection.post((writer) => writer.u8(Op.snapshotClose).uv(id), () => undefined);
    }
  }

  #iterate<N extends keyof IndexItems<K, V>, T>(
    call: string, options: IndexRange | undefined, names: Names<T>, content: number, kind: N,
  ): KvIterator<IndexItems<K, V>[N], Key> {
    const calls = this.#calls;
    return new CursorIterator<IndexItems<K, V>[N], Key>({
      connection: calls.target.connection,
      op: Op.indexScan,
      before: () => this.#ready(),
      window: () => calls.window(call, options, names),
      writeSource: (writer) => calls.source(writer),
      content,
      signal: options?.signal,
      decode: calls.decoders[kind],
      isFast: false,
      whenEmpty: () => Promise.resolve(),
      encodeSeek: (prefix) => encodeSeek(calls.keys, prefix),
    });
  }
}
