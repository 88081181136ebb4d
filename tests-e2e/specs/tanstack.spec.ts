// TanStack DB on a database in OPFS that tabs share: local collections, and TanStack DB's own persistence.
import type { Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

type Tanstack = Awaited<ReturnType<typeof window.loadTanstack>>;
type Kind = Parameters<Tanstack['open']>[0];

function call<M extends keyof Tanstack>(
  page: Page,
  method: M,
  ...args: Parameters<Tanstack[M]>
): Promise<Awaited<ReturnType<Tanstack[M]>>> {
  return page.evaluate(
    async ([method, args]) => {
      const { tanstack } = window as unknown as { tanstack: Record<string, (...args: unknown[]) => unknown> };
      return await tanstack[method]!(...(args as unknown[]));
    },
    [method, args] as const,
  ) as Promise<Awaited<ReturnType<Tanstack[M]>>>;
}

/** Opens the database in a page, as `window.tanstack`. */
async function openIn(page: Page, kind: Kind): Promise<void> {
  await page.goto(HARNESS_URL);
  await page.evaluate(async () => Object.assign(window, { tanstack: await window.loadTanstack() }));
  await call(page, 'open', kind);
}

const person = (n: number): { id: string; name: string; age: number; city: string } => ({
  id: `p${n}`,
  name: `name ${n}`,
  age: n % 100,
  city: `city ${n % 2}`,
});
const PEOPLE = Array.from({ length: 300 }, (_, n) => person(n));
const CITIES = [
  { id: 'city 0', country: 'Kenya' },
  { id: 'city 1', country: 'Peru' },
];

for (const kind of ['eager', 'persisted'] as const) {
  test(`${kind}: a second tab hydrates, both follow each other, and a reload shows everything`, async ({ profile }) => {
    const context = await profile.launch();
    const [first, second] = [await context.newPage(), await context.newPage()];
    await openIn(first, kind);
    await call(first, 'insert', PEOPLE);
    await call(first, 'insertCities', CITIES);
    await openIn(second, kind);
    expect(await call(second, 'loaded')).toBe(300);

    for (const page of [first, second]) await call(page, 'showJoined', 99);
    const joined = ['name 199 Peru', 'name 299 Peru', 'name 99 Peru'];
    for (const page of [first, second]) await expect.poll(() => call(page, 'show')).toEqual(joined);
    await call(second, 'rename', 'p99', 'renamed');
    await call(first, 'remove', 'p199');
    await call(second, 'grow', 'p0', 99);
    for (const page of [first, second])
      await expect.poll(() => call(page, 'show')).toEqual(['name 0 Kenya', 'name 299 Peru', 'renamed Peru']);

    // The tab that holds the files is closed.
    await first.close();
    await call(second, 'rename', 'p99', 'again');
    await expect.poll(() => call(second, 'show')).toContain('again Peru');
    await second.reload();
    await openIn(second, kind);
    expect(await call(second, 'loaded')).toBe(299);
    expect(await call(second, 'find', 'p99')).toEqual({ ...person(99), name: 'again' });
    await context.close();

    const again = await (await profile.launch()).newPage();
    await openIn(again, kind);
    expect(await call(again, 'loaded')).toBe(299);
    expect(await call(again, 'verify')).toEqual(['opfs', []]);
  });
}

test('on demand, a tab loads the rows that its queries ask for, and follows those of others', async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await context.newPage(), await context.newPage()];
  await openIn(first, 'on-demand');
  await call(first, 'insert', PEOPLE);
  await call(first, 'insertCities', CITIES);
  await openIn(second, 'on-demand');
  expect(await call(second, 'loaded')).toBe(0);
  await call(second, 'showOldest');
  await expect.poll(() => call(second, 'show')).toHaveLength(3);
  expect(await call(second, 'loaded')).toBeLessThan(50);

  await call(first, 'insert', [{ id: 'oldest', name: 'oldest', age: 150, city: 'city 0' }]);
  await expect.poll(async () => (await call(second, 'show'))[0]).toBe('oldest');
  await call(second, 'remove', 'oldest');
  await expect.poll(async () => (await call(second, 'show'))[0]).not.toBe('oldest');
  expect(await call(second, 'show')).toHaveLength(3);

  await call(second, 'showJoined', 99);
  const joined = ['name 199 Peru', 'name 299 Peru', 'name 99 Peru'];
  await expect.poll(() => call(second, 'show')).toEqual(joined);
  // The tab that holds the files goes, with what its commits were about to tell.
  await call(first, 'rename', 'p99', 'renamed');
  await first.close();
  await expect.poll(() => call(second, 'show')).toEqual(['name 199 Peru', 'name 299 Peru', 'renamed Peru']);
  await call(second, 'rename', 'p99', 'again');
  await expect.poll(() => call(second, 'show')).toEqual(['again Peru', 'name 199 Peru', 'name 299 Peru']);
  expect(await call(second, 'verify')).toEqual(['opfs', []]);
});
