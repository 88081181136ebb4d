// All processes of the browser are killed at once with SIGKILL while a page writes and its changes
// are being merged: nodes and cache are small, and some values out of line. Afterwards all
// acknowledged batches are there, every batch is whole, and the database verifies. A browser that
// has lost the whole origin's IndexedDB starts again with nothing acknowledged.
import { HARNESS_URL } from '../browser.ts';
import { isOriginKept } from '../origin.ts';
import { expect, test } from '../persistent.ts';
import { killBrowser } from '../processes.ts';

const ROUNDS = 4;
const PER_BATCH = 20;
/** Values that are replaced again and again. */
const SLOTS = 40;
const OPTIONS = { advanced: { nodeBytes: 512, unitBytes: 512 }, cacheBytes: 65_536 };

for (const storage of ['opfs', 'indexeddb'] as const)
  test(`killing the browser during writes to ${storage} loses no acknowledged write`, async ({ profile }) => {
    test.setTimeout(120_000);
    let newest = -1;
    for (let round = 0; round < ROUNDS; round++) {
      const context = await profile.launch();
      const page = await context.newPage();
      let acknowledged = -1;
      let checkpoints = 0;
      await page.exposeFunction('acknowledge', (batch: number, made: number) => {
        acknowledged = batch;
        checkpoints = made;
      });
      await page.goto(HARNESS_URL);
      if (storage === 'indexeddb' && !(await isOriginKept(page))) newest = -1;
      const found = await page.evaluate(
        async (options) => {
          const db = await window.mangrove.open('killed', options);
          const report = await db.verify();
          const count = await db.count();
          const slots = await db.collection<number, Uint8Array>('slots').entries().toArray();
          // Not closed, which would end all merges: the next engine begins with what was killed.
          return {
            count,
            problems: report.problems,
            slots: slots.map(([slot, value]) => [slot, value.length] as const),
          };
        },
        { ...OPTIONS, storage },
      );
      expect(found.problems).toEqual([]);
      for (let batch = Math.max(0, newest - SLOTS + 1); batch <= newest; batch++) {
        const length = found.slots.find(([slot]) => slot === batch % SLOTS)?.[1] ?? 0;
        expect(length - 600, `slot ${batch % SLOTS}`).toBeGreaterThanOrEqual(batch);
        expect((length - 600) % SLOTS).toBe(batch % SLOTS);
      }
      expect(found.count % PER_BATCH).toBe(0);
      expect(found.count / PER_BATCH - 1).toBeGreaterThanOrEqual(newest);
      const first = found.count / PER_BATCH;
      // Not awaited: it writes until the browser dies.
      void page
        .evaluate(
          async ({ first, perBatch, slots, options }) => {
            const db = await window.mangrove.open('killed', options);
            const acknowledge = (
              window as unknown as { acknowledge(batch: number, checkpoints: number): Promise<void> }
            ).acknowledge;
            for (let batch = first; ; batch++) {
              // Out of line; the length says which batch it is from. Before the batch: its entries tell the
              // next life where to go on.
              await db.collection('slots').set(batch % slots, crypto.getRandomValues(new Uint8Array(600 + batch)));
              // Scattered, so that merges have all of the tree to pass.
              await db.setMany(
                Array.from({ length: perBatch }, (_, part) => [[(batch * 7919) % 1000, batch, part], batch] as const),
              );
              void acknowledge(batch, (await db.stats()).checkpoints);
            }
          },
          { first, perBatch: PER_BATCH, slots: SLOTS, options: { ...OPTIONS, storage } },
        )
        .catch(() => undefined);
      await expect.poll(() => acknowledged, { timeout: 20_000 }).toBeGreaterThan(first + 5 + round * 11);
      await expect.poll(() => checkpoints, { timeout: 20_000 }).toBeGreaterThan(2);
      expect(killBrowser(profile.directory)).toBeGreaterThan(1);
      newest = acknowledged;
      await context.close().catch(() => undefined);
    }
    const context = await profile.launch();
    const page = await context.newPage();
    await page.goto(HARNESS_URL);
    if (storage === 'indexeddb' && !(await isOriginKept(page))) newest = -1;
    const end = await page.evaluate(
      async (options) => {
        const db = await window.mangrove.open('killed', options);
        const values = await db.entries().toArray();
        return { values: values.map(([key, value]) => [(key as number[])[1], value]), report: await db.verify() };
      },
      { ...OPTIONS, storage },
    );
    expect(end.report.ok).toBe(true);
    expect(end.values.length % PER_BATCH).toBe(0);
    expect(end.values.length / PER_BATCH).toBeGreaterThan(newest);
    expect(end.values.every(([batch, value]) => batch === value)).toBe(true);
  });
