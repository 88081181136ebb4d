// The life of a page: what it saves as it is left, what it opens before it is shown, when others want its database, and
// pages that have no storage.
import type { BrowserContext, Page } from '@playwright/test';
import { BASE_URL, HARNESS_URL, keepsPages, launchProfile } from '../browser.ts';
import { expect, test } from '../persistent.ts';
import { emptyTab } from '../tabs-page.ts';

const EVENTS = ['pagehide', 'window visibilitychange', 'document visibilitychange'] as const;
/** Several of each, as an application and its libraries have them. */
const COUNT = 3;
const ELSEWHERE = BASE_URL.replace('localhost', '127.0.0.1');

type Storage = 'opfs' | 'indexeddb';

async function openIn(page: Page, storage: Storage = 'opfs'): Promise<void> {
  await page.waitForFunction(() => document.title === 'ready');
  await page.evaluate(async (place) => {
    window.db = await window.mangrove.open('left', { storage: place });
  }, storage);
}

async function openTab(context: BrowserContext, storage?: Storage): Promise<Page> {
  const page = await emptyTab(context);
  await openIn(page, storage);
  return page;
}

/** Adds listeners to a page whose database is open; each saves under a key of its own. */
function saveWhenLeft(page: Page): Promise<void> {
  return page.evaluate(
    ([events, count]) => {
      for (const event of events) {
        const [type, target] = event.split(' ').reverse() as [string, string?];
        for (let index = 0; index < count; index++) {
          (target === 'document' ? document : window).addEventListener(type, () => {
            if (type === 'pagehide' || document.visibilityState === 'hidden')
              void window.db.set(`${event} ${index}`, 'x'.repeat(index * 10_000));
          });
        }
      }
    },
    [EVENTS, COUNT] as const,
  );
}

const SAVED = EVENTS.flatMap((event) => Array.from({ length: COUNT }, (_, index) => `${event} ${index}`)).sort();

function keysIn(page: Page): Promise<unknown> {
  return page.evaluate(() => window.db.keys().toArray());
}

const WAYS: Record<string, (page: Page) => Promise<Page>> = {
  reload: async (page) => {
    await page.reload();
    return page;
  },
  navigation: async (page) => {
    await page.goto(ELSEWHERE);
    await page.goto(HARNESS_URL);
    return page;
  },
  close: async (page) => {
    const next = await page.context().newPage();
    const closed = page.waitForEvent('close');
    await page.close({ runBeforeUnload: true });
    await closed;
    await next.goto(HARNESS_URL);
    return next;
  },
};

for (const [way, leave] of Object.entries(WAYS)) {
  for (const storage of ['opfs', 'indexeddb'] as const) {
    test(`${way}: what listeners save as the page is left is there afterwards (${storage})`, async ({ profile }) => {
      const page = await openTab(await profile.launch(), storage);
      await saveWhenLeft(page);
      const next = await leave(page);
      await openIn(next, storage);
      expect(await keysIn(next)).toEqual(SAVED);
    });
  }

  test(`${way}: what a tab that does not lead saves is there, too`, async ({ profile }) => {
    const context = await profile.launch();
    const leader = await openTab(context);
    const page = await openTab(context);
    await saveWhenLeft(page);
    await leave(page);
    await expect.poll(() => keysIn(leader)).toEqual(SAVED);
  });
}

test('a page that the browser keeps has saved all before it rests', async ({ browserName, profile }) => {
  test.skip(browserName !== 'chromium', 'WebDriver BiDi loses a page that returns from this cache');
  const context = await launchProfile('chromium', profile.directory, keepsPages);
  const page = await openTab(context);
  await saveWhenLeft(page);
  await page.goto(ELSEWHERE);
  const other = await emptyTab(context);
  await openIn(other);
  expect(await keysIn(other)).toEqual(SAVED);
  await context.close();
});

test('an open in a prerendered page has its time from when the page is shown', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.clock.install();
  await page.addInitScript(() => Object.defineProperty(document, 'prerendering', { value: true, configurable: true }));
  await page.goto(HARNESS_URL);
  await page.evaluate(() => {
    window.seen = [];
    const { checkSupport, open } = window.mangrove;
    const { getDirectory } = navigator.storage;
    // Until the page is shown, nothing is answered.
    navigator.storage.getDirectory = async () => {
      while ((document as { prerendering?: boolean }).prerendering)
        await new Promise((resolve) => document.addEventListener('prerenderingchange', resolve));
      return getDirectory.call(navigator.storage);
    };
    const note = (what: string, promise: Promise<unknown>): unknown =>
      promise.then(
        () => window.seen.push(what),
        (error: { code?: string }) => window.seen.push(`${what} ${error.code}`),
      );
    note('support', checkSupport());
    for (const storage of ['opfs', 'indexeddb', 'memory'] as const)
      note(storage, open('prerendered', { storage, lockTimeout: 1000 }));
  });
  for (let minutes = 0; minutes < 3; minutes++) await page.clock.runFor(60_000);
  expect(await page.evaluate(() => window.seen)).toEqual([]);
  await page.evaluate(() => {
    Object.defineProperty(document, 'prerendering', { value: false });
    document.dispatchEvent(new Event('prerenderingchange'));
  });
  await expect
    .poll(async () => {
      await page.clock.runFor(50);
      return page.evaluate(() => [...window.seen].sort());
    })
    .toEqual(['indexeddb', 'memory', 'opfs', 'support']);
});

