// Random documents, operations and Mango queries on the storage for RxDB: compared with what the
// queries mean, and with RxDB's storage in memory.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fillWithDefaultSettings, randomToken } from 'rxdb';
import type { MangoQuery, RxDocumentData, RxStorageDefaultCheckpoint, RxStorageInstance } from 'rxdb';
import { getRxStorageMemory } from 'rxdb/plugins/storage-memory';
import { getRxStorageMangrove } from '@mangrove-kv/rxdb';
import { PERSON, createInstance, found, person, prepare, row, withInstance } from './support/rxdb.ts';
import type { Person } from './support/rxdb.ts';

const RUNS = 100;

/** RxDB's storage in memory keeps the documents themselves, with their prototypes. */
const PLAIN = { noNullPrototype: true } as const;

/** Few values, so that they meet; with characters below the space, above ASCII, and half of a pair. */
const text = fc.constantFrom('', 'a', 'aa', 'a b', 'b', 'B', 'ä', 'z', 'a\t', '\u{1f333}', '\ud83c', '\uffee');
const id = fc.nat({ max: 40 }).map((n) => `p${String(n).padStart(2, '0')}`);
const age = fc.constantFrom(-10, -1, 0, 1, 2, 3, 50, 150);
const score = fc.constantFrom(-100, -1.5, -0.25, 0, 0.5, 0.75, 1.25, 100);

const document: fc.Arbitrary<Person> = fc.record(
  {
    id,
    name: text,
    age,
    score,
    active: fc.boolean(),
    city: text,
    rank: age,
    address: fc.record({ street: text }, PLAIN),
    tags: fc.array(text, { maxLength: 3 }),
  },
  { requiredKeys: ['id', 'name', 'age', 'score', 'active', 'address'], noNullPrototype: true },
) as fc.Arbitrary<Person>;

/** The documents of `rxdb/plugins/storage-memory` sort as if what is missing were empty, so they are complete for it. */
const complete: fc.Arbitrary<Person> = fc.record(
  {
    id,
    name: fc.constantFrom('a', 'aa', 'b', 'c'),
    age,
    score,
    active: fc.boolean(),
    city: fc.constantFrom('a', 'b'),
    rank: fc.constantFrom(0, 1, 2),
    address: fc.record({ street: fc.constantFrom('a', 'b') }, PLAIN),
  },
  PLAIN,
);

const VALUES = {
  id,
  name: text,
  age,
  score,
  active: fc.boolean(),
  city: text,
  rank: fc.constantFrom(0, 1, 2, 50, 100),
  'address.street': text,
  _deleted: fc.boolean(),
};
type Path = keyof typeof VALUES;
const PATHS = Object.keys(VALUES) as Path[];

const isNumber = (path: Path): boolean => path === 'age' || path === 'score' || path === 'rank';

/**
 * Memory takes a number for the nearest one that the schema allows, and compares strings as if they
 * ended in spaces, so it is asked for neither.
 */
function valueOf(path: Path, isStrange: boolean): fc.Arbitrary<unknown> {
  if (path === 'rank') return isStrange ? age : VALUES.rank;
  return (VALUES[path] as unknown) === text && !isStrange ? fc.constantFrom('a', 'aa', 'b', 'c') : VALUES[path];
}

/** What a selector may ask of a field. */
function condition(path: Path, isStrange: boolean): fc.Arbitrary<unknown> {
  const value = valueOf(path, isStrange);
  const typed = fc.oneof(
    { weight: 3, arbitrary: value },
    { weight: 2, arbitrary: value.map((v) => ({ $eq: v })) },
    { weight: 6, arbitrary: fc.record({ $gt: value, $lt: value }, { requiredKeys: [] }) },
    { weight: 6, arbitrary: fc.record({ $gte: value, $lte: value }, { requiredKeys: [] }) },
    { weight: 2, arbitrary: fc.record({ $gt: value, $lte: value, $gte: value }, { requiredKeys: [] }) },
    { weight: 2, arbitrary: fc.array(value, { maxLength: 3 }).map((list) => ({ $in: list })) },
    { weight: 1, arbitrary: value.map((v) => ({ $ne: v })) },
    { weight: 1, arbitrary: fc.array(value, { maxLength: 2 }).map((list) => ({ $nin: list })) },
  );
  // Memory takes `{}` for no condition; RxDB's matcher takes it for an empty object.
  if (!isStrange)
    return typed.filter((asked) => typeof asked !== 'object' || asked === null || Object.keys(asked).length > 0);
  const other: fc.Arbitrary<unknown> = isNumber(path) ? text : age;
  const strange = fc.oneof(
    fc.boolean().map(($exists) => ({ $exists })),
    fc.constant(null),
    fc.constant({ $eq: null }),
    fc.constant({ $gt: null }),
    fc.constant({ $gte: null, $lte: null }),
    fc.constant({ $eq: undefined }),
    other,
    other.map(($gt) => ({ $gt })),
    other.map(($lte) => ({ $lte })),
    fc.tuple(other, value).map(($in) => ({ $in })),
    fc.constant({ $in: [null, 'a', 1] }),
    fc.constant({ $gt: Number.MIN_SAFE_INTEGER }),
    fc.constant({ $gte: '\uffff' }),
    fc.constant({ $lt: '\uffff' }),
  );
  return fc.oneof({ weight: 5, arbitrary: typed }, { weight: 2, arbitrary: strange });
}

