// Encrypted databases in a browser: in each storage and thread, among tabs, and in the files.
import type { Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

const MARKER = 'c0nfid3nt1al';

type Storage = 'opfs' | 'indexeddb' | 'memory';

/** Opens the database "secret" with a key of 32 equal bytes, or none, as `window.db`; returns the error's code, or "open". */
const openWith = (page: Page, key: number | undefined, storage: Storage = 'opfs'): Promise<string> =>
  page.evaluate(
    async ([key, storage]) => {
      const encryption = key === undefined ? undefined : { key: new Uint8Array(32).fill(key) };
      try {
        window.db = await window.mangrove.open('secret', { storage, encryption });
        return 'open';
      } catch (error) {
        return (error as { code: string }).code;
      }
    },
    [key, storage] as const,
  );

async function newTab(page: Page): Promise<Page> {
  await page.goto(HARNESS_URL);
  return page;
}

const put = (page: Page, key: string, value: string): Promise<void> =>
  page.evaluate(([key, value]) => window.db.set(key, value), [key, value] as const);

const read = (page: Page): Promise<unknown> =>
  page.evaluate(async () => {
    const { problems } = await window.db.verify();
    return [await window.db.entries().toArray(), problems];
  });

const changeKey = (page: Page, key: number): Promise<void> =>
  page.evaluate((key) => window.db.changeKey({ key: new Uint8Array(32).fill(key) }), key);

/** Whether the marker stands in a file of the database in OPFS. */
const isReadable = (page: Page, marker: string): Promise<boolean> =>
  page.evaluate(async (marker) => {
    const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('mangrove');
    const directory = await root.getDirectoryHandle('secret');
    let text = '';
    for (const name of ['data', 'log']) {
      const file = await (await directory.getFileHandle(name)).getFile();
      text += new TextDecoder('latin1').decode(await file.arrayBuffer());
    }
    if (text.length < 8192) throw new Error('the files are empty');
    return text.includes(marker);
  }, marker);

for (const storage of ['opfs', 'indexeddb', 'memory'] as const) {
  test(`an encrypted database is read again with its key: ${storage}`, async ({ profile }) => {
    const context = await profile.launch();
    const page = await newTab(await context.newPage());
    expect(await openWith(page, 1, storage)).toBe('open');
    await put(page, 'a', MARKER.repeat(100));
    expect(await read(page)).toEqual([[['a', MARKER.repeat(100)]], []]);
    await page.evaluate(() => window.db.close());
    if (storage === 'memory') return;
    for (const key of [undefined, 2]) expect(await openWith(page, key, storage)).toBe('KV_WRONG_KEY');
    expect(await openWith(page, 1, storage)).toBe('open');
    expect(await read(page)).toEqual([[['a', MARKER.repeat(100)]], []]);
  });
}

test('the files do not hold what was stored, and those of a plain database do', async ({ profile }) => {
  const context = await profile.launch();
  const page = await newTab(await context.newPage());
  for (const [key, isPlain] of [
    [1, false],
    [undefined, true],
  ] as const) {
    expect(await openWith(page, key)).toBe('open');
    await put(page, MARKER, MARKER);
    await page.evaluate(() => window.db.close());
    expect(await isReadable(page, MARKER)).toBe(isPlain);
    await page.evaluate(() => window.mangrove.destroy('secret'));
  }
});

test('the engine with encryption is loaded by a page that gives a key, and by no other', async ({ profile }) => {
  const context = await profile.launch();
  const loaded: string[] = [];
  context.on('request', (request) => {
    if (request.url().includes('encrypted')) loaded.push(request.url());
  });
  const page = await newTab(await context.newPage());
  expect(await openWith(page, undefined, 'memory')).toBe('open');
  await put(page, 'a', 'plain');
  await page.evaluate(() => window.db.close());
  expect(loaded).toEqual([]);
  expect(await openWith(page, 1, 'memory')).toBe('open');
  await expect.poll(() => loaded.length).toBeGreaterThan(0);
});

test('a tab with another key, or none, is refused beside one that has the database open', async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await newTab(await context.newPage()), await newTab(await context.newPage())];
  expect(await openWith(first, 1)).toBe('open');
  await put(first, 'a', 'first');
  for (const key of [undefined, 2]) expect(await openWith(second, key)).toBe('KV_WRONG_KEY');
  expect(await openWith(second, 1)).toBe('open');
  await put(second, 'b', 'second');
  expect(await read(first)).toEqual([
    [
      ['a', 'first'],
      ['b', 'second'],
    ],
    [],
  ]);
  // The next leader opens the files with its own key.
  await first.close();
  await put(second, 'c', 'third');
  expect(await read(second)).toEqual([
    [
      ['a', 'first'],
      ['b', 'second'],
      ['c', 'third'],
    ],
    [],
  ]);
});

