// Live queries keep the contract of external stores: a result stays the same object until listeners
// are notified of another.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KvError, open } from 'mangrove-kv';
import type { Key } from 'mangrove-kv';
import { liveQuery, liveValue, liveWindow } from 'mangrove-kv/live';
import type { LiveQuery } from 'mangrove-kv/live';
import { queryOf } from '../src/live/live-query.ts';
import { code, overriding, withMemory } from './support/kit.ts';

/** Waits until the listener of a query was called and the result is right. */
async function until(query: Pick<LiveQuery<unknown, unknown>, 'subscribe'>, isRight: () => boolean): Promise<void> {
  if (isRight()) return;
  await new Promise<void>((resolve) => {
    const stop = query.subscribe(() => {
      if (!isRight()) return;
      stop();
      resolve();
    });
  });
}

/** Runs a test whose process would end, as the timers of queries do not keep it alive. */
async function alive(run: () => Promise<void>): Promise<void> {
  const timer = setTimeout(() => {}, 60_000);
  try {
    await run();
  } finally {
    clearTimeout(timer);
  }
}

/** Reads a query as React reads an external store: the rendered output follows each change. */
function render<K, V>({ subscribe, getSnapshot }: LiveQuery<K, V>): { readonly drawn: unknown[]; unmount(): void } {
  const drawn: unknown[] = [getSnapshot()];
  const unmount = subscribe(() => {
    const snapshot = getSnapshot();
    assert.equal(getSnapshot(), snapshot);
    if (drawn.at(-1) !== snapshot) drawn.push(snapshot);
  });
  return { drawn, unmount };
}

test('a view follows writes in its range', async () => {
  await withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['a2', 2],
      ['b', 3],
    ]);
    const query = liveQuery(db, { prefix: 'a', reverse: true, limit: 2 });
    assert.equal(query.getSnapshot().status, 'loading');
    const view = render(query);
    const keys = (): string =>
      query
        .getSnapshot()
        .entries.map(([key]) => key)
        .join();
    await until(query, () => keys() === 'a2,a1');
    const before = query.getSnapshot();
    await db.set('c', 4);
    await db.stats();
    assert.equal(query.getSnapshot(), before);
    await db.set('a3', 5);
    await until(query, () => keys() === 'a3,a2');
    await db.clear();
    await until(query, () => query.getSnapshot().entries.length === 0);
    assert.ok(view.drawn.length >= 4);
    view.unmount();
    view.unmount();
    const last = query.getSnapshot();
    await db.set('a9', 9);
    await db.stats();
    assert.equal(query.getSnapshot(), last);
    const again = render(query);
    await until(query, () => keys() === 'a9');
    again.unmount();
  });
});

test('many concurrent commits cause few reads', async () => {
  await withMemory<Key, number>({}, async (db) => {
    const query = liveQuery(db);
    const view = render(query);
    await until(query, () => query.getSnapshot().status === 'ready');
    await Promise.all(Array.from({ length: 500 }, (_, index) => db.set(index, index)));
    await until(query, () => query.getSnapshot().entries.length === 500);
    assert.ok(view.drawn.length < 20, `${view.drawn.length} results`);
    view.unmount();
  });
});

test('a listener that is removed at once leaves the next one working', async () => {
  await withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    const query = liveQuery(db);
    query.subscribe(() => {})();
    await until(query, () => query.getSnapshot().entries.length === 1);
  });
});

test('entries leave when they expire, and others take their place', async () => {
  await withMemory<Key, number>({}, async (db) => {
    // A query's timer does not keep the process alive.
    const alive = setTimeout(() => {}, 60_000);
    const soon = Date.now() + 1500;
    await db.setMany([
      ['a', 1],
      ['b', 2],
    ]);
    await db.set('aa', 3, { expireAt: soon });
    await db.set('ab', 4, { expireAt: soon + 200 });
    await db.set('c', 5, { expireAt: soon + 1e9 });
    const keys = (query: LiveQuery<Key, number>): string =>
      query
        .getSnapshot()
        .entries.map(([key]) => key)
        .join();
    const [all, first, later] = [liveQuery(db), liveQuery(db, { limit: 2 }), liveQuery(db, { offset: 2, limit: 2 })];
    const views = [all, first, later].map(render);
    await until(all, () => keys(all) === 'a,aa,ab,b,c');
    await until(later, () => keys(later) === 'ab,b');
    await until(all, () => keys(all) === 'a,b,c');
    await until(first, () => keys(first) === 'a,b');
    await until(later, () => keys(later) === 'c');
    assert.deepEqual(all.getSnapshot().entries[0], ['a', 1]);
    // An entry that is renewed before it expires stays.
    await db.set('d', 6, { expireIn: 40 });
    await db.update('d', () => 7, { expireIn: 1e9 });
    await new Promise((resolve) => setTimeout(resolve, 80));
    assert.equal(keys(all), 'a,b,c,d');
    for (const { unmount } of views) unmount();
    clearTimeout(alive);
  });
});

