// The demo as a visitor uses it, on the real data set: import, browse, search, jump, edit, delete,
// reload.
import type { Page } from '@playwright/test';
import { CITIES, hits, importCities, percentOfJson } from '../demo.ts';
import { expect, test } from '../persistent.ts';

const row = (page: Page, index: number) => page.locator(`[aria-rowindex="${index}"]`);
const names = (page: Page) => page.locator('.row:not(.loading) > :nth-child(2)');

test('imports a real data set and browses all of it', async ({ profile }, info) => {
  const context = await profile.launch();
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') problems.push(message.text());
  });
  const total = await importCities(page);
  expect(total).toBe(CITIES.length);
  await expect(row(page, 1)).toContainText(/\S/);
  await page.screenshot({ path: info.outputPath('browse.png') });
  // The cities with their index keys, then with the 568,166 entries of their three indexes.
  expect(await percentOfJson(page, 'records-in-it')).toBeLessThanOrEqual(75);
  expect(await percentOfJson(page, 'file')).toBeLessThanOrEqual(130);

  await page.getByTestId('list').focus();
  await page.keyboard.press('End');
  await expect(row(page, total)).toBeVisible();
  await expect(row(page, total)).not.toHaveClass(/loading/);
  await page.keyboard.press('PageUp');
  await page.keyboard.press('PageUp');
  await expect(page.locator('.row.active')).not.toHaveClass(/loading/);
  await page.keyboard.press('Home');
  await expect(row(page, 1)).toBeVisible();
  // The rows in view are in key order.
  const shown = await names(page).allTextContents();
  expect(shown.length).toBeGreaterThan(5);
  expect([...shown].sort()).toEqual(shown);

  await page.getByTestId('jump').fill('100,000');
  await page.getByTestId('jump').press('Enter');
  await expect(row(page, 100_000)).toBeVisible();
  await expect(row(page, 100_000)).not.toHaveClass(/loading/);
  await page.getByTestId('jump').fill('Quito');
  await page.getByTestId('jump').press('Enter');
  await expect(page.locator('.row.active')).toContainText('Quito');

  await page.getByTestId('search').fill('San ');
  await expect.poll(() => hits(page)).toBeLessThan(total);
  const san = await hits(page);
  expect(san).toBeGreaterThan(100);
  await expect(names(page).first()).toHaveText(/^San /);
  await page.getByTestId('country').fill('EC');
  await expect.poll(() => hits(page)).toBeLessThan(san);
  await expect(names(page).first()).toHaveText(/^San /);
  expect(problems).toEqual([]);

  await expect(page.getByTestId('stat-tree-depth')).toHaveText('3');
  await page.getByTestId('search').fill('');
  await page.getByTestId('country').fill('');
  await page.getByRole('link', { name: 'Bench' }).click();
  await page.getByTestId('measure').click();
  await expect(page.getByTestId('measure-table')).toHaveAttribute('data-done', '', { timeout: 60_000 });
  const figures = await page.getByTestId('measure-table').innerText();
  await page.getByRole('link', { name: 'Explore' }).click();
  const stats = await page.getByTestId('stats').innerText();
  await info.attach('figures', { body: `${figures}\n\n${stats}`, contentType: 'text/plain' });
});

