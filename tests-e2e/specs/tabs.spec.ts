// Many tabs of one origin with the same database: what they see of each other, and the options of
// `open`.
import type { Page } from '@playwright/test';
import { expect, test } from '../persistent.ts';
import { emptyTab, get, leads, openIn, openTab, set } from '../tabs-page.ts';

interface Called {
  readonly name?: string;
  readonly options?: object;
}

const openCode = (page: Page, { name = 'shared', options = {} }: Called = {}): Promise<string> =>
  page.evaluate(
    ([database, given]) =>
      window.mangrove.open(database, given).then(
        () => 'none',
        (error: { code?: string }) => error.code ?? String(error),
      ),
    [name, options] as const,
  );
const destroyCode = (page: Page, name = 'shared'): Promise<unknown> =>
  page.evaluate(
    (database) => window.mangrove.destroy(database).catch((error: { code?: string }) => error.code ?? String(error)),
    name,
  );

test("tabs see each other's commits, and another tab leads when the leader is closed", async ({ profile }) => {
  const context = await profile.launch();
  const first = await openTab(context);
  const second = await openTab(context);
  const third = await openTab(context);
  await set(first, 'a', 1);
  expect(await get(second, 'a')).toBe(1);
  await set(third, 'b', { deep: [1, 2] });
  expect(await get(first, 'b')).toEqual({ deep: [1, 2] });
  await first.close();
  await set(second, 'c', 3);
  expect(await get(third, 'c')).toBe(3);
  await second.close();
  expect(await get(third, 'a')).toBe(1);
  const verified = await third.evaluate(() => window.db.verify());
  expect(verified.ok).toBe(true);
});

test('a watch continues across a change of leader', async ({ profile }) => {
  const context = await profile.launch();
  const leader = await openTab(context);
  const watching = await openTab(context);
  const writing = await openTab(context);
  await watching.evaluate(() => {
    window.seen = [];
    void (async () => {
      for await (const commit of window.db.watch())
        window.seen.push(...commit.changes.map((change) => change.type === 'set' && change.value));
    })().catch((error: unknown) => window.seen.push(String(error)));
  });
  await set(writing, 'a', 1);
  await set(leader, 'a', 2);
  await leader.evaluate(() => window.db.close());
  await set(writing, 'a', 3);
  await expect.poll(() => watching.evaluate(() => window.seen)).toEqual([1, 2, 3]);
});

test('a live query follows the writes of other tabs across a change of leader', async ({ profile }) => {
  const context = await profile.launch();
  const leader = await openTab(context);
  const viewing = await openTab(context);
  const writing = await openTab(context);
  await viewing.evaluate(async () => {
    const { liveQuery } = await window.loadLive();
    const query = liveQuery(window.db, { prefix: 'row' });
    const show = (): void => {
      window.seen = [query.getSnapshot().status, ...query.getSnapshot().entries.map(([, value]) => value)];
    };
    query.subscribe(show);
    show();
  });
  const seen = (): Promise<unknown> => viewing.evaluate(() => window.seen);
  await set(writing, 'row1', 1);
  await expect.poll(seen).toEqual(['ready', 1]);
  await leader.evaluate(() => window.db.close());
  await set(writing, 'row2', 2);
  await expect.poll(seen).toEqual(['ready', 1, 2]);
  await set(viewing, 'row0', 0);
  await expect.poll(seen).toEqual(['ready', 0, 1, 2]);
});

test('transactions of several tabs conflict, are retried, and lose no update', async ({ profile }) => {
  const context = await profile.launch();
  const pages = [await openTab(context), await openTab(context), await openTab(context)];
  const runs = await Promise.all(
    pages.map((page) =>
      page.evaluate(async () => {
        let count = 0;
        for (let index = 0; index < 10; index++) {
          await window.db.transaction(
            async (tx) => {
              count++;
              const old = ((await tx.get('n')) as number | undefined) ?? 0;
              await new Promise((resolve) => {
                setTimeout(resolve, 3);
              });
              await tx.set('n', old + 1);
            },
            { maxRetries: Infinity },
          );
        }
        return count;
      }),
    ),
  );
  expect(await Promise.all(pages.map((page) => get(page, 'n')))).toEqual([30, 30, 30]);
  expect(runs.reduce((all, count) => all + count)).toBeGreaterThanOrEqual(30);
  // A transaction forced to conflict.
  const [first, second] = pages as [Page, Page];
  await first.evaluate(async () => {
    const tx = window.db.begin();
    await tx.get('n');
    Object.assign(window, { tx });
  });
  await set(second, 'n', 0);
  const result = await first.evaluate(async () => {
    const { tx } = window as unknown as { tx: ReturnType<typeof window.db.begin> };
    await tx.set('m', 1);
    const { ok, ...rest } = await tx.tryCommit();
    return [ok, (rest as { reason?: string }).reason, await window.db.get('m')];
  });
  expect(result).toEqual([false, 'conflict', undefined]);
});

test('snapshots and iterators of a follower survive a change of leader if nothing was committed since', async ({
  profile,
}) => {
  const context = await profile.launch();
  const leader = await openTab(context);
  const other = await openTab(context);
  await leader.evaluate(() => window.db.setMany(Array.from({ length: 5000 }, (_, index) => [index, index] as const)));
  await other.evaluate(async () => {
    const snapshot = window.db.snapshot();
    const iterator = snapshot.keys();
    await iterator.nextMany(10);
    Object.assign(window, { snapshot, iterator });
  });
  await leader.close();
  const found = await other.evaluate(async () => {
    const { snapshot, iterator } = window as unknown as {
      snapshot: ReturnType<typeof window.db.snapshot>;
      iterator: ReturnType<typeof window.db.keys>;
    };
    const rest = await iterator.toArray();
    return [rest.length, rest[0], await snapshot.count()];
  });
  expect(found).toEqual([4990, 10, 5000]);
});

