// The types of both packages are the same, so that a program compiles with the changed import.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type * as original from 'idb-keyval';
import * as twin from '@mangrove-kv/idb-keyval';

type IsExact<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type Exports = keyof typeof original;
type Functions = { readonly [P in Exports]: IsExact<(typeof original)[P], (typeof twin)[P]> };

/** `createStore` takes options besides; all else is equal. */
const functions: Functions = {
  promisifyRequest: true,
  createStore: false,
  get: true,
  set: true,
  setMany: true,
  getMany: true,
  update: true,
  del: true,
  delMany: true,
  clear: true,
  keys: true,
  values: true,
  entries: true,
};
const useStore: IsExact<original.UseStore, twin.UseStore> = true;
const createStore: typeof original.createStore = twin.createStore;

test('the twin has the exports of idb-keyval', async () => {
  const names = Object.keys(await import('idb-keyval'));
  assert.deepEqual(names.filter((name) => !(name in twin)).sort(), []);
  assert.deepEqual(Object.keys(functions).sort(), names.sort());
  assert.ok(useStore && createStore === twin.createStore);
});

// The cases called "types" of idb-keyval.
export async function types(): Promise<void> {
  const { entries, getMany, keys, values } = twin;
  const all = [await keys(), await keys<number>(), await values(), await values<number>()] as const;
  // biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
  const checked: IsExact<typeof all, readonly [IDBValidKey[], number[], any[], number[]]> = true;
  const pairs = [await entries(), await entries<number, string>()] as const;
  // biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
  const checkedPairs: IsExact<typeof pairs, readonly [[IDBValidKey, any][], [number, string][]]> = true;
  const many = [await getMany([1]), await getMany<number>([1])] as const;
  // biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
  const checkedMany: IsExact<typeof many, readonly [any[], (number | undefined)[]]> = true;
  // @ts-expect-error An element is no key.
  await keys<HTMLImageElement>();
  // @ts-expect-error An element is no key.
  await entries<HTMLImageElement, string>();
  assert.ok(checked && checkedPairs && checkedMany);
}
