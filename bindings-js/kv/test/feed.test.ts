// Following commits: of a range, of the whole database, across restarts, with listeners.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_KEY, keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Commit, CommitIterator, Key } from 'mangrove-kv';
import { code, withMemory, withPath } from './support/kit.ts';

const tuple = keyCodecs.tuple<readonly [string, number]>();

/** The next commit, which has already happened or happens without further calls. */
async function next<K, V>(commits: CommitIterator<K, V>): Promise<Commit<K, V>> {
  const step = await commits.next();
  assert.ok(!step.done);
  return step.value;
}

test('a watch yields each commit that touches its range, in order', async () => {
  await withMemory<string, number>({ key: keyCodecs.string }, async (db) => {
    await db.set('b0', 0);
    const commits = db.watch({ gte: 'b', lt: 'c' });
    await Promise.all([
      db.set('a', 1),
      db.set('b', 2),
      db.set('c', 3),
      db.delete('b'),
      db.setMany([
        ['b1', 4],
        ['d', 5],
        ['b2', 6],
      ]),
    ]);
    assert.deepEqual((await next(commits)).changes, [{ type: 'set', collection: '', key: 'b', value: 2 }]);
    assert.deepEqual((await next(commits)).changes, [{ type: 'delete', collection: '', key: 'b' }]);
    const both = await next(commits);
    assert.deepEqual(
      both.changes.map((change) => 'key' in change && change.key),
      ['b1', 'b2'],
    );
    const pending = next(commits);
    await db.clear({ gte: 'c' });
    await db.clear({ lt: 'b1' });
    assert.deepEqual((await pending).changes, [{ type: 'clear', collection: '', range: { lt: 'b1' }, isExact: true }]);
    const { version } = await db.batch().set('b9', 9).commit();
    assert.equal((await next(commits)).version, version);
    await commits.return();
    assert.deepEqual(await commits.next(), { done: true, value: undefined });
  });
});

test('a watch can begin with the existing entries', async () => {
  await withMemory({}, async (db) => {
    await db.setMany([
      [1, 'a'],
      [2, 'b'],
      [3, 'c'],
    ]);
    const commits = db.watch({ gte: 2, initial: true });
    const { version } = await db.batch().set(4, 'd').commit();
    const first = await next(commits);
    assert.deepEqual(
      first.changes.map((change) => change.type === 'set' && [change.key, change.value]),
      [
        [2, 'b'],
        [3, 'c'],
      ],
    );
    assert.equal(first.version, version - 1);
    assert.equal((await next(commits)).version, version);
    assert.deepEqual((await next(db.watch({ gt: 9, initial: true }))).changes, []);
  });
});

test('each of many watches receives its own commits in order, whether it waits or starts later', async () => {
  await withMemory<readonly [string, number], number>({ key: tuple }, async (db) => {
    const heard = new Map<string, (readonly [string, number])[]>();
    const watched = Array.from({ length: 40 }, (_, index) => `range ${index}`);
    const stops = watched.map((name) => {
      const keys: (readonly [string, number])[] = [];
      heard.set(name, keys);
      const { unsubscribe } = db.subscribe({ prefix: [name] as never }, ({ changes }) => {
        for (const change of changes) if (change.type === 'set') keys.push(change.key);
      });
      return unsubscribe;
    });
    const all = db.changes();
    const slow = db.watch({ prefix: ['range 7'] as never });
    const later: Promise<void>[] = [];
    for (let at = 0; at < 300; at++) {
      const name = `range ${(at * 7) % 45}`;
      const written = db.set([name, at], at);
      // Some of them alone, some concurrently with others.
      if (at % 5 !== 0) await written;
      if (at === 150) {
        stops[3]?.();
        const keys: (readonly [string, number])[] = [];
        heard.set('late', keys);
        later.push(
          (async () => {
            for await (const { changes } of db.watch({ prefix: ['range 1'] as never })) {
              for (const change of changes) if (change.type === 'set') keys.push(change.key);
              if (keys.at(-1)?.[1] === 283) return;
            }
          })(),
        );
      }
    }
    await Promise.all(later);
    const expected = (name: string, from: number, to: number): (readonly [string, number])[] =>
      Array.from({ length: 300 }, (_, at) => [`range ${(at * 7) % 45}`, at] as const).filter(
        ([found, at]) => found === name && at >= from && at < to,
      );
    for (const [, at] of expected('range 7', 0, 300))
      assert.equal(((await next(slow)).changes[0] as { value: unknown }).value, at);
    for (let at = 0; at < 300; at++) assert.equal(((await next(all)).changes[0] as { value: unknown }).value, at);
    const count = (): number => watched.reduce((sum, name) => sum + (heard.get(name)?.length ?? 0), 0);
    const wanted = watched.reduce((sum, name) => sum + expected(name, 0, name === 'range 3' ? 151 : 300).length, 0);
    for (let turns = 0; count() < wanted && turns < 1000; turns++) await db.stats();
    assert.deepEqual(heard.get('late'), expected('range 1', 151, 300));
    for (const name of watched)
      assert.deepEqual(heard.get(name), expected(name, 0, name === 'range 3' ? 151 : 300), name);
  });
});

