// Lists of React that wait for their rows within `Suspense`: what is seen, how often they are drawn, and errors.
import type { Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';
import type { Profile } from '../persistent.ts';

/** So often a list may be drawn for one change: twice in strict mode, again after the wait, and before that its siblings. */
const DRAWINGS = 8;

async function openPage(profile: Profile): Promise<{ page: Page; errors: string[] }> {
  const page = await (await profile.launch()).newPage();
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  // The 404 is the browser's request for an icon that does not exist.
  page.on(
    'console',
    (message) =>
      ['error', 'warning'].includes(message.type()) && !message.text().includes('404') && errors.push(message.text()),
  );
  await page.goto(HARNESS_URL);
  return { page, errors };
}

const state = (page: Page) => page.evaluate(() => window.suspense.state());
const last = (page: Page) => expect.poll(async () => (await state(page)).seen.at(-1));

/** Waits for drawings that are not caused by anything, as of a list that waits without end. */
async function settle(page: Page): Promise<void> {
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 300)));
}

for (const isStrict of [false, true]) {
  for (const isForeign of [false, true]) {
    const how = `${isForeign ? ' of a source of its own' : ''}${isStrict ? ', in strict mode' : ''}`;

    test(`two lists of one query${how} wait, are drawn, and follow`, async ({ profile }) => {
      const { page, errors } = await openPage(profile);
      await page.evaluate(
        ([isStrict, isForeign]) => window.mountSuspense({ isStrict, isForeign, begin: 'read', lists: 2 }),
        [isStrict, isForeign] as const,
      );
      await last(page).toBe('ready: a1 a2|ready: a1 a2');
      await settle(page);
      const { seen, drawings, reads } = await state(page);
      expect(seen).toEqual(['waiting', 'ready: a1 a2|ready: a1 a2']);
      expect(drawings.filter((each) => each === 'loading')).toEqual([]);
      expect(drawings.filter((each) => each === 'begun').length).toBeLessThanOrEqual(2 * DRAWINGS);
      // The reading that both wait for, and no more for each of them.
      expect(reads).toBeLessThanOrEqual(isForeign ? 3 : 0);
      await page.evaluate(() => window.suspense.set('a3'));
      await last(page).toBe('ready: a1 a2 a3|ready: a1 a2 a3');
      await page.evaluate(() => window.suspense.unmount());
      await page.evaluate(() => window.suspense.close());
      expect(errors).toEqual([]);
    });

    test(`another range${how}: a transition shows the one before, anything else waits`, async ({ profile }) => {
      const { page, errors } = await openPage(profile);
      await page.evaluate(
        ([isStrict, isForeign]) => window.mountSuspense({ isStrict, isForeign, begin: 'read', lists: 1 }),
        [isStrict, isForeign] as const,
      );
      await last(page).toBe('ready: a1 a2');
      const show = (range: { prefix: string; keepPrevious?: boolean }, isTransition: boolean) =>
        page.evaluate(([range, isTransition]) => window.suspense.show(range, isTransition), [
          range,
          isTransition,
        ] as const);
      await show({ prefix: 'b' }, true);
      await last(page).toBe('ready: b1');
      expect((await state(page)).seen.slice(1)).toEqual(['ready: a1 a2', 'pending|ready: a1 a2', 'ready: b1']);
      await show({ prefix: 'c' }, false);
      await last(page).toBe('ready: c1');
      expect((await state(page)).seen.slice(4)).toEqual(['waiting', 'ready: c1']);
      await settle(page);
      const { drawings } = await state(page);
      expect(drawings.filter((each) => each === 'loading')).toEqual([]);
      expect(drawings.filter((each) => each === 'begun').length).toBeLessThanOrEqual(3 * DRAWINGS);
      await page.evaluate(() => window.suspense.close());
      expect(errors).toEqual([]);
    });

    for (const isSlow of [false, true]) {
      const where = `the ${isSlow ? 'slow ' : ''}error boundary`;
      test(`what reading${how} fails with reaches ${where}, and another attempt reads again`, async ({ profile }) => {
        const { page, errors } = await openPage(profile);
        await page.evaluate(
          ([isStrict, isForeign, isSlow]) =>
            window.mountSuspense({ isStrict, isForeign, begin: 'read', lists: 2, isSlow }),
          [isStrict, isForeign, isSlow] as const,
        );
        await last(page).toBe('ready: a1 a2|ready: a1 a2');
        // Only the read finds what is wrong with it.
        await page.evaluate(() => window.suspense.show({ prefix: Number.NaN as never }, false));
        await last(page).toBe('caught KV_INVALID_ARGUMENT');
        await settle(page);
        await last(page).toBe('caught KV_INVALID_ARGUMENT');
        const before = await state(page);
        await page.evaluate(() => window.suspense.show({ prefix: Number.NaN as never }, false));
        await expect.poll(async () => (await state(page)).drawings.length).toBeGreaterThan(before.drawings.length);
        if (isForeign) await expect.poll(async () => (await state(page)).reads).toBe(before.reads + 1);
        await last(page).toBe('caught KV_INVALID_ARGUMENT');
        await page.evaluate(() => window.suspense.show({ prefix: 'b' }, false));
        await last(page).toBe('ready: b1|ready: b1');
        await settle(page);
        expect((await state(page)).drawings.length).toBeLessThanOrEqual(4 * 2 * 2 * DRAWINGS);
        await page.evaluate(() => window.suspense.close());
        expect(errors).toEqual([]);
      });
    }
  }

  for (const begin of ['mirrored', 'preloaded'] as const) {
    test(`what is ${begin} need not be waited for${isStrict ? ', in strict mode' : ''}`, async ({ profile }) => {
      const { page, errors } = await openPage(profile);
      await page.evaluate(
        ([isStrict, begin]) => window.mountSuspense({ isStrict, isForeign: false, begin, lists: 2 }),
        [isStrict, begin] as const,
      );
      await last(page).toBe('ready: a1 a2|ready: a1 a2');
      expect((await state(page)).seen).toEqual(['ready: a1 a2|ready: a1 a2']);
      await page.evaluate(() => window.suspense.close());
      expect(errors).toEqual([]);
    });
  }
}
