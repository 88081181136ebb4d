// A tab that asks for more in one tick than the engine's memory could hold takes nothing from the
// others.
import type { Page } from '@playwright/test';
import { expect, test } from '../persistent.ts';
import { openTab, set } from '../tabs-page.ts';

declare global {
  interface Window {
    snapshot: ReturnType<typeof window.db.snapshot>;
    transaction: ReturnType<typeof window.db.begin>;
  }
}

const VALUE_BYTES = 1_500_000;
/** Together more than an allocation in WebAssembly may have. */
const READS = 1500;
/** The cache, and what replies may take beyond it. */
const MAX_MEMORY = (32 + 256) << 20;

const readMuch = (page: Page, reads: number): Promise<{ readonly read: number; readonly memorySize: number }> =>
  page.evaluate(async (count) => {
    const lengths = await Promise.all(
      Array.from({ length: count }, (_, index) =>
        window.db.get(index % 10).then((value) => (value as Uint8Array).length),
      ),
    );
    const { memorySize } = await window.db.stats();
    return { read: lengths.reduce((sum, length) => sum + length, 0), memorySize };
  }, reads);

test('what other tabs have open survives', async ({ profile }) => {
  test.slow();
  const context = await profile.launch();
  const leader = await openTab(context);
  const reading = await openTab(context);
  const other = await openTab(context);
  await leader.evaluate(async (length) => {
    await window.db.setMany(Array.from({ length: 10 }, (_, key) => [key, new Uint8Array(length).fill(key)]));
    await window.db.set('note', 'old');
  }, VALUE_BYTES);
  await other.evaluate(async () => {
    window.snapshot = window.db.snapshot();
    await window.snapshot.get('note');
  });
  // A client that opens the database again cannot continue the snapshot.
  await set(leader, 'note', 'new');
  await other.evaluate(async () => {
    window.transaction = window.db.begin({ timeout: Infinity });
    await window.transaction.set('copy', await window.transaction.get('note'));
  });
  // By way of another tab, and in the page of the engine itself.
  for (const [page, reads] of [
    [reading, READS],
    [leader, READS / 5],
  ] as const) {
    const { read, memorySize } = await readMuch(page, reads);
    expect(read).toBe(reads * VALUE_BYTES);
    expect(memorySize).toBeLessThan(MAX_MEMORY);
  }
  expect(await other.evaluate(() => window.snapshot.get('note'))).toBe('old');
  expect(
    await other.evaluate(async () => {
      await window.transaction.commit();
      return window.db.get('copy');
    }),
  ).toBe('new');
  for (const page of [leader, reading, other]) expect(await page.evaluate(() => window.events)).toEqual([]);
});