test('edits, deletes and adds, and everything survives a reload', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  const total = await importCities(page);
  const search = page.getByTestId('search');

  await search.fill('Quito');
  await expect(names(page).first()).toHaveText('Quito');
  await names(page).first().click();
  await page.getByTestId('edit-name').fill('Quitopolis');
  await page.getByTestId('edit-save').click();
  await expect(page.getByTestId('edit-save')).toBeHidden();
  await search.fill('Quitopolis');
  await expect(names(page).first()).toHaveText('Quitopolis');

  await search.fill('Reykjav');
  await expect(names(page).first()).toHaveText(/^Reykjav/);
  const before = await hits(page);
  await page.getByTestId('list').focus();
  await page.keyboard.press('Home');
  await page.keyboard.press('Delete');
  await expect.poll(() => hits(page)).toBe(before - 1);
  await page.getByTestId('undo').click();
  await expect.poll(() => hits(page)).toBe(before);
  await expect(names(page).first()).toHaveText(/^Reykjav/);
  await names(page).first().click();
  await page.getByTestId('edit-delete').click();
  await expect(page.getByTestId('edit-delete')).toBeHidden();
  await expect.poll(() => hits(page)).toBe(before - 1);

  // Changes are undone from snapshots, the last one first.
  await page.getByTestId('undo-last').click();
  await expect.poll(() => hits(page)).toBe(before);
  await page.getByTestId('undo-last').click();
  await expect(page.getByTestId('undo-last')).toBeDisabled();
  await search.fill('Quitopolis');
  await expect.poll(() => hits(page)).toBe(0);
  await search.fill('Quito');
  await names(page).first().click();
  await page.getByTestId('edit-name').fill('Quitopolis');
  await page.getByTestId('edit-save').click();
  await expect(page.getByTestId('edit-save')).toBeHidden();
  await search.fill('Reykjav');
  await expect(names(page).first()).toHaveText(/^Reykjav/);
  await names(page).first().click();
  await page.getByTestId('edit-delete').click();
  await expect.poll(() => hits(page)).toBe(before - 1);

  await page.getByTestId('add').click();
  await page.getByTestId('edit-name').fill('Zz Mangrove');
  await page.getByTestId('edit-country').fill('ec');
  await page.getByTestId('edit-lat').fill('-0.5');
  await page.getByTestId('edit-lng').fill('-80');
  await page.getByTestId('edit-save').click();
  await expect(page.getByTestId('edit-save')).toBeHidden();
  await search.fill('Zz Mangrove');
  await expect(names(page).first()).toHaveText('Zz Mangrove');

  await page.reload();
  await expect(page.getByTestId('list')).toBeVisible();
  await expect.poll(() => hits(page)).toBe(total);
  await search.fill('Quitopolis');
  await expect(names(page).first()).toHaveText('Quitopolis');
  await search.fill('Reykjav');
  await expect.poll(() => hits(page)).toBe(before - 1);
  await search.fill('Zz Mangrove');
  await expect(names(page).first()).toHaveText('Zz Mangrove');
});

test('two databases live side by side', async ({ profile }) => {
  const context = await profile.launch();
  const first = await context.newPage();
  await first.goto('/?db=one');
  await expect(first.getByTestId('import')).toBeVisible();
  const other = await context.newPage();
  await other.goto('/?db=two');
  await other.getByTestId('import').click();
  await expect(other.getByTestId('list')).toBeVisible({ timeout: 60_000 });
  await first.reload();
  await expect(first.getByTestId('import')).toBeVisible();
});

test("tabs see each other's edits live, and continue without the leader", async ({ profile }) => {
  test.slow();
  const context = await profile.launch();
  const first = await context.newPage();
  await first.goto('/');
  await expect(first.getByTestId('import')).toBeVisible();
  const second = await context.newPage();
  await second.goto('/');
  await expect(second.getByTestId('import')).toBeVisible();
  // An import in one tab ends the welcome screen of the other.
  const total = await importCities(first);
  await expect(second.getByTestId('list')).toBeVisible();
  await expect.poll(() => hits(second)).toBe(total);

  await second.getByTestId('search').fill('Quito');
  await expect(names(second).first()).toHaveText('Quito');
  const before = await hits(second);
  await first.getByTestId('search').fill('Quito');
  await expect(names(first).first()).toHaveText('Quito');
  await names(first).first().click();
  await first.getByTestId('edit-name').fill('Quito now');
  // A click in progress while the list is redrawn is not lost.
  await names(second).first().hover();
  await second.mouse.down();
  await first.getByTestId('edit-save').click();
  await expect(names(second).filter({ hasText: 'Quito now' })).toHaveCount(1);
  await second.mouse.up();
  await expect(second.getByTestId('edit-name')).toBeVisible();
  await second.keyboard.press('Escape');
  await first.getByTestId('list').focus();
  await first.keyboard.press('Home');
  await first.keyboard.press('Delete');
  await expect.poll(() => hits(second)).toBe(before - 1);
  await first.getByTestId('undo-last').click();
  await expect.poll(() => hits(second)).toBe(before);

  // The inspector works in a tab that does not run the engine.
  await second.getByRole('link', { name: 'Inspect' }).click();
  await expect(second.getByTestId('inspector').getByRole('button', { name: /^cities/ })).toContainText(
    total.toLocaleString('en'),
  );
  await second.getByRole('link', { name: 'Explore' }).click();

  // The remaining tab leads, has everything written so far, and writes.
  await first.close();
  await second.getByTestId('add').click();
  await second.getByTestId('edit-name').fill('Quito to be');
  await second.getByTestId('edit-country').fill('ec');
  await second.getByTestId('edit-lat').fill('0');
  await second.getByTestId('edit-lng').fill('0');
  await second.getByTestId('edit-save').click();
  await expect.poll(() => hits(second)).toBe(before + 1);
  await expect(names(second).filter({ hasText: 'Quito now' })).toHaveCount(1);
});
