// Many tabs of one origin with the same database: who leads, and what becomes of everybody when that ends.
import type { BrowserContext, Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

declare global {
  interface Window {
    db: Awaited<ReturnType<typeof window.mangrove.open>>;
    seen: unknown[];
  }
}

async function openTab(context: BrowserContext, name = 'shared'): Promise<Page> {
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  await page.evaluate(async (database) => {
    window.db = await window.mangrove.open(database);
  }, name);
  return page;
}

const set = (page: Page, key: string, value: unknown): Promise<unknown> =>
  page.evaluate(([at, what]) => window.db.set(at as string, what).then(() => undefined), [key, value] as const);
const get = (page: Page, key: string): Promise<unknown> => page.evaluate((at) => window.db.get(at), key);

test('tabs see each other\'s commits, and the next one leads when the leader is closed', async ({ profile }) => {
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

test('a watch goes on over a change of the leader', async ({ profile }) => {
  const context = await profile.launch();
  const leader = await openTab(context);
  const watching = await openTab(context);
  const writing = await openTab(context);
  await watching.evaluate(() => {
    window.seen = [];
    void (async () => {
      for await (const commit of window.db.watch()) window.seen.push(...commit.changes.map((change) => change.type === 'set' && change.value));
    })().catch((error: unknown) => window.seen.push(String(error)));
  });
  await set(writing, 'a', 1);
  await set(leader, 'a', 2);
  await leader.evaluate(() => window.db.close());
  await set(writing, 'a', 3);
  await expect.poll(() => watching.evaluate(() => window.seen)).toEqual([1, 2, 3]);
});
