// Databases in storage buckets, which are parts of the site's storage that a browser keeps and evicts
// one by one.
import type { BrowserContext, Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';
import { emptyTab } from '../tabs-page.ts';

interface Buckets {
  open(name: string): Promise<{
    estimate(): Promise<{ quota: number }>;
    expires(): Promise<number | null>;
    getDirectory(): Promise<FileSystemDirectoryHandle>;
    indexedDB: IDBFactory;
  }>;
  keys(): Promise<string[]>;
  delete(name: string): Promise<void>;
}

type Storage = 'opfs' | 'indexeddb';
type Bucket = NonNullable<Parameters<typeof window.mangrove.open>[1]>['bucket'];

/** Runs in the page; `storageBuckets` is missing from the DOM types. */
declare global {
  interface Navigator {
    readonly storageBuckets: Buckets;
  }
}

/** Opens the database "notes" as `window.db`; returns the error's code, or where it is. */
const openIn = (page: Page, bucket: Bucket, storage: Storage = 'opfs', create = true): Promise<string> =>
  page.evaluate(
    async ([bucket, storage, create]) => {
      try {
        window.events = [];
        window.db = await window.mangrove.open('notes', { bucket, storage, create });
        window.db.addEventListener('close', ({ reason }) =>
          window.events.push(`close ${(reason as { code?: string } | undefined)?.code}`),
        );
        return `${window.db.persistence} ${window.db.bucket}`;
      } catch (error) {
        return (error as { code: string }).code;
      }
    },
    [bucket, storage, create] as const,
  );

const write = (page: Page, value: string): Promise<void> => page.evaluate((value) => window.db.set('in', value), value);
const read = (page: Page): Promise<unknown> => page.evaluate(() => window.db.get('in'));
const close = (page: Page): Promise<void> => page.evaluate(() => window.db.close());
const removeBucket = (page: Page, name: string): Promise<void> =>
  page.evaluate((name) => navigator.storageBuckets.delete(name), name);

async function tabs(context: BrowserContext, count: number): Promise<Page[]> {
  const pages: Page[] = [];
  for (let left = count; left > 0; left--) pages.push(await emptyTab(context));
  return pages;
}

test('a browser without storage buckets refuses them with what to do, and has nothing stored', async ({ profile }) => {
  const context = await profile.launch();
  await context.addInitScript(() => {
    delete (Object.getPrototypeOf(navigator) as { storageBuckets?: unknown }).storageBuckets;
  });
  const [page] = (await tabs(context, 1)) as [Page];
  const outcome = await page.evaluate(async () => {
    const { open, destroy, list, restore, recover } = window.mangrove;
    const attempts = [
      open('notes', { bucket: 'drafts' }),
      // There is no fallback to other storage: what was meant for a bucket must not be found elsewhere.
      open('notes', { bucket: 'drafts', onUnavailable: 'memory' }),
      open('notes', { bucket: 'drafts', storage: 'indexeddb' }),
      destroy('notes', { bucket: 'drafts' }),
      list({ bucket: 'drafts' }),
      list({ bucket: 'drafts', storage: 'indexeddb' }),
      restore('notes', new Uint8Array(1), { bucket: 'drafts' }),
      recover('notes', 'other', { bucket: 'drafts' }),
    ];
    const errors = await Promise.all(
      attempts.map((each) => (each as Promise<unknown>).catch((error: unknown) => error)),
    );
    return [
      errors.map((each) => (each as { code?: string }).code),
      (errors[0] as Error).message,
      await list(),
      await list({ storage: 'indexeddb' }),
    ];
  });
  expect(outcome).toEqual([
    Array(8).fill('KV_UNSUPPORTED'),
    expect.stringContaining('leave out the option bucket'),
    [],
    [],
  ]);
});

test.describe('with storage buckets', () => {
  test.skip(({ browserName }) => browserName !== 'chromium', 'only Chromium has storage buckets');

  for (const storage of ['opfs', 'indexeddb'] as const) {
    test(`databases of one name in two buckets and outside are three, after a restart too: ${storage}`, async ({
      profile,
    }) => {
      const context = await profile.launch();
      const pages = await tabs(context, 3);
      const buckets = ['drafts', 'media', undefined] as const;
      for (const [at, page] of pages.entries()) {
        expect(await openIn(page, buckets[at], storage)).toBe(`${storage} ${buckets[at]}`);
        await write(page, `${buckets[at]}`);
      }
      // All three are open at once, each in a tab that leads.
      for (const [at, page] of pages.entries()) expect(await read(page)).toBe(`${buckets[at]}`);
      await pages[0]!.reload();
      expect(await openIn(pages[0]!, 'drafts', storage, false)).toBe(`${storage} drafts`);
      expect(await read(pages[0]!)).toBe('drafts');
      await context.close();

      const again = await profile.launch();
      const [page] = (await tabs(again, 1)) as [Page];
      for (const bucket of buckets) {
        expect(await openIn(page, bucket, storage, false)).toBe(`${storage} ${bucket}`);
        expect(await read(page)).toBe(`${bucket}`);
        await close(page);
      }
      const lists = await page.evaluate(async (storage) => {
        const kind = storage === 'opfs' ? undefined : storage;
        const names = async (bucket: string | undefined): Promise<string[]> =>
          (await window.mangrove.list({ bucket, storage: kind })).map(({ name }) => name);
        const before = [await names('drafts'), await names('media'), await names(undefined), await names('none')];
        const gone = [
          await window.mangrove.destroy('notes', { bucket: 'drafts', storage: kind }),
          await window.mangrove.destroy('notes', { bucket: 'drafts', storage: kind }),
          await window.mangrove.destroy('notes', { bucket: 'none', storage: kind }),
        ];
        return [
          before,
          gone,
          await names('drafts'),
          await names('media'),
          await names(undefined),
          await navigator.storageBuckets.keys(),
        ];
      }, storage);
      // Asking about a bucket that does not exist creates none.
      expect(lists).toEqual([
        [['notes'], ['notes'], ['notes'], []],
        [true, false, false],
        [],
        ['notes'],
        ['notes'],
        ['drafts', 'media'],
      ]);
    });

    test(`tabs share a database in a bucket: ${storage}`, async ({ profile }) => {
      const context = await profile.launch();
      const [leader, follower, other] = (await tabs(context, 3)) as [Page, Page, Page];
      await openIn(leader, 'drafts', storage);
      await openIn(follower, 'drafts', storage);
      await openIn(other, 'media', storage);
      await write(leader, 'first');
      expect(await read(follower)).toBe('first');
      expect(await read(other)).toBe(undefined);
      await write(follower, 'second');
      expect(await read(leader)).toBe('second');
      // The other tab takes over, in the same bucket.
      await leader.close();
      expect(await read(follower)).toBe('second');
      await write(follower, 'third');
      const refused = await follower.evaluate(
        (storage) =>
          window.mangrove
            .destroy('notes', { bucket: 'drafts', storage: storage === 'opfs' ? undefined : storage })
            .catch((error: { code: string }) => error.code),
        storage,
      );
      expect(refused).toBe('KV_LOCKED');
      await close(follower);
      expect(await openIn(other, 'drafts', storage, false)).toBe(`${storage} drafts`);
      expect(await read(other)).toBe('third');
    });

    test(`a backup is restored into a bucket, and recovered there: ${storage}`, async ({ profile }) => {
      const context = await profile.launch();
      const [page] = (await tabs(context, 1)) as [Page];
      await openIn(page, undefined, storage);
      await write(page, 'outside');
      const found = await page.evaluate(async (storage) => {
        const { open, recover, restore } = window.mangrove;
        const backup = await new Response(window.db.backup() as ReadableStream<Uint8Array<ArrayBuffer>>).bytes();
        const place = { bucket: 'copies', storage: storage === 'opfs' ? undefined : storage } as const;
        await restore('notes', backup, place);
        const exists = await restore('notes', backup, place).catch((error: { code: string }) => error.code);
        const report = await recover('notes', 'recovered', place);
        const values: unknown[] = [];
        for (const name of ['notes', 'recovered']) {
          const db = await open(name, { bucket: 'copies', storage, create: false });
          values.push(await db.get('in'));
          await db.set('in', 'changed');
          await db.close();
        }
        return [exists, report.entries, values, await window.db.get('in')];
      }, storage);
      expect(found).toEqual(['KV_EXISTS', 1, ['outside', 'outside'], 'outside']);
    });
  }

  test('removing a bucket evicts the database in it and no other', async ({ profile }) => {
    const context = await profile.launch();
    const [drafts, media, outside] = (await tabs(context, 3)) as [Page, Page, Page];
    await openIn(drafts, 'drafts');
    await openIn(media, 'media');
    await openIn(outside, undefined);
    for (const [page, value] of [
      [drafts, 'drafts'],
      [media, 'media'],
      [outside, 'outside'],
    ] as const)
      await write(page, value);
    await removeBucket(outside, 'drafts');
    await drafts.evaluate(() => window.db.set('in', 'lost').catch(() => undefined));
    await expect.poll(() => drafts.evaluate(() => window.events)).toEqual(['close KV_EVICTED']);
    expect(await openIn(drafts, 'drafts', 'opfs', false)).toBe('KV_NOT_FOUND');
    expect(await drafts.evaluate(() => navigator.storageBuckets.keys())).toEqual(['media']);
    expect(await openIn(drafts, 'drafts')).toBe('opfs drafts');
    expect(await read(drafts)).toBe(undefined);
    expect([await read(media), await read(outside)]).toEqual(['media', 'outside']);
    await write(media, 'goes on');
    await media.reload();
    expect(await openIn(media, 'media')).toBe('opfs media');
    expect(await read(media)).toBe('goes on');
  });

  test('the files are in the bucket, which has the options that it was created with', async ({ profile }) => {
    const context = await profile.launch();
    const [page] = (await tabs(context, 1)) as [Page];
    const expires = Date.now() + 86_400_000;
    expect(
      await openIn(page, { name: 'drafts', persisted: false, durability: 'strict', quota: 20 << 20, expires }),
    ).toBe('opfs drafts');
    await write(page, 'drafts');
    const found = await page.evaluate(async () => {
      const bucket = await navigator.storageBuckets.open('drafts');
      const root = await (await bucket.getDirectory()).getDirectoryHandle('mangrove');
      const directory = await root.getDirectoryHandle('notes');
      const names: string[] = [];
      for await (const name of (directory as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
      const outside: string[] = [];
      const all = (await navigator.storage.getDirectory()) as unknown as { keys(): AsyncIterable<string> };
      for await (const name of all.keys()) outside.push(name);
      return [names.sort(), outside, (await bucket.estimate()).quota, Math.round((await bucket.expires()) ?? 0)];
    });
    expect(found.slice(0, 3)).toEqual([['data', 'log'], [], 20 << 20]);
    expect(Math.abs((found[3] as number) - expires)).toBeLessThan(1000);
    // Its quota is its own. Chromium counts files towards it, but refuses only what is too much for IndexedDB: what is
    // there stays.
    const outcome = await page.evaluate(async () => {
      const db = await window.mangrove.open('notes', { bucket: 'drafts', storage: 'indexeddb' });
      await db.set('in', 'indexeddb');
      let code = 'none';
      try {
        for (let at = 0; at < 1000; at++) await db.set(at, crypto.getRandomValues(new Uint8Array(50_000)));
      } catch (error) {
        code = (error as { code: string }).code;
      }
      await db.close().catch(() => undefined);
      const again = await window.mangrove.open('notes', { bucket: 'drafts', storage: 'indexeddb', create: false });
      return [code, await again.get('in'), await window.db.get('in')];
    });
    expect(outcome).toEqual(['KV_QUOTA_EXCEEDED', 'indexeddb', 'drafts']);
  });

  test('a database opens in a bucket in the same thread, beside one outside', async ({ profile }) => {
    const context = await profile.launch();
    const [page] = (await tabs(context, 1)) as [Page];
    const found = await page.evaluate(async () => {
      const options = { thread: 'same', storage: 'indexeddb' } as const;
      const first = await window.mangrove.open('notes', { ...options, bucket: 'drafts' });
      const second = await window.mangrove.open('notes', { ...options, lockTimeout: 0 });
      await first.set('in', 'drafts');
      await second.set('in', 'outside');
      const values = [await first.get('in'), await second.get('in')];
      const locked = await window.mangrove
        .open('notes', { ...options, bucket: 'drafts', lockTimeout: 0 })
        .catch((error: { code: string }) => error.code);
      await first.close();
      await second.close();
      return [values, locked];
    });
    expect(found).toEqual([['drafts', 'outside'], 'KV_LOCKED']);
  });

  test('wrong buckets are refused', async ({ profile }) => {
    const context = await profile.launch();
    const [page] = (await tabs(context, 1)) as [Page];
    const codes = await page.evaluate(async (address) => {
      const { open, destroy, list, restore } = window.mangrove;
      const wrong: unknown[] = [
        '',
        'Drafts',
        'a b',
        '_a',
        'a'.repeat(65),
        5,
        null,
        {},
        { name: 5 },
        { name: 'a', nam: 1 },
      ];
      wrong.push({ name: 'a', persisted: 1 }, { name: 'a', durability: 'none' }, { name: 'a', quota: 0 });
      wrong.push({ name: 'a', quota: 1.5 }, { name: 'a', expires: 5 }, { name: 'a', expires: 'tomorrow' });
      const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
        promise.then(
          () => 'none',
          (error: { code: unknown }) => error.code,
        );
      const codes = await Promise.all(wrong.map((bucket) => codeOf(open('notes', { bucket } as object))));
      for (const bucket of ['Drafts', 5]) {
        codes.push(await codeOf(destroy('notes', { bucket } as object)), await codeOf(list({ bucket } as object)));
        codes.push(await codeOf(list({ bucket, storage: 'indexeddb' } as object)));
        codes.push(await codeOf(restore('notes', new Uint8Array(1), { bucket } as object)));
      }
      codes.push(await codeOf(open('notes', { bucket: 'a', storage: 'memory' })));
      codes.push(
        await codeOf(open(address, { bucket: 'a', storage: { open() {}, list() {}, remove() {} } } as object)),
      );
      return [codes, await navigator.storageBuckets.keys()];
    }, HARNESS_URL);
    expect(codes).toEqual([Array(26).fill('KV_INVALID_ARGUMENT'), []]);
  });
});
