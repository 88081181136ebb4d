// A database in the test environments of Jest and Vitest, which have fakes and realms of their own.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open } from 'mangrove-kv';
import { MemoryLog } from '@mangrove-kv/replication';

let path;

beforeEach(async () => {
  path = await mkdtemp(join(tmpdir(), 'mangrove-runner-'));
});

afterEach(() => rm(path, { recursive: true }));

test('an awaited loop ends', async () => {
  const db = await open('x', { storage: 'memory' });
  for (let index = 0; index < 5_000; index++) await db.set(index, index);
  expect(await db.size).toBe(5_000);
  await db.close();
});

for (const thread of ['same', 'worker']) {
  test(`what was written is read (${thread})`, async () => {
    const db = await open(path, { thread });
    const values = ['text', 1, new Uint8Array([1, 2, 3]), { list: [new Date(5)], map: new Map([[1, 2]]) }];
    await db.setMany(values.map((value, index) => [index, value]));
    await db.set(new Uint8Array([7]), 'bytes as a key');
    expect(await db.get(2)).toStrictEqual(values[2]);
    expect((await db.get(3)).list[0].getTime()).toBe(5);
    expect(await db.get(new Uint8Array([7]))).toBe('bytes as a key');
    expect(await db.keys({ gte: 1, lt: 3 }).toArray()).toEqual([1, 2]);
    expect(
      await db.transaction(async (tx) => {
        await tx.set('in', 'a transaction');
        return tx.get('in');
      }),
    ).toBe('a transaction');
    await db.close();
    const again = await open(path, { thread });
    expect(await again.get(0)).toBe('text');
    await again.close();
  });
}

test('the modules beside the package are imported', () => {
  expect(MemoryLog).toBeInstanceOf(Function);
});
