// Reads a collection through one of its indexes, synchronously.
import type { Names } from '../base/names.ts';
import type { Key } from '../codec/keys.ts';
import type { IndexEntry, IndexEntryWithMeta, SyncIndex, SyncIndexRange } from '../types/indexes.ts';
import type { WithMeta } from '../types/range.ts';
import { Content } from '../wire/chunk.ts';
import { Op, ScanFlag } from '../wire/opcodes.ts';
import type { Target, View } from '../wire/target.ts';
import type { Call } from './calls.ts';
import { IndexCalls, SYNC_INDEX_READ } from './index-calls.ts';
import type { IndexItems } from './index-calls.ts';
import { META } from './names.ts';
import { SyncScan } from './sync-scan.ts';

const SYNC_INDEX_ENTRIES: Names<SyncIndexRange & WithMeta> = { ...SYNC_INDEX_READ, ...META };

export class KvSyncIndex<K, V> implements SyncIndex<K, V> {
  readonly name: string;
  readonly #calls: IndexCalls<K, V>;

  constructor(target: Target<K, V>, view: View, name: string) {
    this.#calls = new IndexCalls(target, view, name);
    this.name = name;
  }

  entries(options: SyncIndexRange & WithMeta): IterableIterator<IndexEntryWithMeta<K, V>>;
  entries(options?: SyncIndexRange): IterableIterator<IndexEntry<K, V>>;
  entries(options?: SyncIndexRange & Partial<WithMeta>): IterableIterator<IndexEntry<K, V>> {
    return options?.meta
      ? this.#iterate('entries', options, SYNC_INDEX_ENTRIES, Content.meta, 'meta')
      : this.#iterate('entries', options, SYNC_INDEX_ENTRIES, Content.entries, 'entry');
  }

  keys(options?: SyncIndexRange): IterableIterator<K> {
    return this.#iterate('keys', options, SYNC_INDEX_READ, Content.keys, 'key');
  }

  values(options?: SyncIndexRange): IterableIterator<V> {
    return this.#iterate('values', options, SYNC_INDEX_READ, ScanFlag.values, 'value');
  }

  get(indexKey: Key): V | undefined {
    return this.first({ eq: indexKey } as SyncIndexRange)?.value;
  }

  first(options?: SyncIndexRange): IndexEntry<K, V> | undefined {
    return this.#at('first', 0, options);
  }

  last(options?: SyncIndexRange): IndexEntry<K, V> | undefined {
    return this.#at('last', -1, options);
  }

  at(index: number, options?: SyncIndexRange): IndexEntry<K, V> | undefined {
    return this.#at('at', index, options);
  }

  count(options?: SyncIndexRange): number {
    return this.#send(this.#calls.count(this.#calls.window('count', options, SYNC_INDEX_READ)));
  }

  rank(indexKey: Key, options?: SyncIndexRange): number {
    return this.#send(this.#calls.count(this.#calls.rankWindow(indexKey, options, SYNC_INDEX_READ)));
  }

  [Symbol.iterator](): IterableIterator<IndexEntry<K, V>> {
    return this.entries();
  }

  #at(name: string, index: number, options: SyncIndexRange | undefined): IndexEntry<K, V> | undefined {
    const calls = this.#calls;
    const window = calls.atWindow(name, index, options, SYNC_INDEX_READ);
    const { range, reverse, offset, limit } = window;
    if (index < 0 && offset === 0 && limit === Infinity) return this.#send(calls.find(range, !reverse, -index - 1));
    // Synchronous, so no write comes between.
    const call = calls.at(window, index < 0 ? this.#send(calls.count(window)) + index : index);
    return call && this.#send(call);
  }

  #declare(): void {
    const { indexes, target } = this.#calls;
    indexes.declareSync(target);
  }

  #send<T>({ write, read }: Call<T>): T {
    this.#declare();
    return this.#calls.target.connection.requestSync(write, read);
  }

  /** Reads the state as of this call, not as of the first `next`. */
  #iterate<N extends keyof IndexItems<K, V>, T>(
    call: string, options: SyncIndexRange | undefined, names: Names<T>, content: number, kind: N,
  ): IterableIterator<IndexItems<K, V>[N]> {
    const calls = this.#calls;
    const { range, reverse, offset, limit } = calls.window(call, options, names);
    this.#declare();
    return new SyncScan({
      connection: calls.target.connection,
      op: Op.indexScan,
      write: (writer) => calls.source(writer).range(range).u8((reverse ? ScanFlag.reverse : 0) | content).uv(offset).uv(limit === Infinity ? 0 : limit),
      limit,
      decode: calls.decoders[kind],
      isFast: false,
    });
  }
}
