// Reads a collection through one of its indexes.
import type { Key } from '../codec/keys.ts';
import { checkOneOf } from '../base/async.ts';
import type { Names } from '../base/names.ts';
import type { CommitIterator } from '../types/feed.ts';
import type {
  IndexEntry,
  IndexEntryWithMeta,
  IndexRange,
  IndexReadOptions,
  IndexWatchOptions,
  LiveIndex,
} from '../types/indexes.ts';
import type { KvIterator, WithMeta } from '../types/range.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';
import { CursorIterator } from './cursor.ts';
import { watch } from './feed/follow.ts';
import { IndexVerbs } from './index-verbs.ts';
import { FOLLOW } from './arguments.ts';
import { checkNames } from '../base/names.ts';
import { ReadVerbs } from './read-verbs.ts';
import { promised, run } from './task.ts';

const OPTIONS: Names<IndexReadOptions> = { whenIncomplete: 1 };
const INDEX_WATCH: Names<IndexWatchOptions> = { ...FOLLOW, eq: 2 };

export class KvIndex<K, V> implements LiveIndex<K, V> {
  readonly name: string;
  /** @internal */
  readonly verbs: IndexVerbs<K, V>;

  constructor(target: Target<K, V>, view: View, name: string, options: IndexReadOptions | undefined) {
    checkNames('index', options, OPTIONS);
    const { whenIncomplete = 'fail' } = options ?? {};
    checkOneOf('whenIncomplete', whenIncomplete, ['wait', 'fail']);
    this.verbs = new IndexVerbs(target, view, name, true, whenIncomplete === 'wait');
    this.name = name;
  }

  get(indexKey: Key): Promise<V | undefined> {
    return run(this.verbs, (verbs) => verbs.get(indexKey));
  }

  entries(options: IndexRange & WithMeta): KvIterator<IndexEntryWithMeta<K, V>, Key>;
  entries(options?: IndexRange): KvIterator<IndexEntry<K, V>, Key>;
  entries(options?: IndexRange & Partial<WithMeta>): KvIterator<unknown, Key> {
    return new CursorIterator(this.verbs.entries(options));
  }

  keys(options?: IndexRange): KvIterator<K, Key> {
    return new CursorIterator(this.verbs.keys(options));
  }

  values(options?: IndexRange): KvIterator<V, Key> {
    return new CursorIterator(this.verbs.values(options));
  }

  first(options?: IndexRange): Promise<IndexEntry<K, V> | undefined> {
    return run(this.verbs, (verbs) => verbs.first(options), options);
  }

  last(options?: IndexRange): Promise<IndexEntry<K, V> | undefined> {
    return run(this.verbs, (verbs) => verbs.last(options), options);
  }

  at(index: number, options?: IndexRange): Promise<IndexEntry<K, V> | undefined> {
    return run(this.verbs, (verbs) => verbs.at(index, options), options);
  }

  count(options?: IndexRange): Promise<number> {
    return run(this.verbs, (verbs) => verbs.count(options), options);
  }

  rank(indexKey: Key, options?: IndexRange): Promise<number> {
    return run(this.verbs, (verbs) => verbs.rank(indexKey, options), options);
  }

  watch(options?: IndexWatchOptions): CommitIterator<K, V> {
    const { verbs } = this;
    return watch(verbs.target, { signal: options?.signal }, undefined, () =>
      verbs.window('watch', options, INDEX_WATCH),
    );
  }

  nextExpiry(): Promise<number | undefined> {
    const { target, view } = this.verbs;
    return promised(target.connection, new ReadVerbs(target, view).nextExpiry());
  }

  [Symbol.asyncIterator](): KvIterator<IndexEntry<K, V>, Key> {
    return this.entries();
  }
}
