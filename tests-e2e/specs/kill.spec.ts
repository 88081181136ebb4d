// All processes of the browser are killed at once with SIGKILL while a page writes. Afterwards all
// acknowledged batches are there, every batch is whole, and the database verifies. A browser that
// has lost the whole origin's IndexedDB starts again with nothing acknowledged.
import { HARNESS_URL } from '../browser.ts';
import { isOriginKept } from '../origin.ts';
import { expect, test } from '../persistent.ts';
import { killBrowser } from '../processes.ts';

const ROUNDS = 4;
const PER_BATCH = 20;

for (const storage of ['opfs', 'indexeddb'] as const) test(`killing the browser during writes to ${storage} loses no acknowledged write`, async ({ profile }) => {
  test.setTimeout(120_000);
  let newest = -1;
  for (let round = 0; round < ROUNDS; round++) {
    const context = await profile.launch();
    const page = await context.newPage();
    let acknowledged = -1;
    await page.exposeFunction('acknowledge', (batch: number) => { acknowledged = batch; });
    await page.goto(HARNESS_URL);
    if (storage === 'indexeddb' && !await isOriginKept(page)) newest = -1;
    const found = await page.evaluate(async (storage) => {
      const { open } = window.mangrove;
      const db = await open('killed', { storage });
      const report = await db.verify();
      const count = await db.count();
      await db.close();
      return { count, ok: report.ok };
    }, storage);
    expect(found.ok).toBe(true);
    expect(found.count % PER_BATCH).toBe(0);
    expect(found.count / PER_BATCH - 1).toBeGreaterThanOrEqual(newest);
    const first = found.count / PER_BATCH;
    // Not awaited: it writes until the browser dies.
    void page.evaluate(async ({ first, perBatch, storage }) => {
      const { open } = window.mangrove;
      const db = await open('killed', { storage });
      const acknowledge = (window as unknown as { acknowledge(batch: number): Promise<void> }).acknowledge;
      for (let batch = first; ; batch++) {
        await db.setMany(Array.from({ length: perBatch }, (_, part) => [[batch, part], batch] as const));
        void acknowledge(batch);
      }
    }, { first, perBatch: PER_BATCH, storage }).catch(() => undefined);
    await expect.poll(() => acknowledged, { timeout: 20_000 }).toBeGreaterThan(first + 5 + round * 11);
    expect(killBrowser(profile.directory)).toBeGreaterThan(1);
    newest = acknowledged;
    await context.close().catch(() => undefined);
  }
  const context = await profile.launch();
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  if (storage === 'indexeddb' && !await isOriginKept(page)) newest = -1;
  const end = await page.evaluate(async (storage) => {
    const { open } = window.mangrove;
    const db = await open('killed', { storage });
    const values = await db.entries().toArray();
    return { values: values.map(([key, value]) => [(key as number[])[0], value]), report: await db.verify() };
  }, storage);
  expect(end.report.ok).toBe(true);
  expect(end.values.length % PER_BATCH).toBe(0);
  expect(end.values.length / PER_BATCH).toBeGreaterThan(newest);
  expect(end.values.every(([batch, value]) => batch === value)).toBe(true);
});