test('a failure is a result', async () => {
  const db = await open<Key, number>('test', { storage: 'memory' });
  await db.close();
  const query = liveQuery(db);
  await until(query, () => query.getSnapshot().status === 'failed');
  const { error } = query.getSnapshot();
  assert.ok(code('KV_CLOSED')(error));
});

test('a view reads again if what it reads is lost with another tab', async () => {
  await withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    let losses = 2;
    const shared = overriding(db, (name) => {
      if (name !== 'entries' || losses === 0) return undefined;
      losses--;
      return () => ({
        toArray: () => Promise.reject(new KvError('KV_SNAPSHOT_LOST', 'the tab is gone', { retryable: true })),
      });
    });
    const query = liveQuery(shared);
    const view = render(query);
    await until(query, () => query.getSnapshot().status !== 'loading');
    await db.set('b', 2);
    await until(query, () => query.getSnapshot().entries.length === 2);
    view.unmount();
    assert.equal(losses, 0);
    assert.deepEqual(
      view.drawn.map((drawn) => (drawn as { status: string }).status),
      ['loading', 'ready', 'ready'],
    );
  });
});

test('a view of an index follows entries into its range and out of it, and is not drawn otherwise', async () => {
  await withMemory({}, async (db) => {
    const notes = db.collection<string, { tag: string }>('notes', { indexes: { byTag: { key: ({ tag }) => tag } } });
    await notes.setMany([
      ['a', { tag: 'urgent' }],
      ['b', { tag: 'late' }],
      ['c', { tag: 'late' }],
    ]);
    const query = liveQuery(notes.index('byTag'), { eq: 'urgent', limit: 2 });
    const view = render(query);
    const keys = (): string =>
      query
        .getSnapshot()
        .entries.map(([key]) => key)
        .join();
    const shows = (wanted: string): Promise<void> =>
      until(query, () => query.getSnapshot().status === 'ready' && keys() === wanted);
    await shows('a');
    await notes.set('c', { tag: 'urgent' });
    await shows('a,c');
    const before = view.drawn.length;
    const follow = notes.index('byTag').watch({ eq: 'urgent' });
    await notes.set('b', { tag: 'never' });
    // Behind the limit, so that nothing is drawn again.
    await notes.set('d', { tag: 'urgent' });
    for (let seen = 0; seen < 2; seen++) assert.equal((await follow.next()).done, false);
    await follow.return();
    await notes.index('byTag').count();
    assert.equal(view.drawn.length, before);
    await notes.set('a', { tag: 'late' });
    await shows('c,d');
    await notes.delete('c');
    await shows('d');
    view.unmount();
  });
});

test('entries of one commit that replace each other are drawn', async () => {
  await withMemory({}, async (db) => {
    await db.setMany([
      ['a', 1],
      ['b', 1],
    ]);
    const query = liveQuery(db, { limit: 1 });
    const view = render(query);
    const keys = (): string =>
      query
        .getSnapshot()
        .entries.map(([key]) => key)
        .join();
    await until(query, () => keys() === 'a');
    await db.delete('a');
    await until(query, () => keys() === 'b');
    view.unmount();
  });
});

test('a live query of a collection refuses eq', async () => {
  await withMemory({}, async (db) => {
    const query = liveQuery(db, { eq: 1 } as never);
    const view = render(query);
    await until(query, () => query.getSnapshot().status === 'failed');
    assert.equal((query.getSnapshot().error as { code?: unknown }).code, 'KV_INVALID_ARGUMENT');
    view.unmount();
  });
});

test('a query starts over after what may pass, with pauses, and keeps what it showed', () =>
  withMemory<Key, number>({}, (db) =>
    alive(async () => {
      await db.set('a', 1);
      let failing = 0;
      const source = overriding(db, (name) =>
        name !== 'entries' || failing === 0
          ? undefined
          : () => {
              failing--;
              return {
                toArray: () => Promise.reject(new KvError('KV_TIMEOUT', 'no tab answers', { retryable: true })),
              };
            },
      );
      const query = liveQuery(source);
      const view = render(query);
      await until(query, () => query.getSnapshot().status === 'ready');
      failing = 2;
      await db.set('b', 2);
      await until(query, () => query.getSnapshot().entries.length === 2);
      view.unmount();
      const states = view.drawn.map((drawn) => {
        const { status, isStale, entries, error } = drawn as ReturnType<typeof query.getSnapshot>;
        return [status, isStale, entries.length, (error as KvError | undefined)?.code];
      });
      assert.deepEqual(states, [
        ['loading', false, 0, undefined],
        ['ready', false, 1, undefined],
        ['ready', true, 1, 'KV_TIMEOUT'],
        ['ready', true, 1, 'KV_TIMEOUT'],
        ['ready', false, 2, undefined],
      ]);
    }),
  ));

