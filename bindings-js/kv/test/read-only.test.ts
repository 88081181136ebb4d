// Read-only databases, also while somebody writes.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { keyCodecs, open, openSync } from 'mangrove-kv';
import type { Commit, Database } from 'mangrove-kv';
import { liveQuery } from 'mangrove-kv/live';
import { rejects, withPath } from './support/kit.ts';

function filesOf(path: string): Record<string, string> {
  return Object.fromEntries(readdirSync(path).map((name) => [name, readFileSync(join(path, name)).toString('base64')]));
}

test('a reader beside a writer shows the old state, and the new one after a refresh', () =>
  withPath(async (path) => {
    const writer: Database<string, number> = await open(path);
    await writer.setMany([
      ['a', 1],
      ['b', 2],
    ]);
    const reader: Database<string, number> = await open(path, { readOnly: true, lockTimeout: 0 });
    assert.deepEqual(await reader.entries().toArray(), [
      ['a', 1],
      ['b', 2],
    ]);
    await writer.set('a', 3);
    assert.equal(await reader.get('a'), 1);
    const before = reader.snapshot();
    assert.equal(await reader.refresh(), true);
    assert.equal(await reader.refresh(), false);
    assert.equal(await reader.get('a'), 3);
    assert.equal(await before.get('a'), 1);
    const writes: Promise<unknown>[] = [
      reader.set('c', 1),
      reader.delete('a'),
      reader.clear(),
      reader.batch().set('c', 1).commit(),
    ];
    await Promise.all(writes.map((write) => rejects(write, 'KV_READ_ONLY')));
    await rejects(
      reader.transaction((tx) => tx.set('c', 1)),
      'KV_READ_ONLY',
    );
    assert.deepEqual(await reader.transaction((tx) => tx.get('b'), { mode: 'readonly' }), 2);
    assert.deepEqual((await reader.verify()).problems, []);
    await reader.close();
    await writer.set('c', 4);
    await writer.close();
  }));

test('a reader changes no byte and creates nothing', () =>
  withPath(async (path) => {
    await rejects(open(path, { readOnly: true }), 'KV_NOT_FOUND');
    const writer: Database<number, string> = await open(path);
    await writer.setMany(Array.from({ length: 3000 }, (_, index) => [index, `value ${index}`]));
    await writer.close();
    const files = filesOf(path);
    const [one, two] = [
      await open<number, string>(path, { readOnly: true }),
      openSync<number, string>(path, { readOnly: true }),
    ];
    assert.equal(await one.size, 3000);
    assert.equal(two.get(2999), 'value 2999');
    await one.close();
    two.close();
    assert.deepEqual(filesOf(path), files);
  }));

test('a reader of a database that is constantly written is right or reports KV_STALE', () =>
  withPath(async (path) => {
    const options = { cacheBytes: 1 << 17 };
    const writer: Database<number, number> = await open(path, { ...options, durability: 'relaxed' });
    const size = 4000;
    const store = (round: number): Promise<void> =>
      writer.setMany(Array.from({ length: size }, (_, key) => [key, round]));
    await store(0);
    const reader: Database<number, number> = await open(path, { ...options, readOnly: true });
    let stale = 0;
    for (let round = 1; round <= 40; round++) {
      await store(round);
      try {
        if (round % 3 === 0) await reader.refresh();
        const values = new Set(await reader.values().toArray());
        assert.equal(values.size, 1, 'all of one commit');
      } catch (error) {
        assert.equal((error as { code?: string }).code, 'KV_STALE');
        stale++;
      }
    }
    await reader.refresh();
    assert.equal(await reader.get(7), 40);
    assert.ok(stale < 40);
    await reader.close();
    await writer.close();
  }));

/** The changes of the next commits that a subscription receives. */
function told<K, V>(
  db: Pick<Database<K, V>, 'subscribe'>,
  range = {},
): { next(): Promise<readonly unknown[]>; stop(): void } {
  const commits: Commit<K, V>[] = [];
  let wake = (): void => {};
  const { unsubscribe } = db.subscribe(range, (commit) => {
    commits.push(commit);
    wake();
  });
  return {
    next: async () => {
      // Following commits does not keep the process alive.
      const alive = setInterval(() => {}, 60_000);
      while (commits.length === 0)
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      clearInterval(alive);
      return (
        commits
          .shift()
          ?.changes.map((change) =>
            change.type === 'set' ? [change.key, change.value] : [change.type, 'key' in change ? change.key : ''],
          ) ?? []
      );
    },
    stop: unsubscribe,
  };
}

for (const [how, options] of Object.entries({ 'in this thread': {}, 'in a worker': { thread: 'worker' } as const })) {
  for (const feed of [false, true]) {
    test(`a refresh ${how} reaches subscribers, ${feed ? 'commit by commit from a feed' : 'as one commit'}`, () =>
      withPath(async (path) => {
        const writer: Database<string, number> = await open(path, { feed });
        const other = writer.collection('other', { key: keyCodecs.string });
        await writer.setMany([
          ['a', 1],
          ['b', 2],
          ['c', 3],
        ]);
        await other.set('x', 1);
        const reader: Database<string, number> = await open(path, { readOnly: true, ...options });
        const all = told(reader);
        const part = told(reader, { gte: 'b', lt: 'd' });
        const others = told(reader.collection<string, number>('other', { key: keyCodecs.string }));
        const query = liveQuery(reader, { limit: 2 });
        const entries = (): string => JSON.stringify(query.getSnapshot().entries);
        const seen = async (expected: string): Promise<void> => {
          while (entries() !== expected)
            await new Promise<void>((resolve) => {
              setTimeout(resolve, 1);
            });
        };
        const end = query.subscribe(() => {});
        await seen('[["a",1],["b",2]]');
        const whole = reader.changes();
        assert.equal(await reader.refresh(), false);
        await writer.set('a', 10);
        await writer.delete('b');
        await writer.batch().set('bb', 4).set('e', 5).commit();
        assert.equal(await reader.refresh(), true);
        await seen('[["a",10],["bb",4]]');
        if (feed) {
          assert.deepEqual(
            [await all.next(), await all.next(), await all.next()],
            [
              [['a', 10]],
              [['delete', 'b']],
              [
                ['bb', 4],
                ['e', 5],
              ],
            ],
          );
          assert.deepEqual([await part.next(), await part.next()], [[['delete', 'b']], [['bb', 4]]]);
        } else {
          assert.deepEqual(await all.next(), [
            ['a', 10],
            ['delete', 'b'],
            ['bb', 4],
            ['e', 5],
          ]);
          assert.deepEqual(await part.next(), [
            ['delete', 'b'],
            ['bb', 4],
          ]);
        }
        // Two refreshes before anybody looks, also of another collection.
        await other.set('y', 2);
        await reader.refresh();
        await writer.set('b', 6);
        await writer.collection('third').set(1, [2]);
        await reader.refresh();
        assert.deepEqual(await others.next(), [['y', 2]]);
        assert.deepEqual(await part.next(), [['b', 6]]);
        assert.deepEqual(await all.next(), [['b', 6]]);
        const found: string[] = [];
        for await (const { version, changes } of whole) {
          found.push(
            ...changes.flatMap((change) =>
              change.type === 'set' ? [`${change.collection}/${String(change.key)}`] : [],
            ),
          );
          if (version === (await reader.stats()).version) break;
        }
        for (const name of ['/a', '/bb', '/b', 'other/y', 'third/1'])
          assert.ok(found.includes(name), `${name} in ${found.join()}`);
        for (const { stop } of [all, part, others]) stop();
        end();
        await reader.close();
        await writer.close();
      }));
  }
}
