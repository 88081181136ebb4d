// The engine's module in two parts: a page that reads and writes loads the core only, and the
// leader's worker loads the lazy part at the first call that needs it, whichever tab makes that call.
import type { BrowserContext } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

/** Paths of the modules that the browser requests from now on. */
function modulesOf(context: BrowserContext): string[] {
  const modules: string[] = [];
  context.on('request', (request) => {
    const part = /mangrove_(core|lazy)_bg[^/]*\.wasm$/.exec(new URL(request.url()).pathname)?.[1];
    if (part !== undefined) modules.push(part);
  });
  return modules;
}

for (const storage of ['opfs', 'indexeddb', 'memory'] as const) {
  test(`the lazy part is loaded at the first call that needs it: ${storage}`, async ({ profile }) => {
    const context = await profile.launch();
    const modules = modulesOf(context);
    const page = await context.newPage();
    await page.goto(HARNESS_URL);
    await page.evaluate(async (storage) => {
      const { open } = window.mangrove;
      const db = await open('parts', { storage });
      const followed = db.watch()[Symbol.asyncIterator]();
      const event = followed.next();
      await db.set('a', 1);
      await event;
      await followed.return?.();
      await db.transaction(async (tx) => tx.set('b', ((await tx.get('a')) as number) + 1));
      if ((await db.snapshot().get('b')) !== 2 || (await db.count()) !== 2) throw new Error('a read is wrong');
      Object.assign(window, { db });
    }, storage);
    expect(modules).toEqual(['core']);
    const found = await page.evaluate(async () => {
      const { db } = window as unknown as { db: Awaited<ReturnType<typeof window.mangrove.open>> };
      // All at once, before the lazy part is there, and a write that does not wait for it.
      const calls = Promise.all([
        db.stats(),
        db.verify(),
        db.layout(),
        new Response(db.backup()).arrayBuffer(),
        db.compact(),
        db.refresh(),
      ]);
      await db.set('c', 3);
      const [stats, verified, layout, backup, compacted, refreshed] = await calls;
      await db.close();
      return [
        stats.version > 0,
        verified.problems,
        layout.extents.length > 0,
        backup.byteLength > 0,
        compacted.after > 0,
        refreshed,
      ];
    });
    expect(found).toEqual([true, [], true, true, true, false]);
    expect(modules).toEqual(['core', 'lazy']);
  });
}

test('the leader loads the lazy part for another tab, and the next leader loads it for itself', async ({ profile }) => {
  const context = await profile.launch();
  const modules = modulesOf(context);
  const [first, second] = [await context.newPage(), await context.newPage()];
  for (const page of [first, second]) {
    await page.goto(HARNESS_URL);
    await page.evaluate(async () => {
      const db = await window.mangrove.open('shared');
      await db.set(performance.now(), 'tab');
      Object.assign(window, { db });
    });
  }
  const verified = (): Promise<unknown[]> =>
    second.evaluate(async () => {
      const { db } = window as unknown as { db: Awaited<ReturnType<typeof window.mangrove.open>> };
      const { entries, problems } = await db.verify();
      return [entries, problems];
    });
  expect(await verified()).toEqual([2, []]);
  await first.close();
  expect(await verified()).toEqual([2, []]);
  expect(modules.filter((part) => part === 'lazy').length).toBeGreaterThan(0);
});

test('a lazy part that cannot be loaded fails the call only, and is loaded when it can be', async ({ profile }) => {
  const context = await profile.launch();
  await context.route(/mangrove_lazy_bg/, (route) => route.abort());
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  const stats = (): Promise<unknown[]> =>
    page.evaluate(async () => {
      const { open } = window.mangrove;
      const db = await open('offline');
      await db.set('a', 1);
      const answer = await db.stats().then(
        () => 'stats',
        ({ code, retryable }: { code: string; retryable: boolean }) => `${code} ${retryable}`,
      );
      const kept = await db.get('a');
      await db.close();
      return [answer, kept];
    });
  expect(await stats()).toEqual(['KV_IO true', 1]);
  await context.unroute(/mangrove_lazy_bg/);
  expect(await stats()).toEqual(['stats', 1]);
});

test('a script that cannot be loaded is a typed error that loses nothing', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  await context.route(/\/database-maintenance[^/]*\.js$/, (route) => route.abort());
  const failed = await page.evaluate(async () => {
    const db = await window.mangrove.open('scripts');
    await db.set('a', 1);
    Object.assign(window, { db });
    const calls = [db.compact(), db.layout()].map((call) =>
      call.then(
        () => 'done',
        ({ name, code, retryable }) => ({ name, code, retryable }),
      ),
    );
    return [...(await Promise.all(calls)), await db.get('a')];
  });
  const error = { name: 'KvError', code: 'KV_IO', retryable: true };
  expect(failed).toEqual([error, error, 1]);
});
