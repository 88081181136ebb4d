// What idb-keyval 6.3 does, as cases that idb-keyval itself and its twin pass. idb-keyval publishes no tests; the cases
// named in `UPSTREAM` have the names of those in its repository and were written anew.
import type * as idbKeyval from 'idb-keyval';
import { failsWith, same } from '../../../../migrate/test/support/show.ts';
import type { Case } from '../../../../migrate/test/support/show.ts';

export type Api = typeof idbKeyval;

/** All cases of test/index.ts of idb-keyval. Those called "types" are in `idb-keyval-types.test.ts`. */
export const UPSTREAM = [
  'The basics: get & set',
  'The basics: del',
  'The basics: clear',
  'get & set: number keys',
  'get & set: array keys - expected fail in IE',
  'get & set: number values',
  'get & set: object values',
  'get & set: custom store',
  'get & set: error types',
  'del: error types',
  'del: custom store',
  'clear: custom store',
  'keys: basics',
  'keys: custom store',
  'keys: types',
  'values: basics',
  'values: custom store',
  'values: types',
  'entries: basics',
  'entries: custom store',
  'entries: types',
  'setMany: basics',
  'setMany: zero entries',
  'setMany: custom store',
  'getMany: basics',
  'getMany: zero entries',
  'getMany: custom store',
  'getMany: types',
  'update: basics',
  'update: error types',
  'update: custom store',
  'delMany: basics',
  'delMany: delete selected keys',
  'delMany: custom store',
];

type Body = (api: Api, custom: idbKeyval.UseStore) => Promise<void>;
const cases: Case<Api>[] = [];
const customs = new WeakMap<Api, idbKeyval.UseStore>();

function it(name: string, body: Body): void {
  cases.push({
    name,
    async run(api) {
      const custom = customs.get(api) ?? api.createStore('custom-db', 'custom-kv');
      customs.set(api, custom);
      await Promise.all([api.clear(), api.clear(custom)]);
      await body(api, custom);
    },
  });
}

/** What no implementation can store. */
const unclonable: unknown = typeof document === 'undefined' ? () => 1 : document;
const increment = (old: number | undefined): number => (old ?? 0) + 1;

it('The basics: get & set', async ({ get, set }) => {
  await set('foo', 'bar');
  await same(await get('foo'), 'bar');
  await same(await get('food'), undefined);
});

it('The basics: del', async ({ get, set, del }) => {
  await set('foo', 'bar');
  await same(await del('foo'), undefined);
  await same(await get('foo'), undefined);
  await del('food');
});

it('The basics: clear', async ({ get, set, clear, keys }) => {
  await set('foo', 'bar');
  await set('hello', 'world');
  await clear();
  await same([await get('foo'), await get('hello'), await keys()], [undefined, undefined, []]);
});

it('get & set: number keys', async ({ get, set }) => {
  await set(123, 'hello');
  await same([await get(123), await get('123')], ['hello', undefined]);
});

it('get & set: array keys - expected fail in IE', async ({ get, set }) => {
  await set([123, '456'], 'hello');
  await same([await get([123, '456']), await get(['456', 123])], ['hello', undefined]);
});

it('get & set: number values', async ({ get, set }) => {
  await set(123, 456);
  await same(await get(123), 456);
});

it('get & set: object values', async ({ get, set }) => {
  const value = { foo: 123, hello: 'world' };
  await set(123, value);
  const found = await get<object>(123);
  await same(found, value);
  if (found === value) throw new Error('the same object');
});

it('get & set: custom store', async ({ get, set }, custom) => {
  await set('foo', 'bar', custom);
  await same([await get('foo'), await get('foo', custom)], [undefined, 'bar']);
});

it('get & set: error types', async ({ get, set, keys }) => {
  await failsWith(set({} as never, 'foo'), 'DataError');
  await failsWith(set('yo', unclonable), 'DataCloneError');
  await failsWith(get({} as never), 'DataError');
  await same(await keys(), []);
});

it('del: error types', async ({ del }) => failsWith(del({} as never), 'DataError'));

it('del: custom store', async ({ get, set, del }, custom) => {
  await set('foo', 'bar');
  await set('foo', 'yo', custom);
  await del('foo', custom);
  await same([await get('foo'), await get('foo', custom)], ['bar', undefined]);
});

