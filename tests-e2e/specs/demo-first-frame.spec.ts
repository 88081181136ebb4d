// After a reload the demo's first frame has the rows, at the place that was scrolled to, and no frame lacks them.
import type { Page } from '@playwright/test';
import { importCities } from '../demo.ts';
import { expect, test } from '../persistent.ts';

interface Frames {
  /** Rows with content of each frame since the page was loaded. */
  readonly rows: number[];
  readonly first: string;
}

/** Counts the rows of each frame from the first one on, before it is drawn. */
async function recordFrames(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const frames: { rows: number[]; first: string } = { rows: [], first: '' };
    Object.assign(globalThis, { frames });
    const look = (): void => {
      const rows = document.querySelectorAll('#list .row:not(.loading)');
      if (frames.rows.length === 0) frames.first = rows[0]?.textContent ?? '';
      frames.rows.push(rows.length);
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}

async function framesAfterReload(page: Page): Promise<Frames> {
  await page.reload();
  await expect(page.getByTestId('persistence')).toBeVisible();
  await expect(page.getByTestId('stat-tree-depth')).toHaveText('3');
  return page.evaluate(() => (globalThis as unknown as { frames: Frames }).frames);
}

test('no frame after a reload lacks the rows', async ({ profile }, info) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await importCities(page);
  await recordFrames(page);
  const list = page.getByTestId('list');
  const visible = await page.locator('#list .row').count();
  const top = await framesAfterReload(page);
  await page.screenshot({ path: info.outputPath('reloaded.png') });
  expect(top.rows.length).toBeGreaterThan(5);
  expect(Math.min(...top.rows)).toBeGreaterThanOrEqual(visible - 1);
  expect(top.first).toMatch(/^1\D/);

  // At a place that is not mirrored.
  await page.getByTestId('jump').fill('150,000');
  await page.getByTestId('jump').press('Enter');
  await expect(page.locator('.row.active:not(.loading)')).toHaveText(/^150,000/);
  const before = await page.locator('#list .row').first().textContent();
  const scrolled = await framesAfterReload(page);
  expect(Math.min(...scrolled.rows)).toBeGreaterThanOrEqual(visible - 1);
  expect(scrolled.first).toBe(before);

  // Scrolling to mirrored rows draws them in the same frame.
  await list.focus();
  await page.keyboard.press('Home');
  const blank = await page.evaluate(
    () =>
      new Promise<number>((resolve) => {
        const element = document.getElementById('list')!;
        element.scrollTop = 600 * 40;
        requestAnimationFrame(() =>
          requestAnimationFrame(() => resolve(document.querySelectorAll('#list .row.loading').length)),
        );
      }),
  );
  expect(blank).toBe(0);

  // A tab that has never shown them has nothing to draw before the database is open.
  const other = await context.newPage();
  await other.goto(page.url());
  await expect(other.locator('#list .row:not(.loading)').first()).toBeVisible();
});
