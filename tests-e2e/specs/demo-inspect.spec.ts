// The demo's inspector on the real data set: collections, entries, diagrams, figures, maintenance.
import { readFile } from 'node:fs/promises';
import type { Locator, Page } from '@playwright/test';
import { CITIES, importCities } from '../demo.ts';
import { expect, test } from '../persistent.ts';

async function openInspector(page: Page): Promise<Locator> {
  await page.getByRole('link', { name: 'Inspect' }).click();
  const inspector = page.getByTestId('inspector');
  await expect(inspector.getByRole('tab', { name: 'Entries' })).toBeVisible();
  return inspector;
}

test('shows collections, entries, the tree, the file and figures', async ({ profile }) => {
  test.slow();
  const context = await profile.launch();
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  const total = await importCities(page);
  const inspector = await openInspector(page);

  const cities = inspector.getByRole('button', { name: /^cities/ });
  await expect(cities).toContainText(total.toLocaleString('en'));
  await expect(cities).toHaveAttribute('aria-pressed', 'true');
  await expect(cities).toContainText(/3 indexes, [\d.]+ MiB/);
  const quito = CITIES.find(({ name, country }) => name === 'Quito' && country === 'EC')!;
  const [prefix, from] = [inspector.getByLabel('Begins with'), inspector.getByLabel('From', { exact: true }).first()];
  await from.fill(String(quito.id));
  const rows = inspector.locator('tbody .row-button');
  await expect(rows.first()).toHaveText(String(quito.id));
  await rows.first().click();
  await expect(inspector.locator('.tree').first()).toContainText('lat');
  await from.fill('');
  // A search starts a moment after typing, from the first position.
  await expect(inspector.locator('.pager')).toContainText(`to 50 of ${total.toLocaleString('en')}`);
  await inspector.getByRole('spinbutton', { name: 'First position' }).fill('');
  await inspector.getByRole('spinbutton', { name: 'First position' }).pressSequentially('100000');
  await inspector.getByRole('spinbutton', { name: 'First position' }).press('Enter');
  await expect(inspector.locator('.pager')).toContainText('to 100,049');
  await inspector.getByRole('button', { name: 'Next' }).click();
  await expect(inspector.locator('.pager')).toContainText('to 100,099');
  await from.fill('[');
  await inspector.getByRole('button', { name: /default/ }).click();
  await expect(rows).toHaveText(['imported']);
  await cities.click();

  const known = CITIES.filter(({ population }) => population !== undefined);
  const count = (number: number): string => number.toLocaleString('en');
  const indexes = inspector.getByRole('table', { name: 'Indexes' });
  await expect(indexes.getByRole('row')).toHaveText([
    /Index/,
    new RegExp(`byName.*version 1.*${count(total)}.*complete`),
    new RegExp(`byCountry.*version 1.*${count(total)}.*complete`),
    new RegExp(
      `byCountryPopulation.*leaves out ${count(total - known.length)} entries.*${count(known.length)}.*complete`,
    ),
  ]);
  await indexes.getByRole('button', { name: 'byCountryPopulation' }).click();
  await expect(inspector.locator('.pager')).toContainText(`to 50 of ${count(known.length)}`);
  await prefix.fill('["EC"]');
  await from.fill('["EC", 1000000]');
  const large = known
    .filter(({ country, population }) => country === 'EC' && population! >= 1_000_000)
    .sort((a, b) => a.population! - b.population!);
  await expect(rows).toHaveText(large.map(({ id }) => String(id)));
  await expect(inspector.locator('tbody .index-key')).toHaveText(
    large.map(({ population }) => `["EC", ${population}]`),
  );
  await indexes.getByRole('button', { name: 'byCountry', exact: true }).click();
  await from.fill('');
  await prefix.fill('["EC", "Quito"]');
  await expect(rows).toHaveText([String(quito.id)]);
  await prefix.fill('');

  await inspector.getByRole('tab', { name: 'Tree' }).click();
  await expect(inspector.getByRole('img', { name: /The tree of cities has 3 levels/ })).toBeVisible();
  await expect(inspector.getByRole('row', { name: /Leaves/ })).toContainText('%');

  await inspector.getByRole('tab', { name: 'File' }).click();
  const map = inspector.getByRole('slider', { name: 'Place in the file' });
  await map.focus();
  await page.keyboard.press('Home');
  await expect(map).toHaveAttribute('aria-valuetext', /superblocks/);
  await page.keyboard.press('ArrowRight');
  await expect(map).toHaveAttribute('aria-valuenow', '2');
  await expect(inspector.getByRole('row', { name: /^leaves/ })).toContainText('MiB');
  await expect(inspector.getByRole('row', { name: /^indexes/ })).toContainText('MiB');

  await inspector.getByRole('tab', { name: 'Figures' }).click();
  await expect(inspector.getByRole('heading', { name: 'Log' })).toBeVisible();
  await expect(inspector.getByText('records per flush')).toBeVisible();
  expect(problems).toEqual([]);
});

test('verifies, compacts, backs up and restores, and stops on request', async ({ profile, browserName }) => {
  test.skip(browserName !== 'chromium', 'the download is read from Chromium');
  test.slow();
  const context = await profile.launch();
  const page = await context.newPage();
  const total = await importCities(page);
  const inspector = await openInspector(page);
  await inspector.getByRole('tab', { name: 'Maintenance' }).click();

  // Stops it from within the page: a click from outside may arrive after it has finished.
  await inspector.getByRole('button', { name: 'Verify' }).evaluate((verify: HTMLElement) => {
    verify.click();
    verify.closest('section')?.querySelector<HTMLElement>('.running button')?.click();
  });
  await expect(inspector.getByText('Stopped.', { exact: true }).first()).toBeVisible();
  await inspector.getByRole('button', { name: 'Verify' }).click();
  await expect(inspector.locator('.outcome').first()).toContainText('Nothing is damaged', { timeout: 60_000 });
  await inspector.getByRole('button', { name: 'Compact' }).click();
  await expect(inspector.locator('.outcome').nth(1)).toContainText('given back', { timeout: 60_000 });

  const saved = page.waitForEvent('download');
  await inspector.getByRole('button', { name: 'Back up' }).click();
  const download = await saved;
  expect(download.suggestedFilename()).toBe('world-cities.mangrove-backup');
  const bytes = await readFile(await download.path());
  expect(bytes.length).toBeGreaterThan(1 << 20);

  await inspector.getByRole('button', { name: 'Restore' }).click();
  await expect(inspector.getByRole('alert').filter({ hasText: 'Choose the file' })).toBeVisible();
  await inspector
    .getByLabel('Backup')
    .setInputFiles({ name: 'cities', mimeType: 'application/octet-stream', buffer: bytes });
  await inspector.getByRole('button', { name: 'Restore' }).click();
  await expect(inspector.locator('.outcome').nth(3)).toContainText('was restored from', { timeout: 60_000 });
  await page.goto('/?db=world-cities-restored');
  // The backup leaves out the indexes, which the page builds.
  await expect(page.getByTestId('hits')).toHaveText(total.toLocaleString('en'), { timeout: 120_000 });
});
