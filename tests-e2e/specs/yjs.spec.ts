// A document of Yjs in several tabs, with the provider used exactly as y-indexeddb is.
import type { BrowserContext, Page } from '@playwright/test';
import { expect, test } from '../persistent.ts';
import { emptyTab } from '../tabs-page.ts';

type Yjs = Awaited<ReturnType<typeof window.loadYjs>>;

declare global {
  interface Window {
    provider: InstanceType<Yjs['IndexeddbPersistence']>;
    /** Codes of the provider's errors. */
    errors: unknown[];
  }
}

// In Firefox a tab takes seconds to open and to reload.
test.beforeEach(({ browserName }) => test.setTimeout(browserName === 'firefox' ? 180_000 : 60_000));

async function openDocument(page: Page, name = 'document'): Promise<void> {
  await page.evaluate(async (document) => {
    const { IndexeddbPersistence, Y } = await window.loadYjs();
    window.errors = [];
    window.provider = new IndexeddbPersistence(document, new Y.Doc());
    window.provider.on('error', ({ code }) => window.errors.push(code));
    await window.provider.whenSynced;
  }, name);
}

async function openTab(context: BrowserContext, name?: string): Promise<Page> {
  const page = await emptyTab(context);
  await openDocument(page, name);
  return page;
}

/** Adds to the list of the document; each item is an update in a tick of its own. */
function add(page: Page, items: readonly unknown[]): Promise<void> {
  return page.evaluate(async (all) => {
    for (const item of all) {
      window.provider.doc.getArray('list').push([item]);
      await new Promise((resolve) => {
        setTimeout(resolve);
      });
    }
  }, items);
}

const listOf = (page: Page): Promise<unknown[]> =>
  page.evaluate(() => window.provider.doc.getArray('list').toArray().sort());
const errorsOf = (page: Page): Promise<unknown[]> => page.evaluate(() => window.errors);

test('two tabs edit a document, one closes, and the other has everything when it is reloaded', async ({ profile }) => {
  const context = await profile.launch();
  const first = await openTab(context);
  const second = await openTab(context);
  expect(await first.evaluate(() => window.provider.db?.persistence)).toBe('opfs');
  await Promise.all([add(first, ['a1', 'a2', 'a3']), add(second, ['b1', 'b2', 'b3'])]);
  expect(await listOf(first)).toEqual(['a1', 'a2', 'a3']);
  // The first tab has the files, and loses them within its last edit's tick.
  await first.evaluate(() => void window.provider.doc.getArray('list').push(['a4']));
  await first.close();
  // Nobody may have the files yet when this page is left too.
  await add(second, ['b4']);
  expect(await errorsOf(second)).toEqual([]);
  await second.reload();
  await openDocument(second);
  expect(await listOf(second)).toEqual(['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'b3', 'b4']);
  await second.evaluate(() => window.provider.flush());
  expect(await second.evaluate(() => localStorage.length)).toBe(0);
  await context.close();
  const again = await openTab(await profile.launch());
  expect(await listOf(again)).toHaveLength(8);
});

test('an update that nobody could store when its page was left is stored by the next', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openTab(context);
  await add(page, ['a']);
  /** Leaves the page with an update that does not reach the worker. */
  const leaveWith = async (item: string): Promise<void> => {
    await page.evaluate(async (last) => {
      await window.provider.flush();
      Worker.prototype.postMessage = () => undefined;
      window.provider.doc.getArray('list').push([last]);
    }, item);
    await page.reload();
    await page.waitForFunction(() => document.title === 'ready');
    expect(await page.evaluate(() => localStorage.length)).toBe(1);
  };
  await leaveWith('b');
  await page.evaluate(() => {
    const key = localStorage.key(0) as string;
    localStorage.setItem(`${key}1`, 'no base64!');
    localStorage.setItem(`${key}2`, btoa('no update'));
  });
  await openDocument(page);
  expect(await listOf(page)).toEqual(['a', 'b']);
  await page.evaluate(() => window.provider.flush());
  expect(await page.evaluate(() => localStorage.length)).toBe(2);
  expect(await errorsOf(page)).toEqual([]);
  const other = await openTab(context);
  expect(await listOf(other)).toEqual(['a', 'b']);
  await other.close();

  await page.evaluate(() => localStorage.clear());
  await leaveWith('c');
  await page.evaluate(async () => (await window.loadYjs()).clearDocument('document'));
  expect(await page.evaluate(() => localStorage.length)).toBe(0);
  await openDocument(page);
  expect(await listOf(page)).toEqual([]);
});

test('an update made in the tick that leaves the page is stored', async ({ profile }) => {
  const context = await profile.launch();
  const leader = await openTab(context);
  const other = await openTab(context);
  for (const [index, page] of [leader, other, leader].entries()) {
    const left = page.waitForEvent('load');
    await page.evaluate((item) => {
      window.provider.doc.getArray('list').push([item]);
      location.reload();
    }, index);
    await left;
    await page.waitForFunction(() => document.title === 'ready');
    await openDocument(page);
    expect(await listOf(page)).toContain(index);
  }
});

test('tabs compact a document while others write it', async ({ profile }) => {
  const context = await profile.launch();
  const pages = [await openTab(context), await openTab(context), await openTab(context)];
  await Promise.all(
    pages.map((page, tab) =>
      page.evaluate(async (own) => {
        window.provider._storeTimeout = 0;
        // Each compaction is asked for, as hundreds of updates would.
        const { storeState } = await window.loadYjs();
        for (let index = 0; index < 30; index++) {
          window.provider.doc.getArray('list').push([`${own} ${index}`]);
          if (index % 5 === own) await storeState(window.provider);
          else await window.provider.flush();
        }
        await window.provider.flush();
      }, tab),
    ),
  );
  expect(await Promise.all(pages.map(errorsOf))).toEqual([[], [], []]);
  const all = pages.flatMap((_, tab) => Array.from({ length: 30 }, (__, index) => `${tab} ${index}`)).sort();
  await Promise.all(pages.slice(1).map((page) => page.close()));
  const page = await openTab(context);
  expect(await listOf(page)).toEqual(all);
  const size = await page.evaluate(async () => {
    const { storeState } = await window.loadYjs();
    await storeState(window.provider);
    return window.provider._dbsize;
  });
  expect(size).toBe(1);
  await page.reload();
  await openDocument(page);
  expect(await listOf(page)).toEqual(all);
});

test('without OPFS a document is kept in IndexedDB, as y-indexeddb keeps it', async ({ profile }) => {
  const context = await profile.launch();
  await context.addInitScript(() => {
    navigator.storage.getDirectory = () => Promise.reject(new DOMException('not in private', 'SecurityError'));
  });
  const page = await openTab(context);
  expect(await page.evaluate(() => window.provider.db?.persistence)).toBe('indexeddb');
  await add(page, ['a']);
  await page.evaluate(() => window.provider.destroy());
  await page.reload();
  await openDocument(page);
  expect(await listOf(page)).toEqual(['a']);
});
