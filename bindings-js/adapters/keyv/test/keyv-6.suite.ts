// The contract between Keyv 6 and a storage adapter: each scenario runs over Keyv's own Map store
// and over Mangrove's, below Keyv or without it, and must give the same answers. Run by vitest.
import Keyv5 from 'keyv';
import Keyv, { detectKeyvStorage, KeyvMemoryAdapter } from 'keyv-6';
import type { KeyvOptions, KeyvStorageAdapter } from 'keyv-6';
import { keyCodecs, open } from 'mangrove-kv';
import type { Collection } from 'mangrove-kv';
import { KeyvMangrove } from '@mangrove-kv/keyv';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { chance } from '../../../kv/test/support/kit.ts';

const HOUR = 3_600_000;
const VALUES = [
  'text',
  '',
  ':colon',
  ':base64:AAAA',
  'null',
  '\u0000\n"\\',
  'ä漢😀',
  'long '.repeat(4000),
  0,
  -1.5,
  1e300,
  Number.MAX_SAFE_INTEGER,
  2n ** 70n,
  true,
  false,
  null,
  [],
  [null, [1, ['a']]],
  {},
  { a: { b: [{ c: null }] }, '': 0, expires: 1, value: 2 },
];
const KEYS = [
  'k',
  ' ',
  ':',
  '::',
  'a:b',
  'a::b',
  '%3A',
  '__proto__',
  'constructor',
  'ä漢😀',
  '\u0000',
  'b:k',
  '/../',
  'x'.repeat(1000),
];
const NAMESPACES = ['a', 'b', 'ab', 'a:b', 'a%3Ab', 'ä', 'constructor'];
/**
 * Without its own check of expiry, Keyv relies on the store's and calls its `has`; without
 * serialization, the store receives objects.
 */
const MODES: readonly KeyvOptions[] = [{}, { checkExpired: false }, { checkExpired: false, serialization: false }];

/** Makes stores that share their entries, each with its own namespace. */
type Stores = (namespace?: string) => KeyvStorageAdapter;
type Keyvs = (options?: KeyvOptions) => Keyv;
/**
 * A scenario receives an instance with the namespace `n`, and a function that makes others with the
 * same entries.
 */
type Scenarios = readonly (readonly [
  name: string,
  run: (keyv: Keyv, make: Keyvs) => Promise<unknown>,
  answers: unknown,
])[];

const db = await open('test', { storage: 'memory' });
let collections = 0;
const newCollection = (): Collection<string, unknown> =>
  db.collection<string, unknown>(`c${collections++}`, { key: keyCodecs.string });
// Keyv's type demands an event emitter, Keyv itself does not.
const over = (collection: Collection<string, unknown>, namespace?: string): KeyvStorageAdapter =>
  Object.assign(new KeyvMangrove(collection), { namespace }) as unknown as KeyvStorageAdapter;

function storesOf(name: string): Stores {
  const [map, collection] = [new Map<string, unknown>(), newCollection()];
  return (namespace) =>
    name === 'Map'
      ? new KeyvMemoryAdapter(map, namespace === undefined ? {} : { namespace })
      : over(collection, namespace);
}

const keyvsOf =
  (name: string, mode: KeyvOptions, stores = storesOf(name)): Keyvs =>
  (options) =>
    new Keyv({ store: stores(), ...mode, ...options });
/** For methods that stores share with Keyv. */
const aloneOf =
  (name: string, stores = storesOf(name)): Keyvs =>
  (options) =>
    stores(options?.namespace) as unknown as Keyv;

/** Sorted, since a Map has insertion order, a database key order, and the contract none. */
async function entriesOf(from: Keyv | KeyvStorageAdapter): Promise<[string, unknown][]> {
  const entries: [string, unknown][] = [];
  for await (const [key, value] of from.iterator!()) entries.push([key as string, value]);
  return entries.sort(([a], [b]) => (a < b ? -1 : 1));
}

const each = (...keys: string[]): { key: string; value: string }[] => keys.map((key) => ({ key, value: key }));
const pass = (ms: number): void => void vi.setSystemTime(Date.now() + ms);

beforeAll(() => void vi.useFakeTimers({ toFake: ['Date'], now: 1_900_000_000_000 }));
afterAll(() => (vi.useRealTimers(), db.close()));