for (const storage of ['opfs', 'indexeddb'] as const) {
  test(`a restore asks the tabs that have the database to close it (${storage})`, async ({ profile }) => {
    const context = await profile.launch();
    const tabs = [await openTab(context, storage), await openTab(context, storage)];
    await tabs[0]?.evaluate(() => window.db.set('of', 'before'));
    const place = storage === 'opfs' ? {} : { storage };
    const page = await emptyTab(context);
    const backup = await tabs[0]?.evaluateHandle(async () => new Response(window.db.backup()).blob());
    await tabs[0]?.evaluate(async (blob) => {
      await (await caches.open('left')).put('/backup', new Response(blob));
    }, backup as never);
    const restoring = (lockTimeout: number): Promise<string> =>
      page.evaluate(
        async ([at, wait]) => {
          const stored = await (await caches.open('left')).match('/backup');
          return window.mangrove
            .restore('left', await (stored as Response).blob(), { overwrite: true, ...at, lockTimeout: wait as number })
            .then(
              () => 'done',
              ({ code }: { code: string }) => code,
            );
        },
        [place, lockTimeout] as const,
      );
    await tabs[1]?.evaluate(() => {
      window.events = [];
      window.db.addEventListener('blocked', () => window.events.push('blocked'));
    });
    expect(await restoring(0)).toBe('KV_LOCKED');
    await expect.poll(() => tabs[1]?.evaluate(() => window.events)).toContain('blocked');
    for (const tab of tabs)
      await tab.evaluate(() => window.db.addEventListener('blocked', () => void window.db.close()));
    expect(await restoring(60_000)).toBe('done');
    await openIn(page, storage);
    expect(await page.evaluate(() => window.db.get('of'))).toBe('before');
  });
}

for (const [where, html] of Object.entries({
  'a sandboxed frame': `<iframe sandbox="allow-scripts" src="${HARNESS_URL}/"></iframe>`,
  'a data: page': undefined,
})) {
  test(`${where} has a database in memory where that is asked for`, async ({ profile }) => {
    const context = await profile.launch();
    // Without an origin, scripts and the module come from another one.
    await context.route(`${HARNESS_URL}/**`, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, headers: { ...response.headers(), 'access-control-allow-origin': '*' } });
    });
    const page = await context.newPage();
    const index = await (await fetch(HARNESS_URL)).text();
    const bare = index.replaceAll('"/', `"${HARNESS_URL}/`);
    if (html === undefined) await page.goto(`data:text/html,${encodeURIComponent(bare)}`);
    else await page.setContent(html);
    const frame = html === undefined ? page.mainFrame() : page.frames().at(-1);
    await frame?.waitForFunction(() => document.title === 'ready');
    const found = await frame?.evaluate(async () => {
      const { checkSupport, list, open } = window.mangrove;
      const failure = (promise: Promise<unknown>): Promise<unknown> =>
        promise.then(
          () => 'none',
          ({ code, message }: { code: string; message: string }) => `${code} ${message}`,
        );
      const support = await checkSupport();
      const db = await open('nowhere', { onUnavailable: 'memory' });
      await db.set('k', 1);
      const found = [
        support.ok ? '' : support.reason,
        await failure(open('nowhere')),
        db.persistence,
        await db.get('k'),
        await failure(list()),
      ];
      await db.close();
      return found;
    });
    const opaque = expect.stringMatching(/^KV_UNSUPPORTED .*\(opaque-origin\)$/);
    expect(found).toEqual([
      'opaque-origin',
      opaque,
      'memory',
      1,
      expect.stringMatching(/^KV_UNSUPPORTED .*\((?:opaque-origin|no-opfs)\)$/),
    ]);
  });
}

test('a service worker and a page have a database in IndexedDB in turns', async ({ profile }) => {
  const page = await emptyTab(await profile.launch());
  const ask = (): Promise<unknown> =>
    page.evaluate(async () => {
      await navigator.serviceWorker.register('/service-worker.js', { type: 'module' });
      const { active } = await navigator.serviceWorker.ready;
      return new Promise((resolve) => {
        navigator.serviceWorker.addEventListener('message', ({ data }) => resolve(data), { once: true });
        navigator.serviceWorker.startMessages();
        active?.postMessage('count');
      });
    });
  const starts = (): Promise<unknown> =>
    page.evaluate(async () => {
      window.db = await window.mangrove.open('service worker', { storage: 'indexeddb' });
      return window.db.get('starts');
    });
  expect(await ask()).toEqual([1, true, 'indexeddb']);
  expect(await starts()).toBe(1);
  // The page has it.
  expect(await ask()).toMatch(/KV_LOCKED|is open in another tab or handle/);
  await page.evaluate(() => window.db.close());
  expect(await ask()).toEqual([2, true, 'indexeddb']);
  expect(await starts()).toBe(2);
});
