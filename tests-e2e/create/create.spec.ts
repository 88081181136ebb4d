// The projects of create-mangrove-kv, used as a user would.
import { execFile, spawn } from 'node:child_process';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import AxeBuilder from '@axe-core/playwright';
import type { BrowserContext, Page } from '@playwright/test';
import { serve } from '../http.ts';
import { expect, test } from '../persistent.ts';
import { PAGES, projectOf } from './projects.ts';

async function add(page: Page, text: string): Promise<void> {
  const input = page.getByRole('textbox', { name: 'New to-do' });
  await input.fill(text);
  await input.press('Enter');
  await expect(page.getByRole('listitem').filter({ hasText: text })).toBeVisible();
  await expect(input).toHaveValue('');
}

const texts = (page: Page) => page.getByRole('listitem').locator('span');
const status = (page: Page) => page.getByRole('status');

/** Errors of all pages; none is expected. */
function watchErrors(browser: BrowserContext): string[] {
  const errors: string[] = [];
  browser.on('weberror', (error) => errors.push(String(error.error())));
  browser.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') errors.push(message.text());
  });
  return errors;
}

for (const template of PAGES) {
  test(`${template}: the list works, in two tabs, and is there after a restart`, async ({ profile }) => {
    await using server = await serve(join(projectOf(template), 'dist'));
    const browser = await profile.launch();
    const errors = watchErrors(browser);
    const page = await browser.newPage();
    await page.goto(server.url);
    await expect(status(page)).toHaveText('0 to do');
    await add(page, 'write');
    await add(page, '<b>read</b>');
    await add(page, 'erase');
    await expect(status(page)).toHaveText('3 to do');

    const second = await browser.newPage();
    await second.goto(server.url);
    await expect(texts(second)).toHaveText(['write', '<b>read</b>', 'erase']);
    await second.getByRole('checkbox', { name: 'write' }).click();
    await expect(status(page)).toHaveText('2 to do');
    await expect(page.getByRole('checkbox', { name: 'write' })).toBeChecked();
    await add(second, 'elsewhere');
    await expect(texts(page)).toHaveText(['write', '<b>read</b>', 'erase', 'elsewhere']);

    await page.reload();
    await expect(texts(page)).toHaveText(['write', '<b>read</b>', 'erase', 'elsewhere']);
    await expect(page.getByRole('checkbox', { name: 'write' })).toBeChecked();
    await page.getByRole('button', { name: 'Delete <b>read</b>' }).click();
    await expect(texts(second)).toHaveText(['write', 'erase', 'elsewhere']);
    await expect(page.getByRole('textbox', { name: 'New to-do' })).toBeFocused();
    await page.getByRole('button', { name: 'Remove done' }).click();
    await expect(texts(second)).toHaveText(['erase', 'elsewhere']);
    await expect(page.getByRole('button', { name: 'Remove done' })).toBeHidden();
    expect(errors).toEqual([]);
    await browser.close();

    const again = await (await profile.launch()).newPage();
    await again.goto(server.url);
    await expect(texts(again)).toHaveText(['erase', 'elsewhere']);
  });

  test(`${template}: the page is accessible, light and dark, empty and with entries`, async ({ profile }) => {
    await using server = await serve(join(projectOf(template), 'dist'));
    const page = await (await profile.launch()).newPage();
    await page.goto(server.url);
    await expect(status(page)).toHaveText('0 to do');
    const check = async (): Promise<void> => {
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(
        violations.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => `${html}: ${failureSummary}`)]),
      ).toEqual([]);
    };
    await check();
    await add(page, 'write');
    await add(page, 'read');
    await page.getByRole('checkbox', { name: 'write' }).click();
    await expect(status(page)).toHaveText('1 to do');
    await check();
    await page.emulateMedia({ colorScheme: 'dark' });
    await check();
    // On a phone nothing is wider than the screen.
    await page.setViewportSize({ width: 320, height: 640 });
    await add(page, 'x'.repeat(200));
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(320);
  });

  test(`${template}: the page says why it cannot store data`, async ({ profile }) => {
    await using server = await serve(join(projectOf(template), 'dist'));
    const page = await (await profile.launch()).newPage();
    await page.addInitScript(() => {
      // As a browser without the origin private file system.
      Object.defineProperty(navigator, 'storage', { value: {} });
    });
    await page.goto(server.url);
    await expect(page.getByRole('alert')).toHaveText(/This browser window cannot store data/);
  });

  test(`${template}: the development server has the page, with the data after a reload`, async ({ profile }) => {
    const cwd = projectOf(template);
    const vite = spawn(process.execPath, ['node_modules/vite/bin/vite.js', '--port', '0', '--host', '127.0.0.1'], {
      cwd,
    });
    try {
      let printed = '';
      const url = await new Promise<string>((resolve, reject) => {
        vite.stdout.setEncoding('utf8').on('data', (text: string) => {
          printed += text.replaceAll(/\u001b\[\d+m/g, '');
          const found = /http:\/\/127\.0\.0\.1:\d+\//.exec(printed);
          if (found !== null) resolve(found[0]);
        });
        vite.on('close', () => reject(new Error(printed)));
      });
      const page = await (await profile.launch()).newPage();
      await page.goto(url);
      await expect(status(page)).toHaveText('0 to do');
      await add(page, 'write');
      await page.reload();
      await expect(texts(page)).toHaveText(['write']);
    } finally {
      vite.kill();
    }
  });
}