const ofBoth: Scenarios = [
  [
    'values come back unchanged',
    async (keyv) => {
      for (const [n, value] of VALUES.entries()) expect(await keyv.set(`k${n}`, value)).toBe(true);
      return Promise.all(VALUES.map((_, n) => keyv.get(`k${n}`)));
    },
    VALUES,
  ],
  [
    'a missing key gives undefined or false',
    async (keyv) => {
      await keyv.set('kk', 1);
      return [
        await keyv.get('k'),
        await keyv.has('k'),
        await keyv.delete('k'),
        await keyv.get('kkk'),
        await keyv.get('kk'),
      ];
    },
    [undefined, false, false, undefined, 1],
  ],
  [
    'any string is a valid key',
    async (keyv) => {
      for (const [n, key] of KEYS.entries()) await keyv.set(key, n);
      return [
        await keyv.getMany(KEYS),
        new Map(await entriesOf(keyv)),
        await keyv.deleteMany(KEYS),
        await entriesOf(keyv),
      ];
    },
    [[...KEYS.keys()], new Map(KEYS.map((key, n) => [key, n])), KEYS.map(() => true), []],
  ],
  [
    'answers for many keys have the same order as the keys',
    async (keyv) => {
      await keyv.setMany<unknown>([
        { key: 'b', value: false },
        { key: 'a', value: 0 },
        { key: 'c', value: null },
      ]);
      const keys = ['c', 'x', 'a', 'b', 'c'];
      return [await keyv.getMany(keys), await keyv.hasMany(keys), await keyv.getMany([]), await keyv.hasMany([])];
    },
    [[null, undefined, 0, false, null], [true, false, true, true, true], [], []],
  ],
  [
    'setMany answers for each entry, and the last entry of a key wins',
    async (keyv) => [
      await keyv.setMany([
        { key: 'a', value: 1 },
        { key: 'b', value: 2 },
        { key: 'a', value: 3 },
      ]),
      await keyv.setMany([]),
      await entriesOf(keyv),
    ],
    [
      [true, true, true],
      [],
      [
        ['a', 3],
        ['b', 2],
      ],
    ],
  ],
  [
    'deleting reports for each key whether it existed, and leaves other keys',
    async (keyv) => {
      await keyv.setMany(each('a', 'b', 'c', 'e'));
      const one = [await keyv.delete('e'), await keyv.delete('e'), await keyv.delete('x')];
      return [one, await keyv.deleteMany(['c', 'x', 'a', 'c']), await keyv.deleteMany([]), await entriesOf(keyv)];
    },
    [[true, false, false], [true, false, true, false], [], [['b', 'b']]],
  ],
  [
    'namespaces are separate in every call',
    async (keyv, make) => {
      const others = NAMESPACES.map((namespace) => make({ namespace }));
      for (const other of others) await other.setMany(each('k', 'n:k'));
      const before = [
        await keyv.get('k'),
        await keyv.getMany(['k', 'b:k']),
        await keyv.has('k'),
        await keyv.hasMany(['k', 'n:k']),
        await entriesOf(keyv),
      ];
      const removed = [await keyv.delete('k'), await keyv.deleteMany(['k', 'a:k']), await keyv.clear()];
      return [before, removed, (await Promise.all(others.map((other) => other.hasMany(['k', 'n:k'])))).flat()];
    },
    [
      [undefined, [undefined, undefined], false, [false, false], []],
      [false, [false, false], undefined],
      NAMESPACES.flatMap(() => [true, true]),
    ],
  ],
  [
    'clear empties only its namespace, or everything without one',
    async (_, make) => {
      const keyvs = [...NAMESPACES.map((namespace) => make({ namespace })), make()];
      for (const keyv of keyvs) await keyv.setMany(each('k', 'k2'));
      const left: boolean[][] = [];
      for (const keyv of keyvs) {
        await keyv.clear();
        left.push((await Promise.all(keyvs.map((other) => other.hasMany(['k', 'k2'])))).flat());
      }
      return left;
    },
    [...NAMESPACES, ''].map((_, n, all) => all.flatMap((_, other) => [other > n, other > n])),
  ],
  [
    'the namespace of an instance may change',
    async (keyv, make) => {
      await keyv.set('k', 'in n');
      keyv.namespace = 'b';
      const other = await keyv.get('k');
      await keyv.set('k', 'in b');
      keyv.namespace = 'n';
      return [other, await keyv.get('k'), await entriesOf(keyv), await make({ namespace: 'b' }).get('k')];
    },
    [undefined, 'in n', [['k', 'in n']], 'in b'],
  ],
  [
    'the iterator yields each entry of its namespace once, however many there are',
    async (keyv, make) => {
      for (const namespace of ['n1', 'n:1', '']) await make({ namespace }).set('k', 1);
      await keyv.setMany(each(...Array.from({ length: 2000 }, (_, n) => `k${n}`)));
      const entries = await entriesOf(keyv);
      return [
        entries.length,
        new Set(entries.map(([key]) => key)).size,
        entries.every(([key, value]) => key === value),
      ];
    },
    [2000, 2000, true],
  ],
  [
    'an iterator may be left early, and its entries deleted meanwhile',
    async (keyv) => {
      await keyv.setMany(each('a', 'b', 'c', 'd', 'e'));
      for await (const [key] of keyv.iterator()) if (await keyv.delete(key)) break;
      const deleted: boolean[] = [];
      for await (const [key] of keyv.iterator()) deleted.push(await keyv.delete(key));
      return [deleted, await entriesOf(keyv)];
    },
    [Array(4).fill(true), []],
  ],
];

