// Random calls give the same results on localForage, over an implementation of IndexedDB, and on the twin.
import 'fake-indexeddb/auto';
import './support/storage.ts';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import localforage, { close } from '@mangrove-kv/localforage';
import { chance } from '../../../kv/test/support/kit.ts';
import { show } from '../../../migrate/test/support/show.ts';

const RUNS = Number(process.env['TWIN_RUNS'] ?? 20);
const SEED = Number(process.env['TWIN_SEED'] ?? Date.now() % 1_000_000);
const CALLS = 120;

const original = createRequire(import.meta.url)('localforage') as LocalForage;
console.warn = () => undefined;

type Call = (stores: readonly LocalForage[]) => Promise<unknown>;

function generator(seed: number, hasClone: boolean) {
  const next = chance(seed);
  const upTo = (limit: number): number => Math.floor(next() * limit);
  const oneOf = <T>(items: readonly T[]): T => items[upTo(items.length)] as T;
  const key = (): string =>
    oneOf<unknown>(['a', 'b', 'ab', '', '\uffff', '\u{1f333}', 7, null, undefined, 1.5]) as string;
  const value = (depth = 0): unknown =>
    oneOf<() => unknown>([
      () => upTo(1000),
      () => oneOf<unknown>([undefined, null, true, '', 'text', 0.5]),
      () => new Uint16Array([upTo(9), upTo(9)]),
      () => new Uint8Array(upTo(20)).buffer,
      () => (depth > 2 || !hasClone ? 'x' : new Map([[value(depth + 1), new Date(upTo(9))]])),
      () => (depth > 2 || !hasClone ? 'y' : new Set([value(depth + 1), 7n])),
      () => (depth > 2 ? 1 : Array.from({ length: upTo(4) }, () => (hasClone ? value(depth + 1) : upTo(5)))),
      () => (depth > 2 ? 2 : { a: hasClone ? value(depth + 1) : 'a', [`b${upTo(3)}`]: upTo(4) }),
    ])();
  const call = (): [string, Call] => {
    const [at, what, store, index, stop] = [key(), value(), upTo(2), upTo(5) - 1, upTo(4)];
    const on =
      (use: (items: LocalForage) => Promise<unknown>): Call =>
      (stores) =>
        use(stores[store] as LocalForage);
    const withCallback =
      (use: (items: LocalForage, callback: (...args: unknown[]) => void) => void): Call =>
      (stores) =>
        new Promise((resolve) => use(stores[store] as LocalForage, (...args) => resolve(args)));
    return oneOf<[string, Call]>([
      ['setItem', on((items) => items.setItem(at, what))],
      ['setItem', on((items) => items.setItem(at, what))],
      ['setItem by callback', withCallback((items, callback) => void items.setItem(at, what, callback))],
      ['getItem', on((items) => items.getItem(at))],
      ['getItem by callback', withCallback((items, callback) => void items.getItem(at, callback))],
      ['removeItem', on((items) => items.removeItem(at))],
      ['length', on((items) => items.length())],
      ['keys', on((items) => items.keys())],
      ['key', on((items) => items.key(hasClone ? index : -1))],
      [
        'iterate',
        on(async (items) => {
          const seen: unknown[] = [];
          const result = await items.iterate((each, name, number) => {
            seen.push([each, name, number]);
            return number === stop ? name : undefined;
          });
          return [result, seen];
        }),
      ],
      next() < 0.2 ? ['clear', on((items) => items.clear())] : ['keys', on((items) => items.keys())],
      next() < 0.2
        ? ['dropInstance', on((items) => items.dropInstance())]
        : ['getItem', on((items) => items.getItem(at))],
      next() < 0.3 && hasClone
        ? ['setItem refused', on((items) => items.setItem(at, () => 1))]
        : ['length by callback', withCallback((items, callback) => void items.length(callback))],
    ]);
  };
  return { call };
}

const outcome = async (made: Promise<unknown>): Promise<string> => {
  try {
    return await show(await made);
  } catch (error) {
    return `throws ${await show(error)}`;
  }
};

for (const kind of ['INDEXEDDB', 'LOCALSTORAGE'] as const) {
  test(`random calls with ${kind}, seeds ${SEED} to ${SEED + RUNS - 1}`, async () => {
    for (let seed = SEED; seed < SEED + RUNS; seed++) {
      const { call } = generator(seed, kind === 'INDEXEDDB');
      const sides = [
        { library: original, settings: {} },
        { library: localforage, settings: { storage: 'memory' } as const },
      ].map(({ library, settings }, side) =>
        ['one', 'two'].map((storeName) =>
          library.createInstance({ ...settings, name: `model ${seed} ${side}`, storeName, driver: library[kind] }),
        ),
      );
      // One after the other: localForage's calls that are made at once overtake each other.
      for (let made = 0; made < CALLS; made++) {
        const [name, make] = call();
        const results: string[] = [];
        for (const stores of sides) results.push(await outcome(make(stores)));
        const [expected, found] = results;
        if (expected !== found) throw new Error(`seed ${seed}, ${name}: ${found} instead of ${expected}`);
      }
      await close(sides[1]?.[0]);
    }
  });
}
