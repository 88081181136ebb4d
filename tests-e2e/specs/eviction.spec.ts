// The browser, or the user, removes the site's data while a database is open: the database reports
// it, nothing hangs, and the name can be opened anew.
import type { BrowserContext, Page } from '@playwright/test';
import { HARNESS_URL, OPFS_WORKER } from '../browser.ts';
import { expect, test } from '../persistent.ts';

interface Opened {
  db: Awaited<ReturnType<typeof window.mangrove.open<string, number>>>;
  seen: string[];
}

async function openPage(context: BrowserContext, storage: 'opfs' | 'indexeddb'): Promise<Page> {
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  await page.evaluate(async (storage) => {
    const db = await window.mangrove.open<string, number>('evicted', { storage });
    const seen: string[] = [];
    db.addEventListener('error', ({ error }) => seen.push(`error ${error.code}`));
    db.addEventListener('close', ({ reason }) => seen.push(`close ${(reason as { code?: string } | undefined)?.code}`));
    await db.set('before', 1);
    Object.assign(window, { db, seen });
  }, storage);
  return page;
}

async function removeData(context: BrowserContext, page: Page): Promise<void> {
  const session = await context.newCDPSession(page);
  await session.send('Storage.clearDataForOrigin', { origin: HARNESS_URL, storageTypes: 'all' });
}

/** Opens the name again; returns the number of entries, and a value written to it and read back. */
function openAgain(page: Page, storage: 'opfs' | 'indexeddb'): Promise<unknown> {
  return page.evaluate(async (storage) => {
    const db = await window.mangrove.open<string, number>('evicted', { storage });
    const found = [await db.count()];
    await db.set('after', 2);
    await db.close();
    const again = await window.mangrove.open<string, number>('evicted', { storage, create: false });
    found.push((await again.get('after')) ?? 0);
    await again.close();
    return found;
  }, storage);
}

test('a write after the removal closes the database with KV_EVICTED', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openPage(context, 'opfs');
  await removeData(context, page);
  await page.evaluate(() => (window as unknown as Opened).db.set('lost', 1).catch(() => undefined));
  await expect
    .poll(() => page.evaluate(() => (window as unknown as Opened).seen))
    .toEqual(['error KV_EVICTED', 'close KV_EVICTED']);
  const found = await page.evaluate(async () => {
    const { db } = window as unknown as Opened;
    const code = (promise: Promise<unknown>): Promise<string> =>
      promise.then(
        () => 'none',
        (error: { code?: string }) => error.code ?? '',
      );
    return [db.status, await code(db.get('before')), await code(db.set('more', 1)), await code(db.close())];
  });
  expect(found).toEqual(['closed', 'KV_EVICTED', 'KV_EVICTED', 'none']);
  expect(await openAgain(page, 'opfs')).toEqual([0, 2]);
});

test('closing after the removal ends and reports KV_EVICTED', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openPage(context, 'opfs');
  await removeData(context, page);
  const found = await page.evaluate(async () => {
    const { db, seen } = window as unknown as Opened;
    await db.close().catch(() => undefined);
    return [db.status, seen];
  });
  expect(found).toEqual(['closed', ['error KV_EVICTED', 'close KV_EVICTED']]);
  expect(await openAgain(page, 'opfs')).toEqual([0, 2]);
});

test('all tabs that share a removed database get KV_EVICTED and can reopen it', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openPage(context, 'opfs');
  const other = await openPage(context, 'opfs');
  await removeData(context, page);
  await other.evaluate(() => (window as unknown as Opened).db.set('lost', 1).catch(() => undefined));
  for (const tab of [page, other]) {
    await expect
      .poll(() => tab.evaluate(() => (window as unknown as Opened).seen))
      .toEqual(['error KV_EVICTED', 'close KV_EVICTED']);
  }
  expect(await openAgain(other, 'opfs')).toEqual([0, 2]);
  expect(
    await page.evaluate(async () => {
      const db = await window.mangrove.open<string, number>('evicted', { create: false });
      const keys = await db.keys().toArray();
      await db.close();
      return keys;
    }),
  ).toEqual(['after']);
});

test('open retries while the data of the origin is still being removed', async ({ profile }) => {
  const context = await profile.launch();
  await context.route(OPFS_WORKER, async (route) => {
    const response = await route.fetch();
    const script = `{
      const { getDirectoryHandle } = FileSystemDirectoryHandle.prototype;
      let refused = 0;
      FileSystemDirectoryHandle.prototype.getDirectoryHandle = function (...args) {
        if (refused++ < 3) throw new DOMException('the state had changed since it was read from disk', 'InvalidStateError');
        return getDirectoryHandle.apply(this, args);
      };
    }\n`;
    await route.fulfill({ response, body: script + (await response.text()) });
  });
  const page = await openPage(context, 'opfs');
  expect(await page.evaluate(() => (window as unknown as Opened).db.get('before'))).toBe(1);
});

test('IndexedDB: a forced close by the browser closes the database with KV_IO', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openPage(context, 'indexeddb');
  await removeData(context, page);
  await expect
    .poll(() => page.evaluate(() => (window as unknown as Opened).seen))
    .toEqual(['error KV_IO', 'close KV_IO']);
  expect(await openAgain(page, 'indexeddb')).toEqual([0, 2]);
});

test('the files of an open database cannot be removed by name', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openPage(context, 'opfs');
  const found = await page.evaluate(async () => {
    const { db } = window as unknown as Opened;
    const root = await navigator.storage.getDirectory();
    const refused = await root.removeEntry('mangrove', { recursive: true }).then(
      () => 'removed',
      (error: DOMException) => error.name,
    );
    await db.set('after', 2);
    return [refused, await db.count(), db.status];
  });
  expect(found).toEqual(['NoModificationAllowedError', 2, 'open']);
});
