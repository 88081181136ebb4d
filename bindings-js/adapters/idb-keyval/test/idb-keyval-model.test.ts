// Random calls give the same results on idb-keyval, over an implementation of IndexedDB, and on the twin.
import 'fake-indexeddb/auto';
import { test } from 'node:test';
import * as original from 'idb-keyval';
import * as twin from '@mangrove-kv/idb-keyval';
import { chance } from '../../../kv/test/support/kit.ts';
import { show } from '../../../migrate/test/support/show.ts';

const RUNS = Number(process.env['TWIN_RUNS'] ?? 20);
const SEED = Number(process.env['TWIN_SEED'] ?? Date.now() % 1_000_000);
const CALLS = 120;

type Api = typeof original;
type Call = (api: Api, store: original.UseStore) => Promise<unknown>;

function generator(seed: number) {
  const next = chance(seed);
  const upTo = (limit: number): number => Math.floor(next() * limit);
  const oneOf = <T>(items: readonly T[]): T => items[upTo(items.length)] as T;
  const simpleKey = (): IDBValidKey =>
    oneOf<() => IDBValidKey>([
      () => upTo(6),
      () => `k${upTo(6)}`,
      () => new Date(upTo(4)),
      () => new Uint8Array([upTo(3), upTo(3)]).buffer,
      () => oneOf([-1.5, Number.POSITIVE_INFINITY, '', '\uffff', '\u{1f333}']),
    ])();
  const key = (): IDBValidKey => (next() < 0.2 ? Array.from({ length: upTo(3) }, simpleKey) : simpleKey());
  const badKey = (): never => oneOf<unknown>([null, true, {}, Number.NaN, [undefined]]) as never;
  const value = (depth = 0): unknown =>
    oneOf<() => unknown>([
      () => upTo(1000),
      () => oneOf<unknown>([undefined, null, true, -0, Number.NaN, 7n, '', '\ud800']),
      () => 'x'.repeat(upTo(300)),
      () => new Date(upTo(1000)),
      () => new Uint16Array([upTo(9), upTo(9)]),
      () => new Uint8Array(upTo(20)).buffer,
      () => (depth > 2 ? 1 : Array.from({ length: upTo(4) }, () => value(depth + 1))),
      () => (depth > 2 ? 2 : { a: value(depth + 1), [`b${upTo(3)}`]: value(depth + 1) }),
      () => (depth > 2 ? 3 : new Map([[value(depth + 1), value(depth + 1)]])),
      () => (depth > 2 ? 4 : new Set([value(depth + 1)])),
    ])();
  const list = <T>(item: () => T): T[] => Array.from({ length: upTo(4) }, item);
  /** Returns a call with its arguments, so that both sides make the same. */
  const call = (): [string, Call] => {
    const [one, other, all, bad] = [key(), value(), list(key), badKey()];
    const entries = list((): [IDBValidKey, unknown] => [key(), value()]);
    return oneOf<[string, Call]>([
      ['get', (api, store) => api.get(one, store)],
      ['set', (api, store) => api.set(one, other, store)],
      ['set', (api, store) => api.set(one, other, store)],
      ['setMany', (api, store) => api.setMany(entries, store)],
      ['getMany', (api, store) => api.getMany(all, store)],
      ['del', (api, store) => api.del(one, store)],
      ['delMany', (api, store) => api.delMany(all, store)],
      ['update', (api, store) => api.update(one, (old) => [other, typeof old], store)],
      ['keys', (api, store) => api.keys(store)],
      ['values', (api, store) => api.values(store)],
      ['entries', (api, store) => api.entries(store)],
      next() < 0.2 ? ['clear', (api, store) => api.clear(store)] : ['get', (api, store) => api.get(one, store)],
      next() < 0.3 ? ['bad get', (api, store) => api.get(bad, store)] : ['keys', (api, store) => api.keys(store)],
      next() < 0.3
        ? ['bad set', (api, store) => api.set(one, () => 1, store)]
        : ['get', (api, store) => api.get(one, store)],
      [
        'store',
        (api, store) =>
          store('readwrite', (objects) => {
            objects.put(other, one);
            const read = objects.getAllKeys() as IDBRequest<unknown>;
            return Promise.all([api.promisifyRequest(read), api.promisifyRequest(objects.transaction)]);
          }),
      ],
    ]);
  };
  return { call, upTo };
}

const outcome = async (made: Promise<unknown>): Promise<string> => {
  try {
    return await show(await made);
  } catch (error) {
    return `throws ${await show(error)}`;
  }
};

test(`random calls, seeds ${SEED} to ${SEED + RUNS - 1}`, async () => {
  for (let seed = SEED; seed < SEED + RUNS; seed++) {
    const { call, upTo } = generator(seed);
    const sides = [original, twin as Api].map((api) => ({
      api,
      store:
        api === original
          ? api.createStore(`model ${seed}`, 'kv')
          : twin.createStore(`twin ${seed}`, 'kv', { storage: 'memory' }),
    }));
    for (let made = 0; made < CALLS; ) {
      // Several at once, so that their order counts.
      const calls = Array.from({ length: 1 + upTo(4) }, call);
      made += calls.length;
      const [expected, found] = await Promise.all(
        sides.map(({ api, store }) => Promise.all(calls.map(([, make]) => outcome(make(api, store))))),
      );
      for (const [index, [name]] of calls.entries()) {
        if (expected?.[index] !== found?.[index])
          throw new Error(`seed ${seed}, ${name}: ${found?.[index]} instead of ${expected?.[index]}`);
      }
    }
    const [expected, found] = await Promise.all(sides.map(({ api, store }) => outcome(api.entries(store))));
    if (expected !== found) throw new Error(`seed ${seed}: entries ${found} instead of ${expected}`);
    await twin.close(sides[1]?.store);
  }
});
