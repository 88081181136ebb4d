// Reads a collection through one of its indexes.
import type { Key } from '../codec/keys.ts';
import { checkOneOf } from '../base/async.ts';
import type { Names } from '../base/names.ts';
import type { CommitIterator } from '../types/feed.ts';
import type { Index, IndexEntry, IndexReadOptions, IndexWatchOptions, LiveIndex } from '../types/indexes.ts';
import type { KvIterator } from '../types/range.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';
import { CursorIterator } from './cursor.ts';
import { watch } from './feed/follow.ts';
import { IndexVerbs } from './index-verbs.ts';
import { FOLLOW, checkNames } from './names.ts';
import type { Scan } from './scan.ts';
import { ReadVerbs } from './read-verbs.ts';
import { derive, promised, runPromised, verbsOf } from './task.ts';
import type { Promised } from './task.ts';

const OPTIONS: Names<IndexReadOptions> = { whenIncomplete: 1 };
const INDEX_WATCH: Names<IndexWatchOptions> = { ...FOLLOW, eq: 2 };

type Lookups = 'get' | 'first' | 'last' | 'at' | 'count' | 'rank';
type Scans = 'entries' | 'keys' | 'values';

export interface KvIndex<K, V> extends Promised<IndexVerbs<K, V>, Lookups>, Pick<Index<K, V>, Scans> {}

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

  watch(options?: IndexWatchOptions): CommitIterator<K, V> {
    const { verbs } = this;
    return watch(verbs.target, { signal: options?.signal }, undefined, () => verbs.window('watch', options, INDEX_WATCH));
  }

  nextExpiry(): Promise<number | undefined> {
    const { target, view } = this.verbs;
    return promised(target.connection, new ReadVerbs(target, view).nextExpiry());
  }

  [Symbol.asyncIterator](): KvIterator<IndexEntry<K, V>, Key> {
    return this.entries();
  }
}

derive(KvIndex, ['get'] satisfies Lookups[], runPromised);
derive(KvIndex, ['first', 'last', 'count'] satisfies Lookups[], runPromised, 0);
derive(KvIndex, ['at', 'rank'] satisfies Lookups[], runPromised, 1);
derive(KvIndex, ['entries', 'keys', 'values'] satisfies Scans[], (self, name, args) => new CursorIterator(verbsOf<Scan<unknown, unknown>>(self)[name]!(...args)));