const ofKeyv: Scenarios = [
  [
    'undefined is an ordinary value',
    async (keyv) => [
      await keyv.set('u', undefined),
      await keyv.get('u'),
      await keyv.has('u'),
      await keyv.delete('u'),
      await keyv.has('u'),
    ],
    [true, undefined, true, true, false],
  ],
  [
    'a list of keys may be passed for a key',
    async (keyv) => {
      await keyv.setMany(each('a', 'b'));
      return [
        await keyv.get(['x', 'a']),
        await keyv.has(['b', 'x']),
        await keyv.delete(['x', 'b']),
        await entriesOf(keyv),
        await keyv.getRaw('b'),
      ];
    },
    [[undefined, 'a'], [true, false], [false, true], [['a', 'a']], undefined],
  ],
  [
    'a later value replaces an earlier one and its expiry',
    async (keyv) => {
      for (const [key, value, ttl] of [
        ['a', 1, 1000],
        ['a', 2],
        ['b', 1],
        ['b', 2, 1000],
      ] as const)
        await keyv.set(key, value, ttl);
      pass(1010);
      return keyv.getMany(['a', 'b']);
    },
    [2, undefined],
  ],
  [
    'an entry exists until it expires and not after, for every reader',
    async (keyv) => {
      await keyv.setMany([
        { key: 'short', value: 1, ttl: 1000 },
        { key: 'long', value: 2, ttl: HOUR },
      ]);
      const keys = ['long', 'short'];
      const look = async (): Promise<unknown> => [
        await entriesOf(keyv),
        await keyv.get('short'),
        await keyv.getMany(keys),
        await keyv.has('short'),
        await keyv.hasMany(keys),
      ];
      pass(990);
      const before = await look();
      pass(20);
      return [before, await look()];
    },
    [
      [
        [
          ['long', 2],
          ['short', 1],
        ],
        1,
        [2, 1],
        true,
        [true, true],
      ],
      [[['long', 2]], undefined, [2, undefined], false, [true, false]],
    ],
  ],
  [
    'the time to live of an entry overrides that of the instance; an invalid one means never',
    async (_, make) => {
      const keyv = make({ ttl: 1000 });
      for (const [n, ttl] of [undefined, 500.5, 2000, 0, -1, Infinity, NaN].entries()) await keyv.set(`${n}`, n, ttl);
      const keys = ['0', '1', '2', '3', '4', '5', '6'];
      pass(510);
      const first = await keyv.getMany(keys);
      pass(1000);
      return [first, await keyv.getMany(keys)];
    },
    [
      [0, undefined, 2, 3, 4, 5, 6],
      [undefined, undefined, 2, 3, 4, 5, 6],
    ],
  ],
  [
    'raw entries keep their expiry',
    async (keyv) => {
      const now = Date.now();
      const [soon, past, ever] = [{ value: 3, expires: now + 10.5 }, { value: 2, expires: now - 1 }, { value: 4 }];
      const answers = [
        await keyv.setManyRaw([
          { key: 'past', value: past },
          { key: 'soon', value: soon },
        ]),
        await keyv.setRaw('ever', ever),
      ];
      expect(await keyv.getManyRaw(['soon', 'past', 'ever'])).toEqual([soon, undefined, ever]);
      pass(20);
      return [answers, await keyv.getManyRaw(['soon', 'ever']), await keyv.getRaw('ever')];
    },
    [[[true, true], true], [undefined, { value: 4 }], { value: 4 }],
  ],
  [
    'an instance that disconnects leaves its entries to others',
    async (keyv, make) => {
      const other = make({ namespace: 'n' });
      await keyv.set('k', 1);
      const heard = new Promise((resolve) => {
        keyv.on('disconnect', () => resolve('heard'));
      });
      await keyv.disconnect();
      return [await heard, await other.get('k'), await other.set('k', 2), await keyv.get('k')];
    },
    ['heard', 1, true, 2],
  ],
];