test('a query that failed before it read anything is loading while it retries', () =>
  withMemory<Key, number>({}, (db) =>
    alive(async () => {
      let error: KvError | undefined = new KvError('KV_IO', 'the disk is gone');
      const source = overriding(db, (name) =>
        name !== 'entries' || error === undefined ? undefined : () => ({ toArray: () => Promise.reject(error) }),
      );
      const query = liveQuery(source);
      const view = render(query);
      await until(query, () => query.getSnapshot().status === 'failed');
      view.unmount();
      error = new KvError('KV_TIMEOUT', 'no tab answers', { retryable: true });
      const again = render(query);
      await until(query, () => query.getSnapshot().error === error);
      const { status, isStale } = query.getSnapshot();
      assert.deepEqual([status, isStale], ['loading', false]);
      error = undefined;
      await until(query, () => query.getSnapshot().status === 'ready');
      again.unmount();
    }),
  ));

test('nothing is read between tries once the last subscription ends', () =>
  withMemory<Key, number>({}, (db) =>
    alive(async () => {
      let tries = 0;
      const source = overriding(db, (name) =>
        name !== 'entries'
          ? undefined
          : () => {
              tries++;
              return {
                toArray: () => Promise.reject(new KvError('KV_TIMEOUT', 'no tab answers', { retryable: true })),
              };
            },
      );
      const query = liveQuery(source);
      const view = render(query);
      await until(query, () => query.getSnapshot().error !== undefined);
      view.unmount();
      const before = tries;
      await new Promise((resolve) => setTimeout(resolve, 200));
      assert.equal(tries, before);
      assert.equal(query.getSnapshot().status, 'loading');
    }),
  ));

test('a query of an index that is being built starts over until it is complete', () =>
  withMemory({}, (db) =>
    alive(async () => {
      await db
        .collection<number, { tag: number }>('notes')
        .setMany(Array.from({ length: 20_000 }, (_, key) => [key, { tag: key % 4 }] as const));
      const notes = db.collection<number, { tag: number }>('notes', { indexes: { byTag: { key: ({ tag }) => tag } } });
      const [failing, waiting] = [
        liveQuery(notes.index('byTag'), { eq: 1, limit: 2 }),
        queryOf<number, { tag: number }>({
          source: notes,
          range: { index: 'byTag', whenIncomplete: 'wait', eq: 1, limit: 2 },
        }),
      ];
      const views = [failing, waiting].map(render);
      await until(failing, () => failing.getSnapshot().error !== undefined);
      const { status, error } = failing.getSnapshot();
      assert.ok(status === 'loading' && code('KV_INDEX_INCOMPLETE')(error));
      for (const query of [waiting, failing]) {
        await until(query, () => query.getSnapshot().status === 'ready');
        assert.deepEqual(
          query.getSnapshot().entries.map(([key]) => key),
          [1, 5],
        );
      }
      // The one that waits has nothing between loading and ready.
      assert.equal(views[1]!.drawn.length, 2);
      for (const { unmount } of views) unmount();
    }),
  ));

test('a query with an offset reads once, only what it shows, and sees that skipped entries expire', () =>
  withMemory<Key, number>({}, (db) =>
    alive(async () => {
      await db.setMany(Array.from({ length: 100 }, (_, key) => [key, key] as const));
      await db.set(0.5, 0, { expireIn: 1500 });
      const asked: unknown[] = [];
      const source = overriding(db, (name) =>
        name !== 'entries'
          ? undefined
          : (range: object) => {
              const { signal: _, ...rest } = range as { signal?: unknown };
              asked.push(rest);
              return db.entries(range as { meta: true });
            },
      );
      const query = liveQuery(source, { offset: 50, limit: 2 });
      const view = render(query);
      const keys = (): string =>
        query
          .getSnapshot()
          .entries.map(([key]) => key)
          .join();
      await until(query, () => keys() === '49,50');
      assert.deepEqual(asked, [{ offset: 50, limit: 2, meta: true }]);
      await until(query, () => keys() === '50,51');
      assert.equal(asked.length, 2, 'it was not read before something expired');
      view.unmount();
    }),
  ));

