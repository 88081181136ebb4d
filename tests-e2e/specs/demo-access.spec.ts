// Accessibility of the demo: axe finds nothing on any page, light or dark, wide or narrow, and
// everything works from the keyboard.
import AxeBuilder from '@axe-core/playwright';
import type { Page } from '@playwright/test';
import { hits, importCities } from '../demo.ts';
import { expect, test } from '../persistent.ts';

async function expectClean(page: Page, what: string): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const found = violations.map(
    ({ id, nodes }) =>
      `${what}: ${id}: ${nodes.map(({ target, failureSummary }) => `${target.join(' ')} ${failureSummary}`).join('\n')}`,
  );
  expect(found).toEqual([]);
}

/** Imports part of the data set, which is enough for the audit. */
async function importSome(page: Page): Promise<void> {
  await page.goto('/');
  await expect(page.getByTestId('import')).toBeVisible();
  await expectClean(page, 'welcome');
  // Cancels from within the page: a click from outside may arrive after the import has finished.
  await page.getByTestId('import-progress').evaluate((progress) => {
    const observer = new MutationObserver(() => {
      if (!/^[1-9].*per second/.test(progress.textContent ?? '')) return;
      observer.disconnect();
      document.querySelector<HTMLElement>('[data-testid="import-cancel"]')?.click();
    });
    observer.observe(progress, { subtree: true, childList: true, characterData: true });
  });
  await page.getByTestId('import').click();
  await expect(page.getByTestId('list')).toBeVisible({ timeout: 60_000 });
  expect(await hits(page)).toBeLessThan(100_000);
}

for (const colorScheme of ['light', 'dark'] as const) {
  for (const [width, height] of [
    [1440, 900],
    [360, 740],
  ] as const) {
    test(`axe finds no violations: ${colorScheme}, ${width} wide`, async ({ profile, browserName }) => {
      test.skip(browserName !== 'chromium', 'the markup is the same in every browser, and the audit takes minutes');
      test.setTimeout(300_000);
      const context = await profile.launch();
      const page = await context.newPage();
      await page.emulateMedia({ reducedMotion: 'reduce', colorScheme });
      await page.setViewportSize({ width, height });
      await importSome(page);
      await expect(page.locator('.row').first()).not.toHaveClass(/loading/);
      await expectClean(page, 'explore');
      await page.locator('.row').first().click();
      await expectClean(page, 'editor');
      await page.keyboard.press('Escape');
      await page.getByRole('link', { name: 'Inspect' }).click();
      const inspector = page.getByTestId('inspector');
      await inspector.locator('.row-button').first().click();
      for (const tab of ['Entries', 'Tree', 'File', 'Figures', 'Maintenance']) {
        await inspector.getByRole('tab', { name: tab }).click();
        await expectClean(page, tab);
      }
      await page.getByRole('link', { name: 'Bench' }).click();
      await expect(page.getByTestId('peers').getByRole('button', { name: 'Run' })).toBeVisible();
      await expectClean(page, 'bench');
      // No page overflows horizontally.
      for (const name of ['Explore', 'Inspect', 'Bench']) {
        await page.getByRole('link', { name }).click();
        expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name).toBe(true);
      }
    });
  }
}

test('everything works from the keyboard', async ({ profile }) => {
  test.slow();
  const context = await profile.launch();
  const page = await context.newPage();
  await importCities(page);
  await page.keyboard.press('/');
  await expect(page.getByTestId('search')).toBeFocused();
  await page.keyboard.type('Quito');
  await expect(page.locator('.row > :nth-child(2)').first()).toHaveText('Quito');
  await page.getByTestId('search').blur();
  await page.keyboard.press('g');
  await page.keyboard.type('2');
  await page.keyboard.press('Enter');
  await expect(page.getByTestId('list')).toBeFocused();
  await expect(page.locator('.row.active')).toHaveAttribute('aria-rowindex', '2');
  await page.keyboard.press('Home');
  await page.keyboard.press('Enter');
  await expect(page.getByTestId('edit-name')).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(page.getByTestId('edit-name')).toBeHidden();
  const before = await page.getByTestId('hits').textContent();
  await page.keyboard.press('Delete');
  await expect(page.getByTestId('hits')).not.toHaveText(before!);
  await page.keyboard.press('u');
  await expect(page.getByTestId('hits')).toHaveText(before!);

  await page.keyboard.press('2');
  const inspector = page.getByTestId('inspector');
  const entries = inspector.getByRole('tab', { name: 'Entries' });
  await entries.focus();
  await page.keyboard.press('ArrowRight');
  await expect(inspector.getByRole('tab', { name: 'Tree' })).toBeFocused();
  await expect(inspector.getByRole('tab', { name: 'Tree' })).toHaveAttribute('aria-selected', 'true');
  await page.keyboard.press('End');
  await expect(inspector.getByRole('tab', { name: 'Maintenance' })).toBeFocused();
  await page.keyboard.press('Home');
  await inspector.locator('.row-button').first().focus();
  await page.keyboard.press('Enter');
  await expect(inspector.locator('.row-button').first()).toHaveAttribute('aria-expanded', 'true');
  // The rows are reloaded at most once a second; the focus stays.
  await expect(inspector.locator('.row-button').first()).toBeFocused();

  await page.keyboard.press('3');
  await expect(page.getByTestId('measure')).toBeVisible();
  await expect(page).toHaveTitle(/^Bench/);
});
