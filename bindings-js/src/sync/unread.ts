// What the application wrote and sync has not put into the outbox yet.
import { isWithin, keyId, toBounds } from './key-ranges.ts';
import type { LocalCommit } from './local-feed.ts';
import type { KeyBound } from './record.ts';

type Bytes = Uint8Array;

/**
 * The keys of some commits. An entry that is not there has no version, so the database alone does not
 * tell whether the application deleted it after the base's value was written.
 */
export class Unread {
  readonly #keys = new Map<string, Set<string>>();
  readonly #ranges = new Map<string, { readonly lower: KeyBound; readonly upper: KeyBound }[]>();

  constructor(commits: Iterable<LocalCommit> = []) {
    for (const commit of commits) {
      if (commit.isOwn) continue;
      for (const change of commit.changes) {
        if (change.type === 'set' || change.type === 'delete') getOrInsert(this.#keys, change.collection, () => new Set<string>()).add(keyId(change.key));
        else getOrInsert(this.#ranges, change.collection, () => []).push(change.type === 'clear' ? toBounds(change.range) : { lower: undefined, upper: undefined });
        if (change.type === 'rename') getOrInsert(this.#ranges, change.to, () => []).push({ lower: undefined, upper: undefined });
      }
    }
  }

  /** Whether a commit wrote to the collection. */
  touches(collection: string): boolean {
    return this.#keys.has(collection) || this.#ranges.has(collection);
  }

  has(collection: string, key: Bytes): boolean {
    return this.#keys.get(collection)?.has(keyId(key)) === true
      || this.#ranges.get(collection)?.some(({ lower, upper }) => isWithin(key, lower, upper)) === true;
  }
}

/** The value of a key, created if there is none. */
function getOrInsert<V>(map: Map<string, V>, key: string, create: () => V): V {
  const found = map.get(key);
  if (found !== undefined) return found;
  const made = create();
  map.set(key, made);
  return made;
}
