// What can be mirrored: a collection, a database, or an index of one.
import { KvError } from '../base/errors.ts';
import type { IndexVerbs } from '../api/index-verbs.ts';
import type { Window } from '../api/range.ts';
import type { ReadVerbs } from '../api/read-verbs.ts';
import type { Target } from '../wire/collection-target.ts';

export interface Source {
  readonly target: Target<unknown, unknown>;
  /** Place of the index among those of the collection; `undefined` for the collection itself. */
  readonly place: number | undefined;
  /** Tells the same entries, decoded in the same way, from others. */
  readonly name: string;
  /** Encodes a range, or throws for the option of `call` that is invalid. */
  window(call: string, range: object): Window;
}

/** `undefined` for what is not of this package, and for snapshots and transactions, which do not change. */
export function sourceOf(given: unknown): Source | undefined {
  const { verbs, watch, name } = (given ?? {}) as { verbs?: unknown; watch?: unknown; name?: unknown };
  if (verbs === undefined || typeof watch !== 'function') return undefined;
  const { target } = verbs as ReadVerbs<unknown, unknown>;
  const decoded = [target.name, target.key.id, target.value.id];
  if (!('window' in (verbs as object))) {
    const reads = verbs as ReadVerbs<unknown, unknown>;
    return {
      target,
      place: undefined,
      name: JSON.stringify(decoded),
      window: (call, range) => reads.pairs(call, range).window(),
    };
  }
  const reads = verbs as IndexVerbs<unknown, unknown>;
  const { indexes } = target;
  const place = indexes!.place(name as string);
  const { version } = indexes!.definitions[place]!;
  return {
    target,
    place,
    name: JSON.stringify([...decoded, name, version]),
    window: (call, range) => reads.window(call, range),
  };
}

export function checkedSource(call: string, given: unknown): Source {
  const source = sourceOf(given);
  if (source !== undefined) return source;
  throw new KvError('KV_INVALID_ARGUMENT', `${call} needs a collection, an index or a database`);
}