test('a watch ends by break, return, abort and closing the database', async () => {
  const db = await open('test', { storage: 'memory' });
  const loop = (async () => {
    for await (const { changes } of db.watch()) return changes.length;
    return 0;
  })();
  await db.set('a', 1);
  assert.equal(await loop, 1);

  const returned = db.watch();
  const waiting = returned.next();
  await db.stats();
  await returned.return();
  assert.equal((await waiting).done, true);

  const controller = new AbortController();
  const aborted = db.watch({ signal: controller.signal });
  const rejected = assert.rejects(aborted.next(), /enough/);
  await db.stats();
  controller.abort(new Error('enough'));
  await rejected;
  assert.equal((await aborted.next()).done, true);
  await assert.rejects(db.watch({ signal: AbortSignal.abort(new Error('no')) }).next(), /no/);

  const closed = db.watch();
  const last = closed.next();
  await db.close();
  assert.equal((await last).done, true);
  await assert.rejects(db.watch().next(), code('KV_CLOSED'));
});

test('invalid ranges and options are refused', async () => {
  await withMemory({}, async (db) => {
    await assert.rejects(db.watch({ limit: 1 } as object).next(), code('KV_INVALID_ARGUMENT'));
    await assert.rejects(db.watch({ initial: 1 as never }).next(), code('KV_INVALID_ARGUMENT'));
    await assert.rejects(db.watch({ gt: {} as never }).next(), code('KV_INVALID_KEY'));
    await assert.rejects(db.changes({ since: -1 }).next(), code('KV_INVALID_ARGUMENT'));
    await assert.rejects(open('x', { storage: 'memory', feed: 1 as never }), code('KV_INVALID_ARGUMENT'));
    await assert.rejects(open('x', { storage: 'memory', feed: { retainCommits: 0 } }), code('KV_INVALID_ARGUMENT'));
    await db.collection('c').set(1, 1);
    const other = db.collection('c', { key: keyCodecs.string });
    await assert.rejects(other.watch().next(), code('KV_CODEC_MISMATCH'));
  });
});

test('a collection recreated with other codecs ends the watch', async () => {
  await withMemory({}, async (db) => {
    const commits = db.collection('c').watch();
    await db.collection('c').set(1, 1);
    await db.dropCollection('c');
    await db.collection('c', { key: keyCodecs.uint32 }).set(1, 1);
    assert.equal((await next(commits)).changes[0]?.type, 'set');
    assert.deepEqual((await next(commits)).changes, [{ type: 'drop', collection: 'c' }]);
    await assert.rejects(commits.next(), code('KV_CODEC_MISMATCH'));
  });
});