function selector(isStrange: boolean): fc.Arbitrary<object> {
  const flat = fc
    .uniqueArray(fc.constantFrom(...PATHS), { maxLength: 3 })
    .chain((paths) =>
      fc.tuple(...paths.map((path) => condition(path, isStrange).map((asked) => [path, asked] as const))),
    )
    .map((entries) => Object.fromEntries(entries));
  const live = flat.map((asked) => ({ _deleted: { $eq: false }, ...asked }));
  return fc.oneof(
    { weight: 4, arbitrary: live },
    { weight: 4, arbitrary: flat },
    { weight: 1, arbitrary: fc.tuple(flat, flat).map(([one, other]) => ({ $or: [one, other] })) },
    { weight: 1, arbitrary: fc.tuple(flat, live).map(([one, other]) => ({ ...other, $and: [one] })) },
  );
}

/** Also in the orders of indexes, ascending and descending. */
const sort = fc
  .oneof(
    fc.uniqueArray(fc.constantFrom(...PATHS), { minLength: 1, maxLength: 3 }),
    fc.constantFrom<Path[][]>(
      ['name'],
      ['active', 'age'],
      ['age', 'name'],
      ['name', 'active', 'score'],
      ['rank', 'city'],
      ['age', 'name', 'id'],
    ),
  )
  .chain((paths) =>
    fc.oneof(
      fc.constant(paths.map((path) => ({ [path]: 'asc' }))),
      fc.constant(paths.map((path) => ({ [path]: 'desc' }))),
      fc.tuple(...paths.map((path) => fc.constantFrom('asc', 'desc').map((direction) => ({ [path]: direction })))),
    ),
  );

function queryOf(isStrange: boolean): fc.Arbitrary<MangoQuery<Person>> {
  return fc.record(
    {
      selector: selector(isStrange),
      sort,
      skip: fc.nat({ max: 12 }),
      limit: fc.nat({ max: 12 }),
    },
    { requiredKeys: ['selector'] },
  ) as fc.Arbitrary<MangoQuery<Person>>;
}

test('queries and counts find what the selector, the sort, skip and limit mean', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(document, fc.boolean()), { maxLength: 60 }),
      fc.array(queryOf(true), { minLength: 10, maxLength: 10 }),
      (documents, queries) =>
        withInstance(async (instance) => {
          const rows = [...new Map(documents.map((each) => [each[0].id, each])).values()].map(([data, isDeleted]) =>
            row(data, undefined, isDeleted),
          );
          await instance.bulkWrite(rows, 'test');
          const all = await instance.findDocumentsById(
            rows.map((each) => each.document.id),
            true,
          );
          assert.equal(all.length, rows.length);
          for (const query of queries) {
            const prepared = prepare(query);
            const { documents: read } = await instance.query(prepared);
            assert.deepEqual(read, found(all, prepared), JSON.stringify(prepared));
            const { skip: _skip, limit: _limit, ...rest } = query;
            const counted = prepare(rest);
            assert.equal((await instance.count(counted)).count, found(all, counted).length, JSON.stringify(counted));
          }
        }),
    ),
    { numRuns: RUNS },
  );
});

test('a field of several types is found by a bound of each of them', async () => {
  const city = { type: ['string', 'null'], maxLength: 20 };
  const schema = fillWithDefaultSettings<Person>({
    ...PERSON,
    properties: { ...PERSON.properties, city } as unknown as typeof PERSON.properties,
  });
  const cities = [undefined, null, 1, 2, 'a', 'b', false, true];
  const bounds = [1, 2, 'a', 'b', false, true];
  await withInstance(
    async (instance) => {
      const rows = cities.map((each, n) => row(person(`p${n}`, each === undefined ? {} : { city: each as never })));
      await instance.bulkWrite(rows, 'test');
      const all = await instance.findDocumentsById(
        rows.map(({ document: { id } }) => id),
        true,
      );
      for (const bound of bounds) {
        for (const operator of ['$eq', '$gt', '$gte', '$lt', '$lte']) {
          const asked = { city: { [operator]: bound }, _deleted: false } as object;
          const prepared = prepare({ selector: asked, sort: [{ city: 'asc' }] }, schema);
          const { documents } = await instance.query(prepared);
          assert.deepEqual(documents, found(all, prepared), JSON.stringify(asked));
          assert.equal((await instance.count(prepared)).count, documents.length, JSON.stringify(asked));
        }
      }
    },
    { schema },
  );
});

