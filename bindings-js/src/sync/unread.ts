// What the application wrote and sync has not put into the outbox yet.
import { encodeBound, keyCodecs, prefixRange } from '../codec/keys.ts';
import type { Bounds } from '../types/index.ts';
import { isWithin, keyId } from './key-ranges.ts';
import type { LocalCommit } from './local-feed.ts';
import type { KeyBound } from './record.ts';

type Bytes = Uint8Array;

/** Bounds of bytes, as the feed has them. */
export function toBounds(range: Bounds<Bytes>): { readonly lower: KeyBound; readonly upper: KeyBound } {
  const bound = (value: unknown, isExclusive: boolean): KeyBound =>
    value === undefined ? undefined : { bytes: encodeBound(keyCodecs.bytes, value as Bytes), isExclusive };
  if (range.prefix !== undefined) {
    const { lower, upper } = prefixRange(keyCodecs.bytes, range.prefix as Bytes);
    return { lower: bound(lower, false), upper: bound(upper, true) };
  }
  return { lower: bound(range.gt ?? range.gte, range.gt !== undefined), upper: bound(range.lt ?? range.lte, range.lt !== undefined) };
}

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
        if (change.type === 'set' || change.type === 'delete') setOf(this.#keys, change.collection, () => new Set<string>()).add(keyId(change.key));
        else setOf(this.#ranges, change.collection, () => []).push(change.type === 'clear' ? toBounds(change.range) : { lower: undefined, upper: undefined });
        if (change.type === 'rename') setOf(this.#ranges, change.to, () => []).push({ lower: undefined, upper: undefined });
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

function setOf<V>(map: Map<string, V>, key: string, create: () => V): V {
  const found = map.get(key);
  if (found !== undefined) return found;
  const made = create();
  map.set(key, made);
  return made;
}