it('clear: custom store', async ({ get, set, clear }, custom) => {
  await set('foo', 'bar');
  await set('foo', 'yo', custom);
  await clear(custom);
  await same([await get('foo'), await get('foo', custom)], ['bar', undefined]);
});

it('keys: basics', async ({ set, keys }) => {
  await set('foo', 'bar');
  await set(123, '456');
  await same(await keys(), [123, 'foo']);
});

it('keys: custom store', async ({ set, keys }, custom) => {
  await set('foo', 'bar');
  await set(123, '456', custom);
  await set('hello', 'world', custom);
  await same(await keys(custom), [123, 'hello']);
});

it('values: basics', async ({ set, values }) => {
  await set('foo', 'bar');
  await set(123, '456');
  await set(124, { foo: 'bar' });
  await same(await values(), ['456', { foo: 'bar' }, 'bar']);
});

it('values: custom store', async ({ set, values }, custom) => {
  await set('foo', 'bar');
  await set(123, '456', custom);
  await set('hello', 'world', custom);
  await same(await values(custom), ['456', 'world']);
});

it('entries: basics', async ({ set, entries }) => {
  await set('foo', 'bar');
  await set(123, '456');
  await same(await entries(), [
    [123, '456'],
    ['foo', 'bar'],
  ]);
});

it('entries: custom store', async ({ set, entries }, custom) => {
  await set('foo', 'bar');
  await set(123, '456', custom);
  await set('hello', 'world', custom);
  await same(await entries(custom), [
    [123, '456'],
    ['hello', 'world'],
  ]);
});

it('setMany: basics', async ({ setMany, entries }) => {
  const result = await setMany([
    ['foo', 'bar'],
    [123, '456'],
  ]);
  await same(
    [result, await entries()],
    [
      undefined,
      [
        [123, '456'],
        ['foo', 'bar'],
      ],
    ],
  );
});

it('setMany: zero entries', async ({ setMany, entries }) => {
  await setMany([]);
  await same(await entries(), []);
});

it('setMany: custom store', async ({ setMany, keys }, custom) => {
  await setMany([
    ['foo', 'bar'],
    [123, '456'],
  ]);
  await setMany(
    [
      ['hello', 'world'],
      [456, '789'],
    ],
    custom,
  );
  await same(
    [await keys(), await keys(custom)],
    [
      [123, 'foo'],
      [456, 'hello'],
    ],
  );
});

it('getMany: basics', async ({ setMany, getMany }) => {
  await setMany([
    ['foo', 'bar'],
    [123, '456'],
    ['hello', 'world'],
  ]);
  await same(await getMany(['foo', 123, 'yo', 'foo']), ['bar', '456', undefined, 'bar']);
});

it('getMany: zero entries', async ({ getMany }) => same(await getMany([]), []));

it('getMany: custom store', async ({ setMany, set, getMany }, custom) => {
  await setMany([['hello', 'world']]);
  await set('yo', 'ok', custom);
  await same(await getMany(['yo', 'hello'], custom), ['ok', undefined]);
});

it('update: basics', async ({ update, get }) => {
  const results = await Promise.all([
    update('count', increment),
    update('count', increment),
    update('count', increment),
  ]);
  await same([results, await get('count')], [[undefined, undefined, undefined], 3]);
});

it('update: error types', async ({ update, keys }) => {
  await failsWith(
    update('count', () => unclonable),
    'DataCloneError',
  );
  await failsWith(
    update({} as never, () => 1),
    'DataError',
  );
  await failsWith(
    update('count', async () => 1),
    'DataCloneError',
  );
  await failsWith(
    update('count', () => {
      throw new RangeError('mine');
    }),
    'RangeError',
  );
  await same(await keys(), []);
});

it('update: custom store', async ({ update, get }, custom) => {
  await Promise.all([
    update('count', increment),
    update('count', increment),
    update('count', increment),
    update('count', increment, custom),
    update('count', increment, custom),
  ]);
  await same([await get('count'), await get('count', custom)], [3, 2]);
});

it('delMany: basics', async ({ setMany, delMany, getMany }) => {
  await setMany([
    ['foo', 'bar'],
    [123, '456'],
  ]);
  await same(await delMany(['foo', 123]), undefined);
  await same(await getMany(['foo', 123]), [undefined, undefined]);
});

