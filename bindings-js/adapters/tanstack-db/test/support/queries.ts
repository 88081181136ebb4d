// Random rows, predicates and orders, and what TanStack DB itself makes of them.
import { IR, compileSingleRowExpression, makeComparator, toBooleanPredicate } from '@tanstack/db';
import type { LoadSubsetOptions } from '@tanstack/db';
import fc from 'fast-check';
import { compareKeys } from 'mangrove-kv';
import type { Key } from 'mangrove-kv';

export type Row = Record<string, unknown>;
export type Where = IR.BasicExpression<boolean>;

/** Strings that differ only after the part that an index key has, and such that UTF-8 sorts differently. */
const text = fc.oneof(
  fc.constantFrom('', 'a', 'A', 'ab', 'abc', 'b', 'é', 'z', '\uffff', '\u{1f600}', '\ue000'),
  fc.constantFrom('', 'a', 'b').map((end) => `${'x'.repeat(128)}${end}`),
  fc.constantFrom('', 'a').map((end) => `${'x'.repeat(127)}${end}`),
  fc.string({ maxLength: 3 }),
);
const number = fc.oneof(fc.integer({ min: -5, max: 5 }), fc.constantFrom(NaN, Infinity, -Infinity, -0, 0.5, 1e300));
const date = fc.oneof(
  fc.integer({ min: -3, max: 3 }).map((time) => new Date(time)),
  fc.constantFrom(new Date(NaN), new Date(8.64e15), new Date(-8.64e15)),
);
const bigint = fc.oneof(fc.bigInt({ min: -3n, max: 3n }), fc.constantFrom(2n ** 600n, -(2n ** 600n)));
const nothing = fc.constantFrom(null, undefined);

const anything = fc.oneof(
  text,
  number,
  date,
  bigint,
  fc.boolean(),
  nothing,
  fc.constantFrom([1, 'a'], {}, new Uint8Array([1])),
);

const sometimes = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | null | undefined> =>
  fc.oneof({ weight: 5, arbitrary: value as fc.Arbitrary<T | null | undefined> }, { weight: 1, arbitrary: nothing });

/** A row with a column of each type, one of two types, and one of any. */
export const row: fc.Arbitrary<Row> = fc.record(
  {
    number: sometimes(number),
    text: sometimes(text),
    date: sometimes(date),
    flag: sometimes(fc.boolean()),
    big: sometimes(bigint),
    two: fc.oneof(fc.boolean(), fc.integer({ min: -2, max: 2 })),
    any: anything,
    nested: fc.oneof(fc.record({ number: sometimes(number) }), nothing),
  },
  { requiredKeys: [] },
);

export const key: fc.Arbitrary<string | number> = fc.oneof(
  fc.integer({ min: 0, max: 30 }),
  fc.integer({ min: 0, max: 30 }).map(String),
);

/** Paths whose values TanStack DB orders totally. */
const ORDERED = ['number', 'text', 'date', 'flag', 'big', 'two', 'nested.number'];
const PATHS = [...ORDERED, 'any', 'nested', 'missing'];

export const indexes: fc.Arbitrary<(string | string[])[]> = fc.array(
  fc.oneof(fc.constantFrom(...PATHS), fc.uniqueArray(fc.constantFrom(...PATHS), { minLength: 1, maxLength: 3 })),
  { maxLength: 4 },
);

const ref = (path: string): IR.PropRef => new IR.PropRef(path.split('.'));
const value = (operand: unknown): IR.Value => new IR.Value(operand);
const func = (name: string, ...args: IR.BasicExpression[]): Where => new IR.Func(name, args) as Where;

const path = fc.constantFrom(...PATHS);
const comparison = fc
  .tuple(fc.constantFrom('eq', 'gt', 'gte', 'lt', 'lte'), path, anything, fc.boolean())
  .map(([name, at, operand, isFlipped]) =>
    isFlipped ? func(name, value(operand), ref(at)) : func(name, ref(at), value(operand)),
  );