test('changes cover all collections, with their codecs', async () => {
  await withMemory({}, async (db) => {
    const commits = db.changes();
    const scores = db.collection('scores', { key: tuple, value: valueCodecs.json<number>() });
    await scores.set(['ada', 1], 5, { expireAt: 4e12 });
    await db.collection('plain').set('k', new Map([[1, 2]]));
    await db.transaction(async (tx) => {
      await tx.collection(scores).delete(['ada', 1]);
      await tx.set('x', 1n);
    });
    await db.batch().set('abc', 1).collection(scores).set(['ada', 1], 5).set(['bob', 2], 6).commit();
    await scores.clear({ prefix: ['ada'] });
    await scores.clear({ gt: ['ada', 2], lt: ['bob', MAX_KEY] });
    await db.clear({ prefix: 'ab' });
    await db.dropCollection('plain');
    const found: unknown[] = [];
    for (let index = 0; index < 8; index++) found.push(...(await next(commits)).changes);
    assert.deepEqual(found, [
      { type: 'set', collection: 'scores', key: ['ada', 1], value: 5, expiresAt: 4e12 },
      { type: 'set', collection: 'plain', key: 'k', value: new Map([[1, 2]]) },
      { type: 'set', collection: '', key: 'x', value: 1n },
      { type: 'delete', collection: 'scores', key: ['ada', 1] },
      { type: 'set', collection: '', key: 'abc', value: 1 },
      { type: 'set', collection: 'scores', key: ['ada', 1], value: 5 },
      { type: 'set', collection: 'scores', key: ['bob', 2], value: 6 },
      { type: 'clear', collection: 'scores', range: { prefix: ['ada'] }, isExact: true },
      { type: 'clear', collection: 'scores', range: { gt: ['ada', 2], lt: ['bob', MAX_KEY] }, isExact: true },
      { type: 'clear', collection: '', range: { gte: 'ab', lt: 'ac' }, isExact: true },
      { type: 'drop', collection: 'plain' },
    ]);
  });
});

test('with "only", commits that write a collection have nothing but what they set there', async () => {
  await withMemory<string, number>({ key: keyCodecs.string }, async (db) => {
    const [own, other] = [
      db.collection<string, string>('own', { value: valueCodecs.string }),
      db.collection<string, string>('other', { value: valueCodecs.string }),
    ];
    const options = { raw: true, only: 'own' };
    const commits = db.changes(options);
    const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
    const values = async (): Promise<unknown[][]> =>
      (await next(commits)).changes.map((change) => [
        change.type,
        change.collection,
        'value' in change && change.value,
      ]);
    await db.transaction(async (tx) => {
      await tx.collection(other).set('a', 'x');
      await tx.set('b', 1);
    });
    assert.equal((await values()).length, 2);
    await db.transaction(async (tx) => {
      await tx.collection(other).set('b', 'y');
      await tx.collection(own).set('k', 'one');
      await tx.collection(other).delete('a');
      await tx.collection(own).set('l', 'two', { expireIn: 1e6 });
      await tx.collection(other).set('c', 'z');
    });
    await other.set('d', 'w');
    // A commit that clears is whole.
    await db.transaction(async (tx) => {
      await tx.collection(own).set('m', 'three');
      await tx.collection(other).clear();
    });
    // One that only deletes there does not write it.
    await own.delete('k');
    const sets = [
      ['set', 'own', bytes('one')],
      ['set', 'own', bytes('two')],
    ];
    const first = await values();
    // Collections may be created in this commit, which makes it whole.
    assert.deepEqual(
      first.filter(([, collection]) => collection === 'own'),
      sets,
    );
    assert.deepEqual(await values(), [['set', 'other', bytes('w')]]);
    assert.deepEqual((await values()).map(([type]) => type).sort(), ['clear', 'set']);
    assert.deepEqual(await values(), [['delete', 'own', false]]);
    await db.transaction(async (tx) => {
      await tx.collection(other).set('e', 'v');
      await tx.collection(own).set('n', 'four');
      await tx.collection(other).set('f', 'u');
    });
    assert.deepEqual(await values(), [['set', 'own', bytes('four')]]);
  });
});

