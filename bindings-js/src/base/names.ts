// The names of options: one that nobody reads would be ignored without a word.

/** Of an option that may be `undefined`, which is its default. */
type Optional = 1;
/** Of one that has to be left out instead: `undefined` would widen what the call is about. */
type Defined = 2;

/** The options of a call; the compiler keeps them in step with their types. */
export type Names<T> = { readonly [P in keyof Required<T>]: Optional | Defined };

/** Whether it can be what `Database.collection` gives; the class can be there more than once. */
export function isCollection(value: unknown): boolean {
  const { entries, setMany } = (value ?? {}) as { entries?: unknown; setMany?: unknown };
  return typeof entries === 'function' && typeof setMany === 'function';
}

/** The name that may have been meant: the other case, the beginning or end, or all but two letters in a row. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const given = name.toLowerCase();
  return names.find((known) => {
    const word = known.toLowerCase();
    const longer = Math.max(given.length, word.length);
    let [start, end] = [0, 0];
    while (start < longer && given[start] === word[start]) start++;
    while (end < longer - start && given.at(-1 - end) === word.at(-1 - end)) end++;
    return longer - start - end <= Math.min(2, (longer + 1) >> 2) || (given.length > 2 && (given.startsWith(word) || word.endsWith(given)));
  });
}

function unknown(name: string, call: string, names: readonly string[]): string {
  const near = nearest(name, names);
  return `unknown option "${name}" of ${call}; ${near === undefined ? `it takes ${names.join(', ')}` : `did you mean "${near}"?`}`;
}

/** What is wrong with the names of an object of options, if anything; without options nothing is. */
export function misnamed(call: string, options: unknown, names: object): string | undefined {
  if (options === undefined) return undefined;
  if (typeof options === 'object' && options !== null) {
    let isEmpty = true;
    for (const name in options) {
      isEmpty = false;
      const kind = (names as Record<string, unknown>)[name];
      if (kind === 2) {
        if ((options as Record<string, unknown>)[name] === undefined) return `${name} of ${call} is undefined; leave it out or give a value`;
      } else if (kind !== 1) {
        return unknown(name, call, Object.keys(names));
      }
    }
    // A Map, a Date or a signal has no names either.
    if (!isEmpty || Object.prototype.toString.call(options) === '[object Object]') return undefined;
  }
  return `the options of ${call} have to be an object`;
}
