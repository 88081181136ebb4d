// The twins of idb-keyval and localForage in a browser, with data that the libraries themselves stored there.
import type { Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';
import { emptyTab } from '../tabs-page.ts';

test.beforeEach(({ browserName }) => test.setTimeout(browserName === 'firefox' ? 240_000 : 120_000));

for (const library of ['idb-keyval', 'localforage']) {
  for (const name of [library, `@mangrove-kv/${library}`]) {
    test(`${name} passes the cases of ${library}`, async ({ profile }) => {
      const page = await emptyTab(await profile.launch());
      const { passed, failed } = await page.evaluate(async (which) => {
        const { suites } = await window.loadTwins();
        return await (suites[which] as () => Promise<{ passed: string[]; failed: string[] }>)();
      }, name);
      expect(failed).toEqual([]);
      expect(passed.length).toBeGreaterThan(library === 'localforage' ? 250 : 40);
    });
  }
}

const names = (page: Page): Promise<string[]> =>
  page.evaluate(async () => (await indexedDB.databases()).map(({ name }) => name as string).sort());

/** How many entries the libraries have in IndexedDB. */
const left = (page: Page, databases = ['keyval-store', 'localforage']): Promise<number> =>
  page.evaluate(async (asked) => {
    const done = <T>(request: IDBRequest<T>): Promise<T> =>
      new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error as DOMException);
      });
    let count = 0;
    for (const { name } of await indexedDB.databases()) {
      if (name === undefined || !asked.includes(name)) continue;
      const db = await done(indexedDB.open(name));
      for (const store of ['keyval', 'keyvaluepairs'])
        if (db.objectStoreNames.contains(store)) count += await done(db.transaction(store).objectStore(store).count());
      db.close();
    }
    return count;
  }, databases);

/** The entries of the stores of both libraries, as texts. */
function entriesOf(page: Page, from: 'library' | 'twin'): Promise<{ keyval: string; forage: string }> {
  return page.evaluate(async (side) => {
    const { forageTwin, idbKeyval, keyvalTwin, localforage, show } = await window.loadTwins();
    const [keyval, forage] = side === 'twin' ? [keyvalTwin, forageTwin] : [idbKeyval, localforage];
    const items: unknown[] = [];
    await forage.iterate((value, key) => void items.push([key, value]));
    return { keyval: await show(await keyval.entries()), forage: await show(items) };
  }, from);
}

function fill(page: Page, count: number): Promise<void> {
  return page.evaluate(async (entries) => {
    const { idbKeyval, localforage } = await window.loadTwins();
    await idbKeyval.setMany(
      Array.from({ length: entries }, (_, index) => [index, { index, text: 'x'.repeat(2000) }] as [number, unknown]),
    );
    await idbKeyval.setMany([
      [[1, 'a'], new Map([[1n, new Date(5)]])],
      [new Uint8Array([1, 2]).buffer, undefined],
      ['blob', { list: [new Blob(['in a value'], { type: 'text/x' })] }],
      ['file', new File(['contents'], 'notes.md', { type: 'text/markdown', lastModified: 7 })],
    ]);
    await localforage.setItem('user', { name: 'Ada', photo: new Uint8Array([1, 2, 3]) });
    await localforage.setItem('blob', new Blob(['top'], { type: 'text/y' }));
    await localforage.setItem('nothing', null);
  }, count);
}

test('what the libraries stored is in the twins, in OPFS, and no longer in IndexedDB', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  await fill(page, 300);
  const stored = await entriesOf(page, 'library');
  expect(await names(page)).toEqual(['keyval-store', 'localforage']);
  await page.reload();
  expect(await entriesOf(page, 'twin')).toEqual(stored);
  await expect.poll(() => left(page)).toBe(0);
  await page.reload();
  expect(await entriesOf(page, 'twin')).toEqual(stored);
  expect(await left(page)).toBe(0);
  const places = await page.evaluate(async () => (await window.mangrove.list()).map(({ name }) => name).sort());
  expect(places).toEqual(['idb-keyval/keyval-store', 'localforage/localforage']);
});

test('nothing is created in IndexedDB by a twin without old data', async ({ profile }) => {
  const page = await emptyTab(await profile.launch());
  await page.evaluate(async () => {
    const { forageTwin, keyvalTwin } = await window.loadTwins();
    await keyvalTwin.set('a', 1);
    await forageTwin.setItem('a', 1);
  });
  expect(await names(page)).toEqual([]);
});