test('a retained feed continues after a restart, back to its horizon', async () => {
  await withPath(async (path) => {
    let db = await open(path, { feed: { retainCommits: 3 } });
    const first = await db.batch().set('a', 1).commit();
    await db.close();
    db = await open(path, { feed: { retainCommits: 3 } });
    await db.set('b', 2);
    await db.collection('own', { key: keyCodecs.uint32, value: valueCodecs.json() }).set(7, 'seven');
    await db.close();
    db = await open(path);
    const commits = db.changes({ since: first.version });
    assert.deepEqual((await next(commits)).changes, [{ type: 'set', collection: '', key: 'b', value: 2 }]);
    const raw = (await next(commits)).changes[0];
    assert.deepEqual(raw, {
      type: 'set',
      collection: 'own',
      key: new Uint8Array([0, 0, 0, 7]),
      value: new TextEncoder().encode('"seven"'),
      raw: true,
    });
    db.collection('own', { key: keyCodecs.uint32, value: valueCodecs.json() });
    const again = db.changes({ since: first.version + 1 });
    const known = (await next(again)).changes[0];
    assert.deepEqual(known, { type: 'set', collection: 'own', key: 7, value: 'seven' });
    await Promise.all([1, 2, 3, 4].map((n) => db.set('c', n)));
    await assert.rejects(db.changes({ since: first.version }).next(), code('KV_TRUNCATED_FEED'));
    await db.close();
  });
});

test('without a feed only later commits are followed', async () => {
  await withMemory({}, async (db) => {
    const { version } = await db.batch().set('a', 1).commit();
    await db.set('b', 1);
    await assert.rejects(db.changes({ since: version }).next(), code('KV_TRUNCATED_FEED'));
    const commits = db.changes({ since: version + 1 });
    await db.set('c', 1);
    assert.equal((await next(commits)).version, version + 2);
  });
});

for (const feed of [false, true]) {
  test(`a look tells that everything was returned that was committed before, ${feed ? 'with' : 'without'} a feed`, async () => {
    await withMemory({ feed }, async (db) => {
      const commits = db.changes({ raw: true });
      const look = (): void => (commits as unknown as { look(): void }).look();
      const unheard = db.collection('mangrove:private/unheard');
      const version = async (): Promise<number> => {
        const snapshot = db.snapshot();
        try {
          return await snapshot.version;
        } finally {
          await snapshot.close();
        }
      };
      const waiting = next(commits);
      await unheard.set('a', 1);
      look();
      const first = await waiting;
      assert.deepEqual(first, { version: await version(), changes: [] });
      const { version: set } = await db.batch().set('k', 'x').commit();
      for (let number = 0; number < 5; number++) await unheard.set('a', number);
      look();
      assert.equal((await next(commits)).version, set);
      assert.deepEqual(await next(commits), { version: await version(), changes: [] });
      // Far more than one reply holds.
      await Promise.all(Array.from({ length: 3000 }, (_, key) => db.set(key, 'x'.repeat(200), { durability: 'none' })));
      look();
      look();
      let [count, step] = [0, await next(commits)];
      for (; step.changes.length > 0; step = await next(commits)) count += step.changes.length;
      assert.deepEqual([count, step.version], [3000, await version()]);
      // A look while a pull is under way is one more.
      const [one, two] = [next(commits), next(commits)];
      look();
      await unheard.set('a', 7);
      look();
      assert.deepEqual([(await one).changes, await two], [[], { version: await version(), changes: [] }]);
    });
  });
}

test('a slow watcher receives everything, in portions', async () => {
  await withMemory({}, async (db) => {
    const commits = db.watch();
    const value = 'x'.repeat(10_000);
    await Promise.all(Array.from({ length: 300 }, (_, index) => db.set(index, value + index, { durability: 'none' })));
    for (let index = 0; index < 300; index++) {
      assert.deepEqual((await next(commits)).changes, [
        { type: 'set', collection: '', key: index, value: value + index },
      ]);
    }
  });
});