test('pwa: works with the server off from the first visit on, and can be installed', async ({ profile }) => {
  const server = await serve(join(projectOf('pwa'), 'dist'));
  const browser = await profile.launch();
  const page = await browser.newPage();
  await page.goto(server.url);
  await expect(page.getByText('This page works offline.')).toBeVisible();
  await add(page, 'with a server');

  const session = await browser.newCDPSession(page);
  const { errors, url } = await session.send('Page.getAppManifest');
  expect(errors).toEqual([]);
  expect(url).toBe(`${server.url}manifest.webmanifest`);
  expect((await session.send('Page.getInstallabilityErrors')).installabilityErrors).toEqual([]);

  await server[Symbol.asyncDispose]();
  await browser.setOffline(true);
  await page.reload();
  await expect(texts(page)).toHaveText(['with a server']);
  await add(page, 'without');
  await page.goto(`${server.url}any/place?of=it`);
  await expect(texts(page)).toHaveText(['with a server', 'without']);
  const second = await browser.newPage();
  await second.goto(server.url);
  await second.getByRole('checkbox', { name: 'without' }).click();
  await expect(status(page)).toHaveText('1 to do');
  await browser.close();

  // Still without a server, and with the network on again.
  const again = await (await profile.launch()).newPage();
  await again.goto(server.url);
  await expect(texts(again)).toHaveText(['with a server', 'without']);
  await expect(again.getByRole('checkbox', { name: 'without' })).toBeChecked();
});

test('pwa: a new version is used once no tab has the old one, with the same data', async ({ profile }, info) => {
  const dist = info.outputPath('dist');
  await cp(join(projectOf('pwa'), 'dist'), dist, { recursive: true });
  await using server = await serve(dist);
  const browser = await profile.launch();
  const page = await browser.newPage();
  await page.goto(server.url);
  await expect(page.getByText('This page works offline.')).toBeVisible();
  await add(page, 'with the old version');

  const release = async (file: string, from: RegExp, to: string): Promise<void> => {
    const text = await readFile(join(dist, file), 'utf8');
    expect(text).toMatch(from);
    await writeFile(join(dist, file), text.replace(from, to));
  };
  await release('index.html', /<title>To do/, '<title>New');
  await release('service-worker.js', /VERSION = '/, "VERSION = 'new-");
  await page.evaluate(async () => {
    const registration = await navigator.serviceWorker.getRegistration();
    await registration?.update();
  });
  await page.waitForFunction(
    async () => (await navigator.serviceWorker.getRegistration())?.waiting?.state === 'installed',
  );
  await page.reload();
  await expect(page).toHaveTitle('To do');
  await page.close();

  // Chromium notices a moment later that the tab is gone; a reload would not do, as its page is there throughout.
  const again = await browser.newPage();
  await expect(async () => {
    await again.goto('about:blank');
    await again.goto(server.url);
    await expect(again).toHaveTitle('New', { timeout: 500 });
  }).toPass();
  await expect(texts(again)).toHaveText(['with the old version']);
  await expect.poll(() => again.evaluate(async () => (await caches.keys()).length)).toBe(1);
});

test('pwa: the service worker keeps every file of the build, and only those', async () => {
  const dist = join(projectOf('pwa'), 'dist');
  const worker = await readFile(join(dist, 'service-worker.js'), 'utf8');
  const [, list = '[]'] = /const FILES = (\[.*?\]),/.exec(worker) ?? [];
  const { stdout } = await promisify(execFile)('find', ['.', '-type', 'f'], { cwd: dist });
  const built = stdout
    .trim()
    .split('\n')
    .map((path) => path.slice(2));
  const kept = (JSON.parse(list) as string[]).map((path) => (path === './' ? 'index.html' : path));
  expect(kept.sort()).toEqual(built.filter((path) => path !== 'service-worker.js').sort());
  expect(kept.filter((path) => path.endsWith('.wasm')).length).toBeGreaterThan(1);
});

test('node: the script keeps its data between runs', async () => {
  const cwd = projectOf('node');
  const start = async (...args: string[]): Promise<string> =>
    (await promisify(execFile)('npm', ['start', '--silent', '--', ...args], { cwd })).stdout;
  await start('add', 'Buy', 'milk');
  await start('add', 'Drink it');
  await start('done', '2');
  expect(await start()).toBe('1. [ ] Buy milk\n2. [x] Drink it\n');
});