test('a move is continued when the page was left or its browser killed in the middle of it', async ({ profile }) => {
  const context = await profile.launch();
  let page = await emptyTab(context);
  await fill(page, 3000);
  const stored = await entriesOf(page, 'library');
  const copied = (): Promise<number> =>
    page.evaluate(async () => {
      const db = await window.mangrove.open('idb-keyval/keyval-store');
      const count = await db.collection('keyval').count();
      await db.close();
      return count;
    });
  const counts: number[] = [];
  for (const end of ['reload', 'crash', 'reload']) {
    await page.reload();
    await page.waitForFunction(() => document.title === 'ready');
    // Left once some of the entries were read, at one place or another.
    const left = page.evaluate(
      async (after) => {
        const { keyvalTwin } = await window.loadTwins();
        let reads = 0;
        const getAll = IDBObjectStore.prototype.getAll;
        const enough = new Promise<void>((resolve) => {
          IDBObjectStore.prototype.getAll = function (...args: Parameters<typeof getAll>) {
            // The batches after that are never answered: the page is in the middle of the move for sure.
            if (++reads > after) {
              resolve();
              return {} as IDBRequest;
            }
            return getAll.apply(this, args);
          };
        });
        keyvalTwin.keys().catch(() => undefined);
        await enough;
      },
      end === 'crash' ? 3 : 4,
    );
    await left;
    if (end === 'crash') {
      const crashed = page.waitForEvent('crash');
      const session = await context.newCDPSession(page);
      session.send('Page.crash').catch(() => undefined);
      await crashed;
      await page.close();
      page = await emptyTab(context);
    } else {
      await page.reload();
    }
    await page.waitForFunction(() => document.title === 'ready');
    counts.push(await copied());
  }
  expect(counts.every((count) => count > 0 && count < 3000)).toBe(true);
  expect(counts.at(-1)).toBeGreaterThan(counts[0] as number);
  expect(await entriesOf(page, 'library')).toEqual(stored);
  await page.reload();
  expect(await entriesOf(page, 'twin')).toEqual(stored);
  await expect.poll(() => left(page)).toBe(0);
});

test('several tabs open at once: entries move once, and what any tab writes stays', async ({ profile }) => {
  const context = await profile.launch();
  const first = await emptyTab(context);
  await fill(first, 1000);
  await first.reload();
  const pages = [first, await emptyTab(context), await emptyTab(context)];
  await Promise.all(
    pages.map((page, tab) =>
      page.evaluate(async (own) => {
        const { keyvalTwin } = await window.loadTwins();
        // Called before this tab knows of the old entries.
        await Promise.all([
          keyvalTwin.set(own, `tab ${own}`),
          keyvalTwin.del(100 + own),
          keyvalTwin.update('visits', (old: number | undefined) => (old ?? 0) + 1),
        ]);
      }, tab),
    ),
  );
  await expect.poll(() => left(first, ['keyval-store'])).toBe(0);
  for (const page of [...pages, await emptyTab(context)]) {
    const found = await page.evaluate(async () => {
      const { keyvalTwin } = await window.loadTwins();
      const keys = await keyvalTwin.keys<number>();
      const values = await keyvalTwin.getMany([0, 1, 2, 100, 101, 102, 'visits']);
      return { count: keys.length, values };
    });
    expect(found).toEqual({
      count: 1002,
      values: ['tab 0', 'tab 1', 'tab 2', undefined, undefined, undefined, 3],
    });
  }
});

test('a tab with the old program keeps its connection: its entries move, and what it writes later is not lost', async ({
  profile,
}) => {
  const context = await profile.launch();
  const old = await emptyTab(context);
  await fill(old, 50);
  const page = await emptyTab(context);
  const moved = await page.evaluate(async () => (await (await window.loadTwins()).keyvalTwin.keys()).length);
  expect(moved).toBe(54);
  const oldKeys = (): Promise<unknown[]> =>
    old.evaluate(async () => (await window.loadTwins()).idbKeyval.keys() as Promise<unknown[]>);
  await expect.poll(oldKeys).toEqual([]);
  await old.evaluate(async () => (await window.loadTwins()).idbKeyval.set('late', 1));
  await old.close();
  // The deletion had waited for that tab, and sees what it wrote.
  await page.reload();
  const kept = await page.evaluate(async () => {
    const { idbKeyval, keyvalTwin } = await window.loadTwins();
    return [(await keyvalTwin.keys()).length, await idbKeyval.entries()];
  });
  expect(kept).toEqual([54, [['late', 1]]]);
});