it('delMany: delete selected keys', async ({ setMany, delMany, getMany }) => {
  await setMany([
    ['foo', 'bar'],
    [123, '456'],
    ['hello', 'world'],
  ]);
  await delMany(['foo', 123, 'does-not-exist']);
  await same(await getMany(['foo', 123, 'hello']), [undefined, undefined, 'world']);
});

it('delMany: custom store', async ({ setMany, delMany, keys }, custom) => {
  await setMany([['hello', 'bar']]);
  await setMany(
    [
      ['hello', 'world'],
      [456, '789'],
      [1122, '3344'],
    ],
    custom,
  );
  await delMany(['hello', 456], custom);
  await same([await keys(), await keys(custom)], [['hello'], [1122]]);
});

// Beyond idb-keyval's own cases.

it('keys of every kind, in the order of IndexedDB', async ({ setMany, keys, get }) => {
  const ordered: IDBValidKey[] = [
    Number.NEGATIVE_INFINITY,
    -1.5,
    0,
    1e300,
    Number.POSITIVE_INFINITY,
    new Date(-5),
    new Date(5),
    '',
    'a',
    'a\u0000',
    'b',
    '\u{1f333}',
    '\uffff',
    new Uint8Array([1, 2]).buffer,
    new Uint8Array([2]).buffer,
    [],
    [1, [new Date(1), 'x']],
    ['a'],
    [new Uint8Array([3]).buffer],
    [[]],
  ];
  await setMany(ordered.map((key, index) => [key, index] as [IDBValidKey, number]).reverse());
  await same(await keys(), ordered);
  for (const [index, key] of ordered.entries()) await same(await get(key), index);
  await same(await get(new Uint8Array([1, 2])), 13, 'by a view');
  await same(await get(-0), 2, 'by -0');
});

it('an empty binary is a key', async ({ set, get, keys }) => {
  await set(new ArrayBuffer(0), 'empty');
  await same([await get(new Uint8Array(0)), await keys()], ['empty', [new ArrayBuffer(0)]]);
});

it('keys that are none', async ({ set, get, keys }) => {
  const cycle: unknown[] = [];
  cycle.push(cycle);
  for (const key of [undefined, null, true, 1n, Number.NaN, new Date(Number.NaN), /x/, {}, [null], [1, , 2], cycle]) {
    await failsWith(set(key as never, 1), 'DataError');
    await failsWith(get(key as never), 'DataError');
  }
  await same(await keys(), []);
});

it('values of every kind', async ({ set, get, values }) => {
  const cycle: Record<string, unknown> = { name: 'cycle' };
  cycle['self'] = cycle;
  const shared = { shared: true };
  const all: unknown[] = [
    undefined,
    null,
    true,
    -0,
    Number.NaN,
    12n,
    '',
    '\ud800',
    new Date(7),
    /x+/gi,
    new Map<unknown, unknown>([[{ key: 1 }, new Set([1n, undefined])]]),
    [1, , undefined],
    Object.assign([1], { named: 'x' }),
    new Uint8Array([1, 2, 3]).buffer,
    new Float64Array([0.5, Number.NaN]),
    new DataView(new ArrayBuffer(2)),
    new TypeError('text'),
    Object('boxed') as unknown,
    cycle,
    [shared, shared],
    { undefined, nested: { deep: [{}] } },
    { '@mangrove-kv/clone': [1, []] },
    JSON.parse('{"__proto__": 1}') as unknown,
  ];
  for (const [index, value] of all.entries()) await set(index, value);
  for (const [index, value] of all.entries()) await same(await get(index), value, `value ${index}`);
  const [one, other] = (await get(19)) as [object, object];
  if (one !== other) throw new Error('not shared');
  await same(await values(), all);
});

it('undefined is a value', async ({ set, get, keys, entries }) => {
  await set('a', undefined);
  await same([await get('a'), await keys(), await entries()], [undefined, ['a'], [['a', undefined]]]);
});

