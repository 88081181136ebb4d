// The test suite of Keyv 6 for storage adapters, on the store alone and below Keyv; vitest runs it.
import Keyv5 from 'keyv';
import Keyv from 'keyv-6';
import type { KeyvStorageAdapter } from 'keyv-6';
import { keyCodecs, open } from 'mangrove-kv';
import { KeyvMangrove } from 'mangrove-kv/keyv';
import * as vitest from 'vitest';
import { keyvIteratorTests, keyvTestSuite, storageTestSuite } from './keyv-6/index.ts';

const db = await open('test', { storage: 'memory' });
vitest.afterAll(() => db.close());
// The type of Keyv asks for an emitter of events, Keyv itself does not.
const store = () => new KeyvMangrove(db.collection<string, unknown>('cache', { key: keyCodecs.string })) as unknown as KeyvStorageAdapter;

keyvTestSuite(vitest.it, Keyv, store);
keyvIteratorTests(vitest.it, Keyv, store);
storageTestSuite(vitest.it, store);

vitest.it('what Keyv 5 stored in a namespace Keyv 6 finds there', async ({ expect }) => {
  const before = new Keyv5({ store: store(), namespace: 'upgraded' });
  await before.set('a', { n: 1 }, 0.5 + 3_600_000);
  await before.set('b', 2, Infinity);
  const keyv = new Keyv({ store: store(), namespace: 'upgraded' });
  expect(await keyv.get(['a', 'b'])).toEqual([{ n: 1 }, 2]);
  expect(await keyv.deleteMany(['a', 'missing', 'b'])).toEqual([true, false, true]);
  expect(await before.has('a')).toBe(false);
});

vitest.it('a namespace has no part of one that begins with its name and a colon', async ({ expect }) => {
  const [outer, inner, escaped] = ['a', 'a:b', 'a%3Ab'].map((namespace) => new Keyv({ store: store(), namespace })) as [Keyv, Keyv, Keyv];
  await inner.set('c', 1);
  await escaped.set('c', 2);
  await outer.set('b:c', 3);
  expect(await Promise.all([inner, escaped, outer].map((keyv) => keyv.get('c')))).toEqual([1, 2, undefined]);
  await outer.clear();
  expect(await inner.get('c')).toBe(1);
});
