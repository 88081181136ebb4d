// The subsets of the rows that live queries have asked for.
import type { IR, LoadSubsetOptions } from '@tanstack/db';
import { predicateOf } from './expressions.ts';
import type { Row } from './expressions.ts';

/** A subset that is loaded or being loaded. Rows that fit its predicate are kept current from then on. */
export interface Subset {
  readonly options: LoadSubsetOptions;
  /** What makes another request the same; `undefined` if none can be. */
  readonly identity: string | undefined;
  readonly fits: (row: Row) => boolean;
  /** Number of the commit that its rows were read from; 0 while they are read. */
  version: number;
  /** The end of its loading; `undefined` once it is loaded. */
  loading: Promise<void> | undefined;
  /** Requests that have not been released. */
  users: number;
  /** Forgets it when nobody has used it for a while. */
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** A text that is the same for equal values; `undefined` for values that only the same object equals. */
function textOf(value: unknown): string | undefined {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(value);
    case 'bigint':
      return `${value}n`;
    case 'object':
      if (value === null) return 'null';
      if (value instanceof Date) return `date ${value.getTime()}`;
      return Array.isArray(value) ? textOfAll(value, '[', ']') : undefined;
    case 'function':
    case 'symbol':
      return undefined;
    default:
      return Object.is(value, -0) ? '0' : String(value);
  }
}

function textOfAll(values: readonly unknown[], start: string, end: string): string | undefined {
  const texts = values.map(textOf);
  return texts.includes(undefined) ? undefined : `${start}${texts.join()}${end}`;
}

function textOfExpression(expression: IR.BasicExpression | undefined): string | undefined {
  if (expression === undefined) return '';
  if (expression.type === 'val') return textOf(expression.value);
  if (expression.type === 'ref')
    return `ref${JSON.stringify([expression.path, (expression as { sourceAlias?: string }).sourceAlias])}`;
  const args = expression.args.map(textOfExpression);
  return args.includes(undefined) ? undefined : `${expression.name}(${args.join()})`;
}

function textOfOrder(orderBy: IR.OrderBy | undefined): string | undefined {
  const clauses = (orderBy ?? []).map(({ expression, compareOptions }) => {
    const options = Object.entries(compareOptions).sort(([one], [other]) => (one < other ? -1 : 1));
    const texts = [
      textOfExpression(expression),
      ...options.map(([name, value]) => (name === 'localeOptions' ? JSON.stringify(value) : textOf(value))),
    ];
    return texts.includes(undefined) ? undefined : texts.join(' ');
  });
  return clauses.includes(undefined) ? undefined : clauses.join(';');
}

function identityOf({ where, orderBy, limit, offset, cursor }: LoadSubsetOptions): string | undefined {
  // Without a limit, the order does not matter.
  const isWindow = limit !== undefined || (offset ?? 0) > 0;
  const texts = [
    textOfExpression(where),
    isWindow ? textOfOrder(orderBy) : '',
    String(limit),
    String(cursor === undefined ? (offset ?? 0) : ''),
    textOfExpression(cursor?.whereFrom),
    textOfExpression(cursor?.whereCurrent),
  ];
  return texts.includes(undefined) ? undefined : texts.join('\n');
}

/** Subsets by their requests. */
export class Subsets {
  readonly #all = new Set<Subset>();
  readonly #byIdentity = new Map<string, Subset>();
  /** A request is released by the object that it was made with. */
  readonly #requests = new Map<LoadSubsetOptions, Subset>();

  get size(): number {
    return this.#all.size;
  }

  [Symbol.iterator](): IterableIterator<Subset> {
    return this.#all.values();
  }

  /** The subset that answers a request, and whether it is new. It counts as used until it is released. */
  acquire(options: LoadSubsetOptions): { readonly subset: Subset; readonly isNew: boolean } {
    const identity = identityOf(options);
    const known =
      (identity === undefined ? undefined : this.#byIdentity.get(identity)) ?? this.#byIdentity.get(identityOf({})!);
    const subset = known ?? {
      options,
      identity,
      fits: predicateOf(options.where) ?? ((): boolean => true),
      version: 0,
      loading: undefined,
      users: 0,
      timer: undefined,
    };
    if (known === undefined) {
      this.#all.add(subset);
      if (identity !== undefined) this.#byIdentity.set(identity, subset);
    }
    clearTimeout(subset.timer);
    if (!this.#requests.has(options)) {
      this.#requests.set(options, subset);
      subset.users++;
    }
    return { subset, isNew: known === undefined };
  }

  /** Releases a request; returns its subset if that was the last one. */
  release(options: LoadSubsetOptions): Subset | undefined {
    const subset = this.#requests.get(options);
    if (subset === undefined) return undefined;
    this.#requests.delete(options);
    return --subset.users === 0 ? subset : undefined;
  }

  remove(subset: Subset): void {
    this.#all.delete(subset);
    if (subset.identity !== undefined && this.#byIdentity.get(subset.identity) === subset)
      this.#byIdentity.delete(subset.identity);
  }

  clear(): void {
    for (const { timer } of this.#all) clearTimeout(timer);
    this.#all.clear();
    this.#byIdentity.clear();
    this.#requests.clear();
  }
}