test('a tab with a key is refused beside one that has a plain database open', async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await newTab(await context.newPage()), await newTab(await context.newPage())];
  expect(await openWith(first, undefined)).toBe('open');
  await put(first, 'a', 'first');
  expect(await openWith(second, 1)).toBe('KV_NOT_ENCRYPTED');
  await first.evaluate(() => window.db.close());
  expect(await openWith(second, 1)).toBe('KV_NOT_ENCRYPTED');
  expect(await openWith(second, undefined)).toBe('open');
  expect(await read(second)).toEqual([[['a', 'first']], []]);
});

test('a tab that changed the key opens the files with the new one when it leads', async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await newTab(await context.newPage()), await newTab(await context.newPage())];
  expect(await openWith(first, 1)).toBe('open');
  expect(await openWith(second, 1)).toBe('open');
  await put(second, 'a', 'before');
  await changeKey(second, 2);
  // The tab that leads goes on, and refuses the old key.
  await put(first, 'b', 'after');
  const third = await newTab(await context.newPage());
  expect(await openWith(third, 1)).toBe('KV_WRONG_KEY');
  await first.close();
  await put(second, 'c', 'new leader');
  expect(await read(second)).toEqual([
    [
      ['a', 'before'],
      ['b', 'after'],
      ['c', 'new leader'],
    ],
    [],
  ]);
  await second.evaluate(() => window.db.close());
  expect(await openWith(third, 1)).toBe('KV_WRONG_KEY');
  expect(await openWith(third, 2)).toBe('open');
});

test('everything is encrypted anew, although the tab that leads is closed meanwhile', async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await newTab(await context.newPage()), await newTab(await context.newPage())];
  expect(await openWith(first, 1)).toBe('open');
  expect(await openWith(second, 1)).toBe('open');
  await first.evaluate(async () => {
    // Random, so that it stays long.
    const text = (): string =>
      Array.from(crypto.getRandomValues(new Uint8Array(1000)), (byte) => byte.toString(16)).join('');
    for (let part = 0; part < 12; part++)
      await window.db.setMany(Array.from({ length: 500 }, (_, at) => [`${part}-${at}`, text()] as const));
  });
  await second.evaluate(() => {
    const target = window as unknown as { told: number; work: Promise<void> };
    target.told = 0;
    target.work = window.db.reencrypt({
      onProgress: () => {
        target.told += 1;
      },
    });
  });
  await second.waitForFunction(() => (window as unknown as { told: number }).told > 0);
  await put(first, 'a', 'meanwhile');
  await first.close();
  await second.evaluate(() => (window as unknown as { work: Promise<void> }).work);
  await put(second, 'b', 'after');
  const [entries, problems] = (await read(second)) as [[string, string][], unknown[]];
  expect([entries.length, problems, entries.at(-2)?.[1], entries.at(-1)?.[1]]).toEqual([
    6002,
    [],
    'meanwhile',
    'after',
  ]);
  await second.evaluate(() => window.db.close());
  const isOver = await second.evaluate(async () => {
    const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('mangrove');
    const file = await (await (await root.getDirectoryHandle('secret')).getFileHandle('data')).getFile();
    const data = new Uint8Array(await file.slice(0, 8192).arrayBuffer());
    return [0, 4096].every(
      (slot) => data[slot + 164] === 1 && data.subarray(slot + 408, slot + 508).every((byte) => byte === 0),
    );
  });
  expect(isOver, 'no superblock holds the previous key').toBe(true);
  expect(await openWith(second, 1)).toBe('open');
});