async function expectSame(
  ways: readonly ((name: string) => Keyvs)[],
  run: Scenarios[number][1],
  answers: unknown,
): Promise<void> {
  for (const [n, way] of ways.entries()) {
    for (const name of ['Map', 'Mangrove']) {
      const make = way(name);
      expect(await run(make({ namespace: 'n' }), make), `${name}, way ${n}`).toEqual(answers);
    }
  }
}

const belowKeyv = MODES.map(
  (mode) =>
    (name: string): Keyvs =>
      keyvsOf(name, mode),
);
it.each(ofKeyv)('below Keyv: %s', (_, run, answers) => expectSame(belowKeyv, run, answers));
it.each(ofBoth)('below Keyv and without it: %s', (_, run, answers) =>
  expectSame([...belowKeyv, aloneOf], run, answers),
);

it.each(['Map', 'Mangrove'])(
  'a store, %s: expires is a Unix time; if past, there is no entry; if not a number, it means never',
  async (name) => {
    const store = storesOf(name)('n');
    const times = [-1, 0, 1, Date.now() - 1, Date.now() + 10.5, Date.now() + HOUR, undefined, NaN, Infinity];
    const keys = times.map((_, n) => `${n}`);
    await store.setMany(times.map((expires, n) => ({ key: `${n}`, value: n, expires: expires as number })));
    expect(await store.getMany(keys)).toEqual([...Array(4), 4, 5, 6, 7, 8]);
    pass(20);
    for (const n of [6, 7, 8]) await store.set(`${n}`, 'again', times[n]);
    expect(await store.getMany(keys)).toEqual([...Array(5), 5, 'again', 'again', 'again']);
    expect(await store.hasMany(keys)).toEqual([...Array(5).fill(false), ...Array(4).fill(true)]);
    expect((await entriesOf(store)).map(([key]) => key)).toEqual(['5', '6', '7', '8']);
  },
);

it.each([
  [1, [undefined]],
  [2, NAMESPACES],
  [3, NAMESPACES],
] as const)('random calls, seed %i', async (seed, namespaces) => {
  const random = chance(seed);
  const one = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  // A Map keeps expired entries until they are read, so `hasMany` precedes calls that report
  // whether an entry was deleted. A clear is rare.
  const calls: readonly ((
    keyv: Keyv,
    keys: string[],
    entries: { key: string; value: unknown; ttl?: number }[],
  ) => Promise<unknown[]>)[] = [
    (keyv, _, entries) => keyv.setMany(entries),
    (keyv, _, entries) => Promise.all(entries.map(({ key, value, ttl }) => keyv.set(key, value, ttl))),
    (keyv, keys) => keyv.getMany(keys),
    (keyv, keys) => Promise.all(keys.map((key) => keyv.get(key))),
    (keyv, keys) => keyv.hasMany(keys),
    async (keyv, keys) => [await keyv.hasMany(keys), await keyv.deleteMany(keys)],
    async (keyv, keys) => [await keyv.hasMany(keys), await Promise.all(keys.map((key) => keyv.delete(key)))],
    async (keyv, keys) => (keys[0] === 'k' ? [await keyv.clear()] : []),
    (keyv) => entriesOf(keyv),
  ];
  for (const mode of MODES) {
    const instances = (make: Keyvs): Keyv[] =>
      namespaces.map((namespace) => make(namespace === undefined ? {} : { namespace }));
    const [map, mangrove] = [instances(keyvsOf('Map', mode)), instances(keyvsOf('Mangrove', mode))];
    let found = 0;
    for (let step = 0; step < 400; step++) {
      // The clock stands at multiples of ten, so that no entry expires right now.
      pass(10);
      const [which, call, keys] = [
        one([...map.keys()]),
        one(calls),
        Array.from({ length: one([1, 2, 5]) }, () => one(KEYS)),
      ];
      const entries = keys.map((key) => ({
        key,
        value: one(VALUES),
        ...(random() < 0.5 && { ttl: one([5, 55, 205, 2005]) }),
      }));
      const answer = await call(map[which] as Keyv, keys, entries);
      expect(await call(mangrove[which] as Keyv, keys, entries), `step ${step}: ${call}`).toEqual(answer);
      found += answer.flat().filter(Boolean).length;
    }
    expect(found).toBeGreaterThan(400);
  }
});

