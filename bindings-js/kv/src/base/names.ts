// Checks the names of options: a misspelled option would be ignored silently.
import { KvError } from './errors.ts';

/** The option may be `undefined`, which selects its default. */
type Optional = 1;
/** The option must not be `undefined`, which would widen what the call affects. */
type Defined = 2;

/** The options of a call; the compiler keeps them in step with the options' type. */
export type Names<T> = { readonly [P in keyof Required<T>]: Optional | Defined };

/**
 * Names a database among those of all storages and buckets, for locks and channels. No storage or
 * bucket has a colon in its name.
 */
export function placeOf(storage: string, name: string, bucket: string | undefined): string {
  return `${storage}${bucket === undefined ? '' : `@${bucket}`}:${name}`;
}

/** Whether `value` looks like a collection. Its class may be loaded twice, so no `instanceof`. */
export function isCollection(value: unknown): boolean {
  const { entries, setMany } = (value ?? {}) as { entries?: unknown; setMany?: unknown };
  return typeof entries === 'function' && typeof setMany === 'function';
}

/**
 * Returns the first known name that `name` may stand for: apart from case, it is equal, a prefix of
 * `name`, ends with `name`, or differs in one run of at most two letters (one in short names).
 */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const given = name.toLowerCase();
  return names.find((known) => {
    const word = known.toLowerCase();
    const longer = Math.max(given.length, word.length);
    let [start, end] = [0, 0];
    while (start < longer && given[start] === word[start]) start++;
    while (end < longer - start && given.at(-1 - end) === word.at(-1 - end)) end++;
    return (
      longer - start - end <= Math.min(2, (longer + 1) >> 2) ||
      (given.length > 2 && (given.startsWith(word) || word.endsWith(given)))
    );
  });
}

function unknown(name: string, call: string, names: readonly string[]): string {
  const near = nearest(name, names);
  return `unknown option "${name}" of ${call}; ${near === undefined ? `it takes ${names.join(', ')}` : `did you mean "${near}"?`}`;
}

/** Describes what is wrong with `options`, if anything. */
export function misnamed(call: string, options: unknown, names: object): string | undefined {
  if (options === undefined) return undefined;
  if (typeof options === 'object' && options !== null) {
    let isEmpty = true;
    for (const name in options) {
      isEmpty = false;
      const kind = (names as Record<string, unknown>)[name];
      if (kind === 2) {
        if ((options as Record<string, unknown>)[name] === undefined)
          return `${name} of ${call} is undefined; leave it out or give a value`;
      } else if (kind !== 1) {
        return unknown(name, call, Object.keys(names));
      }
    }
    // Without names it could also be a Map or a Date.
    if (!isEmpty || Object.prototype.toString.call(options) === '[object Object]') return undefined;
  }
  return `the options of ${call} have to be an object`;
}

/** Throws unless `options` is `undefined` or an object with only options that `call` accepts. */
export function checkNames(call: string, options: unknown, names: object): void {
  const wrong = misnamed(call, options, names);
  if (wrong !== undefined) throw new KvError('KV_INVALID_ARGUMENT', wrong);
}