test('what only IndexedDB can hold is named, or left there', async ({ profile }) => {
  const page = await emptyTab(await profile.launch());
  const found = await page.evaluate(async () => {
    const { idbKeyval, keyvalTwin } = await window.loadTwins();
    const key = await crypto.subtle.generateKey({ name: 'AES-GCM', length: 128 }, false, ['encrypt']);
    const store = idbKeyval.createStore('keys', 'kv');
    await idbKeyval.setMany(
      [
        ['a', 1],
        ['key', { key }],
        ['z', 2],
      ],
      store,
    );
    const throws = keyvalTwin.createStore('keys', 'kv');
    const error = (await keyvalTwin.get('a', throws).catch((reason: unknown) => reason)) as DOMException & {
      cause: { code: string };
    };
    const leaves = keyvalTwin.createStore('keys', 'kv', { onUnmovable: 'leave' });
    const refused = (await keyvalTwin.set('k', key, leaves).catch((reason: unknown) => reason)) as DOMException;
    return {
      error: [error.name, error.cause.code, error.message.includes('kv: "key"')],
      refused: refused.name,
      moved: await keyvalTwin.entries(leaves),
      kept: (await idbKeyval.keys(store)).length,
    };
  });
  expect(found).toEqual({
    error: ['DataCloneError', 'KV_INVALID_VALUE', true],
    refused: 'DataCloneError',
    moved: [
      ['a', 1],
      ['z', 2],
    ],
    kept: 3,
  });
});

test('a frame and a worker use the store of the page', async ({ profile }) => {
  const page = await emptyTab(await profile.launch());
  await page.evaluate(async () => (await window.loadTwins()).forageTwin.setItem('from the page', 'hello'));
  expect(await page.evaluate(() => window.runTwinsWorker())).toBe('asyncStorage');
  await page.evaluate((address) => {
    const frame = document.createElement('iframe');
    frame.src = address;
    document.body.append(frame);
  }, HARNESS_URL);
  await expect.poll(() => page.frames().length).toBe(2);
  const frame = page.frames()[1];
  await frame?.waitForFunction(() => document.title === 'ready');
  const inFrame = await frame?.evaluate(async () => {
    const { forageTwin } = await window.loadTwins();
    await forageTwin.setItem('from the frame', 1);
    return forageTwin.getItem('from the worker');
  });
  expect(inFrame).toBe('worker saw hello');
  expect(await page.evaluate(async () => (await window.loadTwins()).forageTwin.keys())).toEqual([
    'from the frame',
    'from the page',
    'from the worker',
  ]);
});

test('without OPFS the twins keep their data in IndexedDB', async ({ profile }) => {
  const context = await profile.launch();
  await context.addInitScript(() => {
    navigator.storage.getDirectory = () => Promise.reject(new DOMException('not in private', 'SecurityError'));
  });
  const page = await emptyTab(context);
  await fill(page, 10);
  const stored = await entriesOf(page, 'library');
  await page.reload();
  expect(await entriesOf(page, 'twin')).toEqual(stored);
  await page.reload();
  expect(await entriesOf(page, 'twin')).toEqual(stored);
});

test('what a service worker or another page without OPFS has copied is there for pages with OPFS', async ({
  profile,
}) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  await fill(page, 10);
  const stored = await entriesOf(page, 'library');
  await page.close();
  const without = await context.newPage();
  await without.addInitScript(() => {
    navigator.storage.getDirectory = () => Promise.reject(new DOMException('not in a service worker', 'SecurityError'));
  });
  await without.goto(HARNESS_URL);
  await without.waitForFunction(() => document.title === 'ready');
  expect(await entriesOf(without, 'twin')).toEqual(stored);
  // The end of a move is in the background.
  await without.waitForTimeout(500);
  await without.close();
  const later = await emptyTab(context);
  expect(await entriesOf(later, 'twin')).toEqual(stored);
  await expect.poll(() => left(later)).toBe(0);
});