it('a store is used as it is, without a bridge', () => {
  const store = over(newCollection(), 'own');
  const keyv = new Keyv({ store });
  expect([keyv.store === store, keyv.namespace, detectKeyvStorage(store).store]).toEqual([true, 'own', 'keyvStorage']);
});

it('a failure is an error event, and answered as if nothing was found or done', async () => {
  const closed = await open('closed', { storage: 'memory' });
  const keyv = new Keyv({ store: over(closed.collection('c', { key: keyCodecs.string })), namespace: 'n' });
  const codes: unknown[] = [];
  keyv.on('error', (error: { code?: unknown }) => codes.push(error.code));
  await keyv.set('k', 1);
  await closed.close();
  expect([
    await keyv.set('k', 2),
    await keyv.get('k'),
    await keyv.has('k'),
    await keyv.delete('k'),
    await keyv.setMany(each('k')),
    await keyv.getMany(['k']),
    await keyv.hasMany(['k']),
    await keyv.deleteMany(['k']),
    await keyv.clear(),
    await entriesOf(keyv),
  ]).toEqual([false, undefined, false, false, [false], [undefined], [false], [false], undefined, []]);
  expect(codes).toEqual(Array(10).fill('KV_CLOSED'));
});

it('expired entries cannot be deleted, and purging reclaims their space', async () => {
  const cache = await open('cache', { storage: 'memory' });
  const store = over(cache.collection('c', { key: keyCodecs.string }), 'n');
  await store.setMany(
    ['a', 'b', 'c', 'd'].map((key, n) => ({ key, value: n, expires: Date.now() + 10 + Math.floor(n / 2) * HOUR })),
  );
  pass(20);
  expect([await store.delete('a'), await store.deleteMany(['b', 'd'])]).toEqual([false, [false, true]]);
  expect([await cache.purgeExpired(), await entriesOf(store)]).toEqual([2, [['c', 2]]]);
  await cache.close();
});

it('Keyv 6 finds what Keyv 5 stored in a namespace', async () => {
  const make = storesOf('Mangrove');
  const before = new Keyv5({ store: make(), namespace: 'upgraded' });
  await before.set('a', { n: 1 }, 0.5 + HOUR);
  await before.set('b', 2, Infinity);
  const keyv = new Keyv({ store: make(), namespace: 'upgraded' });
  expect(await keyv.get(['a', 'b'])).toEqual([{ n: 1 }, 2]);
  expect(await keyv.deleteMany(['a', 'missing', 'b'])).toEqual([true, false, true]);
  expect(await before.has('a')).toBe(false);
});

it('a namespace does not overlap one that begins with its name and a colon', async () => {
  const make = keyvsOf('Mangrove', {});
  const [outer, inner, escaped] = ['a', 'a:b', 'a%3Ab'].map((namespace) => make({ namespace })) as [Keyv, Keyv, Keyv];
  await inner.set('c', 1);
  await escaped.set('c', 2);
  await outer.set('b:c', 3);
  expect(await Promise.all([inner, escaped, outer].map((keyv) => keyv.get('c')))).toEqual([1, 2, undefined]);
  await outer.clear();
  expect(await inner.get('c')).toBe(1);
});
