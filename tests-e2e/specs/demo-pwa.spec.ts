// The demo as an app: it can be installed, works offline after the first load, and a new version
// breaks no open tab.
import { readFileSync } from 'node:fs';
import { cp, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from '@playwright/test';
import { hits, importCities } from '../demo.ts';
import { serve } from '../http.ts';
import { expect, test } from '../persistent.ts';

const DIST = fileURLToPath(new URL('../../demo-web/dist', import.meta.url));

test.skip(
  ({ browserName }) => browserName !== 'chromium',
  'uses the DevTools protocol of Chromium and cuts its network',
);

/** Waits until the service worker serves the page; by then everything is in its cache. */
async function untilControlled(page: Page): Promise<void> {
  await page.waitForFunction(() => navigator.serviceWorker.controller !== null, undefined, { timeout: 60_000 });
}

test('can be installed', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await page.goto('/');
  await untilControlled(page);
  const devtools = await context.newCDPSession(page);
  const { url, errors, data } = await devtools.send('Page.getAppManifest');
  expect(url).toMatch(/manifest\.webmanifest$/);
  expect(errors).toEqual([]);
  const manifest = JSON.parse(data ?? '') as {
    icons: { src: string; sizes: string; purpose?: string }[];
    display: string;
  };
  expect(manifest.display).toBe('standalone');
  expect(manifest.icons.some(({ purpose }) => purpose === 'maskable')).toBe(true);
  for (const { src } of manifest.icons) expect((await page.request.get(`/${src}`)).ok(), src).toBe(true);
  const { installabilityErrors } = await devtools.send('Page.getInstallabilityErrors');
  expect(installabilityErrors).toEqual([]);
});

test('works offline after the first load: imports, browses, edits, inspects', async ({ profile }) => {
  test.slow();
  const context = await profile.launch();
  const page = await context.newPage();
  await page.goto('/');
  await untilControlled(page);
  await context.setOffline(true);
  await expect(page.locator('#offline')).toBeVisible();
  await page.reload();
  // The data set is cached too.
  const total = await importCities(page);
  expect(total).toBeGreaterThan(100_000);
  await page.getByTestId('search').fill('Quito');
  // Until the result is shown, a click opens a city of the list before it.
  const first = page.locator('.row:not(.loading)').first();
  await expect(first.locator(':nth-child(2)')).toHaveText('Quito');
  await first.click();
  await page.getByTestId('edit-name').fill('Quitopolis');
  await page.getByTestId('edit-save').click();
  await expect(page.getByTestId('edit-save')).toBeHidden();
  await page.reload();
  await page.getByTestId('search').fill('Quitopolis');
  await expect.poll(() => hits(page)).toBe(1);
  await page.getByRole('link', { name: 'Inspect' }).click();
  await expect(page.getByTestId('inspector').getByRole('tab', { name: 'Tree' })).toBeVisible();
  await page.getByRole('link', { name: 'Bench' }).click();
  await expect(page.getByTestId('measure')).toBeVisible();
});

test('a new version waits for the visitor, and a tab of the old one keeps working', async ({ profile }) => {
  test.slow();
  const site = await mkdtemp(join(tmpdir(), 'mangrove-demo-'));
  try {
    await cp(DIST, site, { recursive: true });
    await using server = await serve(site);
    const context = await profile.launch();
    const [old, other] = [await context.newPage(), await context.newPage()];
    await old.goto(`${server.url}?db=one`);
    await untilControlled(old);
    await other.goto(`${server.url}?db=two`);
    await expect(other.getByTestId('import')).toBeVisible();

    // The next version lacks a file that the old one loads later.
    const scripts = (await readdir(join(site, 'assets'))).filter((name) => name.endsWith('.js'));
    const inspector = scripts.find((name) =>
      readFileSync(join(site, 'assets', name), 'utf8').includes('--mangrove-accent'),
    );
    expect(inspector).toBeDefined();
    await rm(join(site, 'assets', inspector!));
    const worker = join(site, 'service-worker.js');
    const text = await readFile(worker, 'utf8');
    const next = text.replace(/\b[0-9a-f]{16}\b/g, '0000000000000001').replace(`,"assets/${inspector}"`, '');
    expect(next.length).toBeLessThan(text.length);
    await writeFile(worker, next);
    const home = join(site, 'index.html');
    await writeFile(home, (await readFile(home, 'utf8')).replace('<footer>', '<footer data-testid="second">'));

    await other.evaluate(async () => (await navigator.serviceWorker.getRegistration())?.update());
    await expect(other.getByTestId('update-now')).toBeVisible({ timeout: 60_000 });
    await expect(old.getByTestId('update-now')).toBeVisible();
    // Nobody has agreed to the update yet.
    await old.reload();
    await expect(old.getByTestId('import')).toBeVisible();
    await expect(old.getByTestId('second')).toHaveCount(0);

    await other.getByTestId('update-now').click();
    await expect(other.getByTestId('second')).toBeVisible({ timeout: 30_000 });
    await old.getByRole('link', { name: 'Inspect' }).click();
    await expect(old.getByTestId('inspector').getByRole('tab', { name: 'Tree' })).toBeVisible();
  } finally {
    await rm(site, { recursive: true, force: true });
  }
});
