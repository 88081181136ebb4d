// Finds the mirror that has what a live query asks for.
import { hubOf } from './registry.ts';
import { sourceOf } from './source.ts';
import type { Held } from './sorted-entries.ts';

/** All entries of a range, as mirrors have them. */
export interface Mirrored {
  /** Key and value of each, the same objects until an entry changes; and the versions of those entries. */
  rows(): { readonly rows: (readonly [key: unknown, value: unknown])[]; readonly versions: readonly number[] };
  /** Calls `onChange` after a step that changed them, or that took some of the range out of the mirrors. */
  watch(onChange: () => void): () => void;
  readonly isStale: boolean;
  readonly error: unknown;
}

/** Of entries of indexes, whose items have the index key, too. */
const rows = new WeakMap<Held, readonly [unknown, unknown]>();

function rowOf(held: Held, item: unknown): readonly [unknown, unknown] {
  if (Array.isArray(item)) return item as unknown as readonly [unknown, unknown];
  let row = rows.get(held);
  if (row === undefined) {
    const { key, value } = item as { readonly key: unknown; readonly value: unknown };
    rows.set(held, (row = [key, value]));
  }
  return row;
}

export function mirroredOf(given: unknown, range: object): Mirrored | undefined {
  const source = sourceOf(given);
  const hub = source && hubOf(source.target.connection);
  const store = hub?.store(source!.name);
  if (source === undefined || hub === undefined || store === undefined) return undefined;
  let window;
  try {
    window = source.window('liveQuery', range);
  } catch {
    // The read that is not mirrored reports what is wrong with the range.
    return undefined;
  }
  const span = store.spanOf(window.range);
  if (!store.covers(span)) return undefined;
  return {
    rows() {
      hub.expire(store);
      const { entries } = store;
      const held = entries.slice(...entries.positionsOf(span, window));
      if (window.reverse) held.reverse();
      return {
        rows: held.map((each) => rowOf(each, store.itemOf(each))),
        versions: held.map(({ version }) => version),
      };
    },
    watch: (onChange) => hub.watch({ store, span, bytes: 0, isTouched: false, onChange }),
    get isStale() {
      return hub.isStale;
    },
    get error() {
      return hub.error;
    },
  };
}