/** A range as queries have it: two comparisons of one column. */
const range = fc
  .tuple(fc.constantFrom(...ORDERED), anything, anything)
  .map(([at, from, to]) => func('and', func('gte', ref(at), value(from)), func('lt', ref(at), value(to))));
const membership = fc
  .tuple(path, fc.oneof(fc.array(anything, { maxLength: 5 }), fc.constant(null)))
  .map(([at, list]) => func('in', ref(at), value(list)));
const like = fc
  .tuple(
    fc.constantFrom('like', 'ilike'),
    path,
    fc.oneof(
      text,
      text.map((start) => `${start}%`),
      fc.constantFrom('%', 'a_%', null, 5),
    ),
  )
  .map(([name, at, pattern]) => func(name, ref(at), value(pattern)));
const nullish = fc.tuple(fc.constantFrom('isNull', 'isUndefined'), path).map(([name, at]) => func(name, ref(at)));
const computed = fc
  .tuple(fc.constantFrom('length', 'lower'), path, anything)
  .map(([name, at, operand]) => func('eq', func(name, ref(at)), value(operand)));
const columns = fc.tuple(path, path).map(([one, other]) => func('lt', ref(one), ref(other)));
const truth = fc.oneof(
  path.map((at) => ref(at) as Where),
  fc.boolean().map((is) => value(is) as Where),
);

export const where: fc.Arbitrary<Where> = fc.letrec<{ any: Where; some: Where }>((tie) => ({
  any: fc.oneof(
    { depthSize: 'small' },
    { weight: 6, arbitrary: comparison },
    { weight: 2, arbitrary: range },
    membership,
    like,
    nullish,
    computed,
    columns,
    truth,
    { weight: 4, arbitrary: tie('some') },
  ),
  some: fc.oneof(
    fc.array(tie('any'), { minLength: 1, maxLength: 3 }).map((args) => func('and', ...args)),
    fc.array(tie('any'), { minLength: 1, maxLength: 3 }).map((args) => func('or', ...args)),
    tie('any').map((arg) => func('not', arg)),
  ),
})).any;

const clause: fc.Arbitrary<IR.OrderByClause> = fc.record({
  expression: fc.constantFrom(...ORDERED).map(ref),
  compareOptions: fc.record({
    direction: fc.constantFrom('asc' as const, 'desc' as const),
    nulls: fc.constantFrom('first' as const, 'last' as const),
    stringSort: fc.constantFrom('lexical' as const, 'locale' as const),
  }),
});

export const query: fc.Arbitrary<LoadSubsetOptions> = fc.record(
  {
    where,
    orderBy: fc.array(clause, { minLength: 1, maxLength: 3 }),
    limit: fc.integer({ min: 0, max: 8 }),
    offset: fc.integer({ min: 0, max: 4 }),
  },
  { requiredKeys: [] },
);

/** The entries that a query asks for, by TanStack DB's own evaluator and comparator; ties by key. */
export function expected(entries: readonly (readonly [Key, Row])[], asked: LoadSubsetOptions): [Key, Row][] {
  const { orderBy, limit, offset = 0 } = asked;
  const fits = asked.where === undefined ? undefined : compileSingleRowExpression(asked.where);
  const found = entries.filter(([, each]) => fits === undefined || toBooleanPredicate(fits(each) as boolean | null));
  const clauses = (orderBy ?? []).map(({ expression, compareOptions }) => ({
    evaluate: compileSingleRowExpression(expression),
    compare: makeComparator(compareOptions),
  }));
  const sorted = [...found].sort(([key, one], [otherKey, other]) => {
    for (const { evaluate, compare } of clauses) {
      const order = compare(evaluate(one), evaluate(other));
      if (order !== 0) return order;
    }
    return compareKeys(key, otherKey);
  });
  return sorted.slice(offset, limit === undefined ? undefined : offset + limit) as [Key, Row][];
}
