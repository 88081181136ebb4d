// WebKitGTK, which Debian builds without the origin private file system: the failure is typed, and what may stand in does.
import { expect, test as base } from '@playwright/test';
import { MiniBrowser, Remote } from './webkitgtk.ts';

interface WebKit {
  readonly page: Remote;
  /** Starts the browser with these arguments, again on the same data. */
  start(...args: string[]): Promise<void>;
}

const test = base.extend<{ webkit: WebKit }>({
  // eslint wants a pattern here where nothing is used.
  webkit: async ({}, use) => {
    await using page = new Remote();
    const url = await page.listen();
    await using browser = await MiniBrowser.create();
    await use({
      page,
      async start(...args) {
        await browser.stop();
        const arrived = page.arrival();
        browser.start(url, ...args);
        await arrived;
      },
    });
  },
});

/** What is tried where OPFS is not to be had. */
async function tryAll(): Promise<unknown> {
  const { checkSupport, destroy, list, open } = window.mangrove;
  const failure = (work: Promise<unknown>): Promise<unknown> => work.then(() => 'none', (error: { code?: string; message: string; retryable?: boolean }) => [error.code, error.message, error.retryable]);
  const support = await checkSupport();
  const found = { support, open: await failure(open('x')), list: await failure(list()), destroy: await failure(destroy('x')), kept: [] as unknown[] };
  for (const onUnavailable of ['indexeddb', 'memory'] as const) {
    const db = await open<string, unknown>('stands in', { onUnavailable });
    await db.setMany(Array.from({ length: 1000 }, (_, index) => [`k${String(index).padStart(4, '0')}`, { index, when: new Date(index) }] as const));
    await db.transaction(async (tx) => {
      await tx.set('k0000', 'changed');
      await tx.delete('k0001');
    });
    const range = await db.keys({ gte: 'k0998' }).toArray();
    found.kept.push([db.persistence, await db.get('k0000'), await db.size, range, (await db.verify()).ok]);
    await db.close();
  }
  return found;
}

const STANDS_IN = [
  ['indexeddb', 'changed', 999, ['k0998', 'k0999'], true],
  ['memory', 'changed', 999, ['k0998', 'k0999'], true],
];

async function reopen(): Promise<unknown> {
  const db = await window.mangrove.open('stands in', { storage: 'indexeddb', create: false });
  const found = [await db.get('k0000'), await db.size, (await db.verify()).ok];
  await db.set('k0000', 'changed');
  await db.close();
  return found;
}

test('without OPFS', async ({ webkit: { page, start } }) => {
  await start();
  const found = await page.evaluate(tryAll);
  const message = 'this browser has no origin private file system';
  expect(found).toEqual({
    support: { ok: false, reason: 'no-opfs', message },
    open: ['KV_UNSUPPORTED', `${message} (no-opfs)`, false],
    list: ['KV_UNSUPPORTED', expect.stringContaining('(no-opfs)'), false],
    destroy: ['KV_UNSUPPORTED', expect.stringContaining('(no-opfs)'), false],
    kept: STANDS_IN,
  });
  await page.reload();
  expect(await page.evaluate(reopen)).toEqual(['changed', 999, true]);
  // Killed, and started again.
  await start();
  expect(await page.evaluate(reopen)).toEqual(['changed', 999, true]);
});

const WITH_OPFS = '--features=+StorageAPI,+FileSystem,+AccessHandle,+StorageAPIEstimate,+FileSystemWritableStream';

test('with all of OPFS that it has switched on', async ({ webkit: { page, start } }) => {
  await start(WITH_OPFS);
  expect(await page.evaluate(tryAll)).toEqual({});
});

test('in a private window', async ({ webkit: { page, start } }) => {
  await start('--private', WITH_OPFS);
  expect(await page.evaluate(tryAll)).toEqual({});
});
