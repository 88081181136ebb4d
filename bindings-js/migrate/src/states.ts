// How far each source was copied: an entry for each of them, written in the same commits as what was copied.
import type { Collection, Database, Key } from 'mangrove-kv';

/** Progress of one object store. */
export interface State {
  readonly last?: Key;
  readonly done: number;
  readonly isComplete: boolean;
}

/** The progress before the first commit. */
export const NOTHING: State = { done: 0, isComplete: false };

/** The collection of the progress of all sources. */
export const STATES = '@mangrove-kv/migrate';

export function statesOf(db: { readonly collection: Database['collection'] }): Collection<Key, State> {
  return db.collection<Key, State>(STATES);
}

/** Where the progress of an object store is. */
export function placeOf(name: string, store: string): Key {
  return ['indexedDB', name, store];
}