it('Blobs, alone and within values', async ({ set, setMany, get, values, update }) => {
  const blob = new Blob(['text'], { type: 'text/plain' });
  await set('a', blob);
  await setMany([
    ['b', { list: [blob, new Blob([])], map: new Map([[blob, new Set([blob])]]) }],
    ['c', 1],
  ]);
  await update('d', () => blob);
  await same(await get('a'), blob);
  await same(await values(), [blob, { list: [blob, new Blob([])], map: new Map([[blob, new Set([blob])]]) }, 1, blob]);
});

it('calls take effect in the order in which they are made', async ({ set, get, del, update, clear, keys }) => {
  const big = new Blob(['x'.repeat(100_000)]);
  const found = await Promise.all([
    set('a', big),
    set('a', 'after the blob'),
    get('a'),
    update('a', (old) => `${String(old)}!`),
    get('a'),
    del('a'),
    keys(),
    set('b', big),
    clear(),
    keys(),
    set('c', 1),
    keys(),
  ]);
  // Without a Blob before it.
  await same(await Promise.all([set('n', 1), update('n', increment), get('n')]), [undefined, undefined, 2]);
  await same(found, [
    undefined,
    undefined,
    'after the blob',
    undefined,
    'after the blob!',
    undefined,
    [],
    undefined,
    undefined,
    [],
    undefined,
    ['c'],
  ]);
});

it('a value is copied when it is stored', async ({ set, get }) => {
  const value = { list: [1] };
  await set('a', value);
  value.list.push(2);
  await same(await get('a'), { list: [1] });
  ((await get('a')) as { list: number[] }).list.push(3);
  await same(await get('a'), { list: [1] });
});

it('a store is a function that calls back with an object store', async ({ promisifyRequest, get, entries }, custom) => {
  const result = await custom('readwrite', (store) => {
    store.put('one', 1);
    store.put('two', 2);
    return promisifyRequest(store.transaction).then(() => 'done');
  });
  await same(result, 'done');
  await same(await get(2, custom), 'two');
  await same(
    await custom('readonly', (store) =>
      Promise.all([
        promisifyRequest(store.get(1)),
        promisifyRequest(store.getKey(2) as IDBRequest<unknown>),
        promisifyRequest(store.count()),
        promisifyRequest(store.getAll(null, 1)),
        promisifyRequest(store.getAllKeys() as IDBRequest<unknown>),
      ]),
    ),
    ['one', 2, 2, ['one'], [1, 2]],
  );
  await same(await custom('readonly', (store) => [store.name, store.keyPath, store.transaction.mode]), [
    'custom-kv',
    null,
    'readonly',
  ]);
  await custom('readwrite', (store) => {
    store.delete(1);
    return promisifyRequest(store.transaction);
  });
  await same(await entries(custom), [[2, 'two']]);
  await custom('readwrite', (store) => promisifyRequest(store.clear()));
  await same(await entries(custom), []);
});

it('a transaction of a store reads what it has written, and continues in callbacks', async (api, custom) => {
  await api.set('n', 1, custom);
  const seen = await custom(
    'readwrite',
    (store) =>
      new Promise((resolve, reject) => {
        const request = store.get('n');
        request.onsuccess = () => {
          store.put((request.result as number) + 1, 'n');
          const again = store.get('n');
          again.addEventListener('success', () => resolve(again.result));
        };
        store.transaction.onabort = () => reject(store.transaction.error);
      }),
  );
  await same([seen, await api.get('n', custom)], [2, 2]);
});

