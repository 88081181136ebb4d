// A tab that the browser discards to save memory: its renderer ends, and the page gets no event.
import { spawn } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { chromium } from '@playwright/test';
import type { Browser, Locator, Page } from '@playwright/test';
import { launchOptions } from '../browser.ts';
import { expect, test } from '../persistent.ts';
import { killBrowser } from '../processes.ts';
import { get, leads, openTab, set } from '../tabs-page.ts';

test('a discarded leader loses no writes, and others go on', async ({ profile, browserName }) => {
  test.skip(browserName !== 'chromium', 'only Chromium has a page that discards tabs');
  test.setTimeout(120_000);
  // Makes chrome://discards accessible.
  await writeFile(join(profile.directory, 'Local State'), JSON.stringify({ internal_only_uis_enabled: true }));
  // A tab under a debugger is never discarded, so this browser keeps running while disconnected.
  const { executablePath = '', args = [] } = launchOptions;
  spawn(
    executablePath,
    [...args, '--headless=new', `--user-data-dir=${profile.directory}`, '--remote-debugging-port=0', 'about:blank'],
    { stdio: 'ignore' },
  );
  const active = join(profile.directory, 'DevToolsActivePort');
  await expect.poll(() => readFile(active, 'utf8').catch(() => ''), { timeout: 30_000 }).not.toBe('');
  const [port] = (await readFile(active, 'utf8')).split('\n');
  const connect = (): Promise<Browser> => chromium.connectOverCDP(`http://127.0.0.1:${port}`);
  let connected: Browser | undefined;
  try {
    let browser = (connected = await connect());
    const context = browser.contexts()[0]!;
    const leader = await openTab(context);
    await leader.evaluate(() => history.replaceState(null, '', '#leader'));
    const other = await openTab(context);
    await other.evaluate(() => history.replaceState(null, '', '#other'));
    expect([await leads(leader), await leads(other)]).toEqual([true, false]);
    await set(leader, 'a', 1);
    await other.evaluate(() => {
      window.seen = [];
      void (async () => {
        try {
          for (let n = 1; ; n++) {
            await window.db.set('n', n);
            window.seen.push(n);
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
        } catch (error) {
          window.seen.push(String(error));
        }
      })();
    });
    const discards = await context.newPage();
    await discards.goto('chrome://discards/');
    const rowIn = (page: Page): Locator =>
      page.locator('tr').filter({ has: page.locator('.tab-url-cell', { hasText: '#leader' }) });
    // Clicks repeatedly: the first clicks come before every debugger has disconnected. Rows move,
    // so each click looks up its row again.
    await rowIn(discards).evaluate((row) => {
      const root = row.getRootNode() as ShadowRoot;
      setInterval(() => {
        const found = [...root.querySelectorAll('tr')].find((each) =>
          each.querySelector('.tab-url-cell')?.textContent?.includes('#leader'),
        );
        const links = [...(found?.querySelectorAll<HTMLElement>('*') ?? [])];
        links
          .find(
            ({ textContent, childElementCount }) =>
              childElementCount === 0 && textContent?.includes('[Urgent Discard]'),
          )
          ?.click();
      }, 1000);
    });
    const pages = (): Page[] => browser.contexts()[0]!.pages();
    await expect
      .poll(
        async () => {
          await browser.close();
          await new Promise((resolve) => setTimeout(resolve, 3000));
          browser = connected = await connect();
          return rowIn(pages().find((page) => page.url().startsWith('chrome://discards'))!).textContent();
        },
        { timeout: 60_000 },
      )
      .toContain('discarded (urgent)');
    const left = pages().find((page) => page.url().endsWith('#other'))!;
    expect(await leads(left)).toBe(true);
    const before = await left.evaluate(() => window.seen.length);
    await expect.poll(() => left.evaluate(() => window.seen.length)).toBeGreaterThan(before);
    expect(await left.evaluate(() => window.seen.every((value, index) => value === index + 1))).toBe(true);
    expect(await get(left, 'a')).toBe(1);
    expect(await left.evaluate(async () => (await window.db.verify()).problems)).toEqual([]);
  } finally {
    // Otherwise the loss of the connection would surface in the next test.
    await connected?.close();
    killBrowser(profile.directory);
  }
});