for (const mode of ['readwrite', 'readonly'] as const) {
  test(`a ${mode} transaction runs again if the tab that kept it is gone`, async ({ profile }) => {
    const context = await profile.launch();
    const leader = await openTab(context);
    const other = await openTab(context);
    const writing = await openTab(context);
    await leader.evaluate(() => window.db.setMany(Array.from({ length: 5000 }, (_, index) => [index, index] as const)));
    const found = other.evaluate((chosen) => {
      window.seen = [];
      return window.db.transaction(
        async (tx) => {
          const keys = tx.keys();
          const front = await keys.nextMany(10);
          window.seen.push(front.length);
          if (window.seen.length === 1)
            await new Promise((resolve) => {
              Object.assign(window, { go: resolve });
            });
          return (await keys.toArray()).length;
        },
        { mode: chosen },
      );
    }, mode);
    await other.waitForFunction(() => 'go' in window);
    await set(writing, 'new', 1);
    await leader.close();
    await other.evaluate(() => (window as unknown as { go(): void }).go());
    expect(await found).toBe(4991);
    expect(await other.evaluate(() => window.seen)).toEqual([10, 10]);
  });
}

test('ten tabs open a database at the same instant', async ({ profile }) => {
  test.setTimeout(120_000);
  const context = await profile.launch();
  const pages = await Promise.all(Array.from({ length: 10 }, () => emptyTab(context)));
  await Promise.all(pages.map((page) => openIn(page)));
  await Promise.all(pages.map((page, index) => set(page, `key ${index}`, index)));
  const counts = await Promise.all(pages.map((page) => page.evaluate(() => window.db.count())));
  expect(counts).toEqual(Array.from({ length: 10 }, () => 10));
  const leading = await Promise.all(pages.map((page) => leads(page)));
  expect(leading.filter(Boolean)).toHaveLength(1);
});

test('two open databases have separate leaders', async ({ profile }) => {
  const context = await profile.launch();
  const first = await openTab(context, 'one');
  const second = await openTab(context, 'two');
  const read = (page: Page, name: string): Promise<unknown> =>
    page.evaluate(async (database) => {
      const db = await window.mangrove.open(database);
      await db.set('from', database);
      const value = await db.get('k');
      await db.close();
      return value;
    }, name);
  await Promise.all([set(first, 'k', 1), set(second, 'k', 2)]);
  expect(await Promise.all([read(first, 'two'), read(second, 'one')])).toEqual([2, 1]);
  expect(await Promise.all([leads(first, 'one'), leads(second, 'two')])).toEqual([true, true]);
  await first.close();
  expect(await read(second, 'one')).toBe(1);
  expect(await get(second, 'from')).toBe('two');
});

test('a read-only tab sees the writes of others and leads for them', async ({ profile }) => {
  const context = await profile.launch();
  const writing = await openTab(context);
  const reading = await openTab(context, 'shared', { readOnly: true });
  const refused = (): Promise<unknown> =>
    reading.evaluate(async () => {
      const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
        promise.then(
          () => 'none',
          (error: { code?: string }) => error.code,
        );
      return [
        await codeOf(window.db.set('r', 1)),
        await codeOf(window.db.delete('a')),
        await codeOf(window.db.transaction((tx) => tx.set('r', 1))),
        await codeOf(window.db.batch([{ type: 'set', key: 'r', value: 1 }])),
        await codeOf(window.db.clear()),
      ];
    });
  const readOnly = Array.from({ length: 5 }, () => 'KV_READ_ONLY');
  await set(writing, 'a', 1);
  expect(await get(reading, 'a')).toBe(1);
  expect(await refused()).toEqual(readOnly);
  const third = await openTab(context);
  await writing.close();
  await set(third, 'a', 2);
  expect(await get(reading, 'a')).toBe(2);
  expect(await refused()).toEqual(readOnly);
  expect(await get(third, 'a')).toBe(2);
});

test('create, exclusive and destroy respect other tabs that have the database open', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  expect(await openCode(page, { options: { create: false } })).toBe('KV_NOT_FOUND');
  const leader = await openTab(context);
  const follower = await openTab(context);
  await set(leader, 'a', 1);
  expect(await openCode(page, { options: { exclusive: true } })).toBe('KV_EXISTS');
  expect(await openCode(page, { options: { create: false } })).toBe('none');
  expect(await openCode(page, { name: 'absent', options: { create: false } })).toBe('KV_NOT_FOUND');
  expect(await openCode(page, { name: 'new', options: { exclusive: true } })).toBe('none');
  expect(await Promise.all([destroyCode(page), destroyCode(follower), destroyCode(leader)])).toEqual([
    'KV_LOCKED',
    'KV_LOCKED',
    'KV_LOCKED',
  ]);
  expect(await get(follower, 'a')).toBe(1);
  await Promise.all([page.close(), follower.evaluate(() => window.db.close())]);
  await leader.evaluate(() => window.db.close());
  expect(await openCode(follower, { options: { exclusive: true } })).toBe('KV_EXISTS');
  expect(await destroyCode(leader)).toBe(true);
  expect(await openCode(follower, { options: { create: false } })).toBe('KV_NOT_FOUND');
});