it('cursors of a store', async (api, custom) => {
  await api.setMany(
    [0, 1, 2, 3, 4, 5].map((key) => [key, `v${key}`] as [number, string]),
    custom,
  );
  const walk = (
    mode: IDBTransactionMode,
    start: (store: IDBObjectStore) => IDBRequest<IDBCursorWithValue | null>,
    step: (cursor: IDBCursorWithValue) => void,
  ): Promise<unknown[]> =>
    custom(
      mode,
      (store) =>
        new Promise((resolve, reject) => {
          const seen: unknown[] = [];
          const request = start(store);
          request.onerror = () => reject(request.error);
          request.onsuccess = () => {
            const cursor = request.result;
            if (cursor === null) return resolve(seen);
            seen.push(cursor.key, cursor.value);
            step(cursor);
          };
        }),
    );
  const range = { lower: 1, upper: 4, lowerOpen: false, upperOpen: true };
  const given = typeof IDBKeyRange === 'undefined' ? (range as IDBKeyRange) : IDBKeyRange.bound(1, 4, false, true);
  await same(
    await walk(
      'readonly',
      (store) => store.openCursor(given),
      (cursor) => cursor.continue(),
    ),
    [1, 'v1', 2, 'v2', 3, 'v3'],
  );
  await same(
    await walk(
      'readonly',
      (store) => store.openCursor(null, 'prev'),
      (cursor) => (cursor.key === 5 ? cursor.continue(2) : cursor.continue()),
    ),
    [5, 'v5', 2, 'v2', 1, 'v1', 0, 'v0'],
  );
  await same(
    await walk(
      'readonly',
      (store) => store.openCursor(),
      (cursor) => cursor.advance(2),
    ),
    [0, 'v0', 2, 'v2', 4, 'v4'],
  );
  await walk(
    'readwrite',
    (store) => store.openCursor(),
    (cursor) => {
      if ((cursor.key as number) % 2 === 0) cursor.delete();
      else cursor.update(`odd ${String(cursor.key)}`);
      cursor.continue();
    },
  );
  await same(await api.entries(custom), [
    [1, 'odd 1'],
    [3, 'odd 3'],
    [5, 'odd 5'],
  ]);
});

it('an aborted transaction of a store changes nothing', async ({ promisifyRequest, keys }, custom) => {
  await failsWith(
    custom('readwrite', async (store) => {
      store.put(1, 'a');
      const ended = promisifyRequest(store.transaction);
      store.transaction.abort();
      await ended.catch((error: unknown) => {
        // IndexedDB reports no error for an abort that was asked for.
        throw error ?? new RangeError('aborted');
      });
    }),
    'RangeError',
  );
  await failsWith(
    custom('readwrite', (store) => {
      store.put(1, 'a');
      store.add(2, 'a');
      // Not `promisifyRequest`, which rejects with the error before the transaction has one.
      return new Promise((_, reject) => {
        store.transaction.onabort = () => reject(store.transaction.error);
      });
    }),
    'ConstraintError',
  );
  await same(await keys(custom), []);
});

it('an object store refuses what IndexedDB refuses', async (_api, custom) => {
  const refuses = (mode: IDBTransactionMode, use: (store: IDBObjectStore) => unknown, name: string): Promise<void> =>
    failsWith(custom(mode, use), name);
  await refuses('readonly', (store) => store.put(1, 1), 'ReadOnlyError');
  await refuses('readonly', (store) => store.clear(), 'ReadOnlyError');
  await refuses('readwrite', (store) => store.put(1, {} as never), 'DataError');
  await refuses('readwrite', (store) => store.put(1), 'DataError');
  await refuses('readwrite', (store) => store.put(() => 1, 1), 'DataCloneError');
  await refuses('readonly', (store) => store.index('none'), 'NotFoundError');
  await refuses('readonly', (store) => store.get(undefined as never), 'DataError');
});

it('a program may bring a store of its own', async (api, custom) => {
  // As the documentation of idb-keyval shows: any function with that signature.
  const modes: string[] = [];
  const own: idbKeyval.UseStore = (mode, callback) => {
    modes.push(mode);
    return custom(mode, callback);
  };
  await api.set('a', 1, own);
  await api.update('a', (old: number | undefined) => (old ?? 0) + 1, own);
  await api.setMany(
    [
      ['b', 2],
      ['c', 3],
    ],
    own,
  );
  await api.del('b', own);
  await api.delMany(['c', 'd'], own);
  await same(
    [await api.get('a', own), await api.getMany(['a', 'b'], own), await api.keys(own), await api.values(own)],
    [2, [2, undefined], ['a'], [2]],
  );
  await same(await api.entries(custom), [['a', 2]]);
  await api.clear(own);
  await same([await api.entries(own), modes.length], [[], 11]);
});

it('stores that were created twice are one', async (api) => {
  const [one, other] = [api.createStore('twice', 'kv'), api.createStore('twice', 'kv')];
  await api.set('a', 1, one);
  await same(await api.get('a', other), 1);
  await api.clear(one);
  await same(await api.keys(other), []);
});

export { cases };