test('calls of next queue up', async () => {
  await withMemory({}, async (db) => {
    const commits = db.watch();
    const steps = [commits.next(), commits.next(), commits.next()];
    for (const key of [1, 2, 3]) await db.set(key, key);
    const keys = (await Promise.all(steps)).map(({ value }) => (value?.changes[0] as { key: Key }).key);
    assert.deepEqual(keys, [1, 2, 3]);
  });
});

test('listeners are called in order, and one that throws does not affect the others', async () => {
  const reported: unknown[] = [];
  const { reportError } = globalThis;
  globalThis.reportError = (error: unknown) => {
    reported.push(error);
  };
  try {
    await withMemory<string, number>({ key: keyCodecs.string }, async (db) => {
      const seen: number[] = [];
      const bad = db.subscribe({}, () => {
        throw new Error('mine');
      });
      const good = db.subscribe({ prefix: 'a' }, ({ changes }) => {
        for (const change of changes) if (change.type === 'set') seen.push(change.value);
      });
      await Promise.all([db.set('a1', 1), db.set('b', 2), db.set('a2', 3)]);
      await new Promise((resolve) => setTimeout(resolve, 20));
      assert.deepEqual(seen, [1, 3]);
      assert.deepEqual(reported.map(String), ['Error: mine', 'Error: mine', 'Error: mine']);
      good.unsubscribe();
      good.unsubscribe();
      bad[Symbol.dispose ?? Symbol.for('Symbol.dispose')]();
      await db.set('a3', 4);
      await new Promise((resolve) => setTimeout(resolve, 20));
      assert.deepEqual(seen, [1, 3]);
      assert.throws(() => db.subscribe({ gt: {} as never }, () => {}), code('KV_INVALID_KEY'));
      assert.throws(() => db.subscribe({}, 1 as never), code('KV_INVALID_ARGUMENT'));
    });
    assert.equal(reported.length, 3);
  } finally {
    globalThis.reportError = reportError;
  }
});

test('a renamed collection is decoded from its rename on, whatever the feed began with', () =>
  withPath(async (path) => {
    const db = await open<string, unknown>(path, { feed: true });
    const before = db.collection<string, { n: number }>('before');
    await before.set('a', { n: 1 });
    const { version } = await db.stats();
    await before.set('b', { n: 2 });
    await db.renameCollection('before', 'after');
    await db.collection<string, { n: number }>('after').set('c', { n: 3 });
    const commits = db.changes({ since: version });
    await next(commits);
    assert.deepEqual((await next(commits)).changes, [{ type: 'rename', collection: 'before', to: 'after' }]);
    assert.deepEqual((await next(commits)).changes, [{ type: 'set', collection: 'after', key: 'c', value: { n: 3 } }]);
    await commits.return();
    await db.close();
  }));

test('a follower that had not read all before a refresh never skips commits', () =>
  withPath(async (path) => {
    const writer = await open<string, number>(path, { feed: { retainCommits: 5 } });
    await writer.set('start', 0);
    await writer.flush();
    const reader = await open<string, number>(path, { readOnly: true });
    const commits = reader.changes();
    // It has begun and found nothing yet.
    await reader.get('start');
    for (let key = 0; key < 3; key++) await writer.set(`early ${key}`, key);
    await writer.flush();
    assert.equal(await reader.refresh(), true);
    for (let key = 0; key < 40; key++) await writer.set(`late ${key}`, key);
    await writer.flush();
    assert.equal(await reader.refresh(), true);
    const seen: unknown[] = [];
    try {
      while (!seen.includes('late 39')) {
        for (const change of (await next(commits)).changes) seen.push('key' in change && change.key);
      }
      assert.deepEqual(
        seen.filter((key) => String(key).startsWith('early')),
        ['early 0', 'early 1', 'early 2'],
      );
    } catch (error) {
      assert.equal((error as { code?: string }).code, 'KV_TRUNCATED_FEED', String(error));
      assert.deepEqual(seen, [], 'nothing comes before the error');
    }
    await reader.close();
    await writer.close();
  }));