interface Step {
  readonly writes: readonly { readonly data: Person; readonly kind: 'write' | 'delete' | 'stale' }[];
  readonly query: MangoQuery<Person>;
}

const step: fc.Arbitrary<Step> = fc.record({
  writes: fc.uniqueArray(
    fc.record({ data: complete, kind: fc.constantFrom('write', 'write', 'write', 'delete', 'stale') }),
    { maxLength: 12, selector: ({ data }) => data.id },
  ),
  query: queryOf(false),
}) as fc.Arbitrary<Step>;

test("random operations have the results of RxDB's storage in memory", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 12 }), (steps) =>
      withInstance(async (instance) => {
        const memory = await createInstance(getRxStorageMemory(), { databaseName: randomToken(10) });
        const both = [instance, memory] as const;
        let checkpoint: RxStorageDefaultCheckpoint | undefined;
        for (const { writes, query } of steps) {
          const stored = new Map(
            (
              await memory.findDocumentsById(
                writes.map(({ data }) => data.id),
                true,
              )
            ).map((each) => [each.id, each]),
          );
          const rows = writes.map(({ data, kind }) => {
            const previous = stored.get(data.id);
            if (kind === 'stale')
              return previous === undefined ? row(data) : row(data, { ...previous, _rev: '1-stale' });
            return row(data, previous, kind === 'delete');
          });
          const [errors, theirs] = await Promise.all(
            both.map(async (each) => (await each.bulkWrite(rows, 'test')).error),
          );
          assert.deepEqual(errors, theirs);
          const prepared = prepare(query);
          const [mine, others] = await Promise.all(both.map((each) => each.query(prepared)));
          assert.deepEqual(mine, others, JSON.stringify(prepared));
          const changes = await changesIn(memory, checkpoint);
          const changed = await instance.getChangedDocumentsSince!(5, checkpoint);
          assert.deepEqual(changed.documents, changes);
          checkpoint = changed.checkpoint as RxStorageDefaultCheckpoint;
        }
        await memory.remove();
      }),
    ),
    { numRuns: RUNS },
  );
});

/** The next changes after a checkpoint, found among all documents. */
async function changesIn(
  instance: RxStorageInstance<Person, unknown, unknown>,
  { lwt, id: last } = { lwt: 0, id: '' },
): Promise<RxDocumentData<Person>[]> {
  const { documents } = await instance.query(prepare({ selector: {} }));
  const later = documents.filter((each) => each._meta.lwt > lwt || (each._meta.lwt === lwt && each.id > last));
  later.sort((one, other) => one._meta.lwt - other._meta.lwt || (one.id < other.id ? -1 : 1));
  return later.slice(0, 5);
}

test('counts of an index range are fast, and others say that they are not', () =>
  withInstance(async (instance) => {
    await instance.bulkWrite([row(person('a'))], 'test');
    const mode = async (selector: object): Promise<string> =>
      (await instance.count(prepare({ selector } as MangoQuery<Person>))).mode;
    assert.equal(await mode({ _deleted: false, age: { $gt: 0 } }), 'fast');
    assert.equal(await mode({ _deleted: false }), 'fast');
    assert.equal(await mode({ _deleted: false, tags: { $exists: false } }), 'slow');
  }));

test('bounds outside of the schema exclude what they say', () =>
  withInstance(async (instance) => {
    await instance.bulkWrite(
      [row(person('a', { rank: 150 })), row(person('b', { rank: -10 })), row(person('c', { rank: 5 }))],
      'test',
    );
    const find = async (rank: object): Promise<string[]> =>
      (await instance.query(prepare({ selector: { _deleted: false, rank } as never }))).documents.map(
        ({ id: own }) => own,
      );
    assert.deepEqual(await find({ $lt: 150 }), ['b', 'c']);
    assert.deepEqual(await find({ $gt: -10 }), ['c', 'a']);
    assert.equal(
      (await instance.count(prepare({ selector: { _deleted: false, rank: { $lt: 150 } } as never }))).count,
      2,
    );
  }));

test('a query of an index that the schema lacks is refused', () =>
  withInstance(async (instance) => {
    const prepared = prepare({ selector: {}, index: ['score', 'age'] });
    await assert.rejects(instance.query(prepared), { code: 'KV_INVALID_ARGUMENT', message: /"score","age","id"/ });
  }));

test('storages in memory with the same name share what they hold while one is open', async () => {
  const [one, other] = await Promise.all(
    [1, 2].map(() => createInstance(getRxStorageMangrove({ storage: 'memory' }), { databaseName: 'shared' })),
  );
  await one!.bulkWrite([row(person('a'))], 'test');
  await one!.close();
  assert.equal((await other!.findDocumentsById(['a'], false)).length, 1);
  await other!.close();
});