test('a live value is read again when an entry expires, and not before', () =>
  withMemory<Key, number>({}, (db) =>
    alive(async () => {
      await db.set('a', 1);
      await db.set('b', 1, { expireIn: 1500 });
      let reads = 0;
      const counted = liveValue(db, (source) => {
        reads++;
        return source.count();
      });
      const stop = counted.subscribe(() => undefined);
      await until(counted, () => counted.getSnapshot().value === 2);
      await until(counted, () => counted.getSnapshot().value === 1);
      assert.equal(reads, 2);
      stop();
    }),
  ));

test('an index with an offset shows that a skipped entry has expired', () =>
  withMemory({}, (db) =>
    alive(async () => {
      const people = db.collection<number, { name: string }>('people', {
        indexes: { byName: { key: ({ name }) => name } },
      });
      await people.setMany([
        [1, { name: 'b' }],
        [2, { name: 'c' }],
      ]);
      await people.set(3, { name: 'a' }, { expireIn: 300 });
      const query = liveQuery(people.index('byName'), { offset: 1 });
      const names = (): string =>
        query
          .getSnapshot()
          .entries.map(([, { name }]) => name)
          .join();
      const view = render(query);
      await until(query, () => names() === 'b,c');
      await until(query, () => names() === 'c');
      view.unmount();
    }),
  ));

test('a result says its range, and entries that have not changed are the same objects', () =>
  withMemory<Key, { n: number }>({}, async (db) => {
    await db.setMany([
      [['a', 1], { n: 1 }],
      [['a', 2], { n: 2 }],
    ]);
    const query = liveQuery(db, { prefix: ['a'], limit: 5 });
    const view = render(query);
    await until(query, () => query.getSnapshot().entries.length === 2);
    const before = query.getSnapshot();
    assert.deepEqual(before.range, { prefix: ['a'], limit: 5 });
    await db.setMany([
      [['a', 0], { n: 0 }],
      [['a', 2], { n: 3 }],
    ]);
    await until(query, () => query.getSnapshot().entries.length === 3);
    const after = query.getSnapshot();
    assert.equal(after.entries[1], before.entries[0]);
    assert.notEqual(after.entries[2], before.entries[1]);
    assert.deepEqual(after.entries[2], [['a', 2], { n: 3 }]);
    view.unmount();
  }));

test('a window keeps what it showed until it has read the positions it was moved to', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany(Array.from({ length: 100 }, (_, key) => [key, key] as const));
    const list = liveWindow(db, { limit: 3 });
    const view = render(list);
    const keys = (): string =>
      list
        .getSnapshot()
        .entries.map(([key]) => key)
        .join();
    await until(list, () => keys() === '0,1,2');
    const before = list.getSnapshot();
    list.move(2, 3);
    assert.deepEqual(list.getSnapshot(), { ...before, isStale: true });
    assert.deepEqual(before.range, { limit: 3 });
    await until(list, () => keys() === '2,3,4' && !list.getSnapshot().isStale);
    assert.deepEqual(list.getSnapshot().range, { offset: 2, limit: 3 });
    assert.equal(list.getSnapshot().entries[0], before.entries[2]);
    // Moves during a read end at the last one.
    for (let offset = 10; offset <= 60; offset += 10) list.move(offset, 2);
    await until(list, () => keys() === '60,61' && !list.getSnapshot().isStale);
    await db.delete(5);
    await until(list, () => keys() === '61,62');
    view.unmount();
    for (const [offset, limit] of [
      [-1, 1],
      [0.5, 1],
      [0, Infinity],
      ['0', 1],
    ]) {
      assert.throws(() => list.move(offset as number, limit as number), code('KV_INVALID_ARGUMENT'));
    }
  }));

test('a live value follows commits and expiry, and is drawn when it is another', () =>
  withMemory<Key, number>({}, (db) =>
    alive(async () => {
      await db.set('a', 1);
      await db.set('b', 1, { expireIn: 400 });
      const count = liveValue(db, (from) => from.count());
      assert.deepEqual(count.getSnapshot(), { status: 'loading', value: undefined, isStale: false, error: undefined });
      const drawn: unknown[] = [];
      let tell = (): void => undefined;
      const stop = count.subscribe(() => {
        drawn.push(count.getSnapshot().value);
        tell();
      });
      const shows = async (value: number): Promise<void> => {
        while (count.getSnapshot().value !== value)
          await new Promise<void>((resolve) => {
            tell = resolve;
          });
      };
      await shows(2);
      await db.set('a', 2);
      await shows(1);
      await db.set('c', 3);
      await shows(2);
      stop();
      assert.deepEqual(drawn, [2, 1, 2]);
    }),
  ));
