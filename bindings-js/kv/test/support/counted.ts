// A collection that counts what a live query does with it.
import type { Collection } from 'mangrove-kv';
import type { LiveSource } from 'mangrove-kv/live';

export interface Counted<K, V> extends LiveSource<K, V> {
  /** Reads of a range so far. */
  readonly reads: number;
  /** Watches that were begun and have not ended. */
  readonly watches: number;
}

export function counted<K, V>(source: Collection<K, V>): Counted<K, V> {
  const counts = { reads: 0, watches: 0 };
  return {
    get reads() {
      return counts.reads;
    },
    get watches() {
      return counts.watches;
    },
    entries: (range) => {
      counts.reads++;
      return source.entries(range);
    },
    watch: (options) => {
      counts.watches++;
      options?.signal?.addEventListener('abort', () => counts.watches--, { once: true });
      return source.watch(options);
    },
  };
}

/** Waits until `isRight`, which nothing tells about; the test runner ends what never becomes right. */
export async function eventually(isRight: () => boolean): Promise<void> {
  while (!isRight()) await new Promise((resolve) => setTimeout(resolve, 1));
}
