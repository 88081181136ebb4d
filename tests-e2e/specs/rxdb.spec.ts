// RxDB on its storage in a browser: in OPFS, shared by tabs.
import type { Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

type Rxdb = Awaited<ReturnType<typeof window.loadRxdb>>;

/** Opens the database in a page, as `window.rxdb`. */
async function openIn(page: Page): Promise<void> {
  await page.goto(HARNESS_URL);
  await page.evaluate(async () => {
    const rxdb = await window.loadRxdb();
    Object.assign(window, { rxdb });
    await rxdb.open('people');
  });
}

function call<M extends keyof Rxdb>(
  page: Page,
  method: M,
  ...args: Parameters<Rxdb[M]>
): Promise<Awaited<ReturnType<Rxdb[M]>>> {
  return page.evaluate(
    async ([method, args]) => {
      const { rxdb } = window as unknown as { rxdb: Record<string, (...args: unknown[]) => unknown> };
      return await rxdb[method]!(...(args as unknown[]));
    },
    [method, args] as const,
  ) as Promise<Awaited<ReturnType<Rxdb[M]>>>;
}

const person = (n: number): { id: string; name: string; age: number } => ({
  id: `p${String(n).padStart(4, '0')}`,
  name: `name ${n % 10}`,
  age: n % 100,
});

test("two tabs share a database of RxDB, and follow each other's changes", async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await context.newPage(), await context.newPage()];
  await openIn(first);
  expect(
    await call(
      first,
      'insert',
      Array.from({ length: 500 }, (_, n) => person(n)),
    ),
  ).toBe(500);
  await openIn(second);

  // Both tabs show the two oldest.
  for (const page of [first, second])
    await call(page, 'follow', { selector: { age: { $gte: 50 } }, sort: [{ age: 'desc' }], limit: 2 });
  await expect.poll(() => call(second, 'newest')).toEqual(['p0099', 'p0199']);
  await call(first, 'insert', [{ id: 'new', name: 'new', age: 150 }]);
  for (const page of [first, second]) await expect.poll(() => call(page, 'newest')).toEqual(['new', 'p0099']);
  await call(second, 'remove', 'new');
  for (const page of [first, second]) await expect.poll(() => call(page, 'newest')).toEqual(['p0099', 'p0199']);

  // Both change one document at once: conflicts are repeated, and nothing is lost.
  await Promise.all(Array.from({ length: 20 }, (_, n) => call(n % 2 === 0 ? first : second, 'birthday', 'p0007')));
  for (const page of [first, second]) await expect.poll(() => call(page, 'age', 'p0007')).toBe(27);

  expect(await call(second, 'count', { selector: { age: { $lt: 10 } } })).toBe(49);
  expect(
    await call(second, 'find', { selector: { name: 'name 3', age: { $gt: 90 } }, sort: [{ id: 'asc' }], limit: 2 }),
  ).toEqual(['p0093', 'p0193']);

  // The tab that holds the files is closed.
  await first.close();
  await call(second, 'insert', [{ id: 'later', name: 'later', age: 151 }]);
  await expect.poll(() => call(second, 'newest')).toEqual(['later', 'p0099']);
  expect(await call(second, 'verify')).toEqual(['opfs', []]);
});

test('documents and attachments are there after the browser was restarted', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await openIn(page);
  await call(page, 'insert', [person(1), person(2)]);
  await call(page, 'attach', 'p0001', 'some text');
  await context.close();

  const again = await (await profile.launch()).newPage();
  await openIn(again);
  expect(await call(again, 'attached', 'p0001')).toBe('some text');
  expect(await call(again, 'find', { selector: { age: 2 } })).toEqual(['p0002']);
  expect(await call(again, 'verify')).toEqual(['opfs', []]);
});