for (const storage of ['indexeddb', 'memory'] as const) {
  test(`an encrypted database is opened in the page's own thread: ${storage}`, async ({ profile }) => {
    const context = await profile.launch();
    const page = await newTab(await context.newPage());
    const found = await page.evaluate(async (storage) => {
      const encryption = { key: new Uint8Array(32).fill(1) };
      const db = await window.mangrove.open('here', { storage, thread: 'same', encryption });
      await db.set('a', 1);
      await db.reencrypt();
      await db.changeKey({ passphrase: 'correct horse' });
      const values: unknown[] = [await db.get('a'), (await db.verify()).ok];
      await db.close();
      if (storage === 'memory') return values;
      values.push(
        await window.mangrove
          .open('here', { storage, thread: 'same', encryption })
          .catch(({ code }: { code: string }) => code),
      );
      const again = await window.mangrove.open('here', {
        storage,
        thread: 'same',
        encryption: { passphrase: 'correct horse' },
      });
      values.push(await again.get('a'));
      return values;
    }, storage);
    expect(found).toEqual(storage === 'memory' ? [1, true] : [1, true, 'KV_WRONG_KEY', 1]);
  });
}

test('a key that cannot be extracted is kept in IndexedDB, and a passphrase needs nothing', async ({ profile }) => {
  const context = await profile.launch();
  const page = await newTab(await context.newPage());
  const opened = await page.evaluate(async () => {
    const generated = await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    const request = indexedDB.open('keys', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('keys');
    const keys = await new Promise<IDBDatabase>((resolve) => {
      request.onsuccess = () => resolve(request.result);
    });
    const done = <T>(work: IDBRequest<T>): Promise<T> =>
      new Promise((resolve) => {
        work.onsuccess = () => resolve(work.result);
      });
    await done(keys.transaction('keys', 'readwrite').objectStore('keys').put(generated, 'database'));
    const kept = await done<CryptoKey>(keys.transaction('keys').objectStore('keys').get('database'));
    const first = await window.mangrove.open('kept', { encryption: { key: generated } });
    await first.set('a', 1);
    await first.close();
    const again = await window.mangrove.open('kept', { encryption: { key: kept } });
    const values: unknown[] = [kept.extractable, await again.get('a')];
    await again.changeKey({ passphrase: 'correct horse' });
    await again.close();
    const last = await window.mangrove.open('kept', { encryption: { passphrase: 'correct horse' } });
    values.push(await last.get('a'));
    await last.close();
    values.push(
      await window.mangrove
        .open('kept', { encryption: { passphrase: 'correct horsf' } })
        .catch(({ code }: { code: string }) => code),
    );
    return values;
  });
  expect(opened).toEqual([false, 1, 1, 'KV_WRONG_KEY']);
});

test('a backup is restored with its key, and recovered', async ({ profile }) => {
  const context = await profile.launch();
  const page = await newTab(await context.newPage());
  expect(await openWith(page, 1)).toBe('open');
  await put(page, 'a', MARKER);
  const found = await page.evaluate(async () => {
    const encryption = { key: new Uint8Array(32).fill(1) };
    const backup = await new Response(window.db.backup()).blob();
    await window.db.close();
    const refused = await window.mangrove.restore('restored', backup).catch(({ code }: { code: string }) => code);
    await window.mangrove.restore('restored', backup, { encryption });
    const { entries } = await window.mangrove.recover('restored', 'recovered', { encryption });
    const db = await window.mangrove.open('recovered', { encryption });
    return [refused, entries, await db.get('a')];
  });
  expect(found).toEqual(['KV_WRONG_KEY', 1, MARKER]);
});
