// Indexes in a browser, where their code is loaded at the first declaration, and by the leader of a
// database that has them.
import type { Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

interface Note {
  readonly author: string;
}

type Db = Awaited<ReturnType<typeof window.mangrove.open>>;

interface Kept {
  db: Db;
  notes: ReturnType<Db['collection']>;
}

/** Opens a database with an index of `notes` by author, as `window.db` and `window.notes`. */
async function openNotes(page: Page, storage: 'opfs' | 'indexeddb' | 'memory' = 'opfs'): Promise<void> {
  await page.goto(HARNESS_URL);
  await page.evaluate(async (storage) => {
    const db = await window.mangrove.open('indexed', { storage });
    const notes = db.collection<number, Note>('notes', {
      indexes: { byAuthor: { key: ({ author }) => author, unique: true } },
    });
    Object.assign(window, { db, notes });
  }, storage);
}

const add = (page: Page, id: number, author: string): Promise<unknown> =>
  page.evaluate(
    async ([id, author]) => {
      const { notes } = window as unknown as Kept;
      return notes.set(id, { author }).then(
        () => 'stored',
        ({ code }: { code: string }) => code,
      );
    },
    [id, author] as const,
  );

const authors = (page: Page): Promise<unknown> =>
  page.evaluate(async () => {
    const { db, notes } = window as unknown as Kept;
    const { problems } = await db.verify();
    return [
      await notes
        .index('byAuthor')
        .entries()
        .map(({ indexKey, key }) => `${String(indexKey)} ${String(key)}`)
        .toArray(),
      problems,
    ];
  });

for (const storage of ['opfs', 'indexeddb', 'memory'] as const) {
  test(`the first writes to a collection with indexes wait for their code: ${storage}`, async ({ profile }) => {
    const context = await profile.launch();
    await context.route(/mangrove_lazy_bg/, async (route) => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      await route.continue();
    });
    const page = await context.newPage();
    await openNotes(page, storage);
    const found = await page.evaluate(async () => {
      const { db, notes } = window as unknown as Kept;
      const index = notes.index('byAuthor');
      // All in one tick: no code for indexes is loaded yet, and the transaction begins before they
      // are declared.
      const reading = index.entries();
      reading.seek('b');
      const calls = [
        notes.set(1, { author: 'b' }),
        notes.setMany([
          [2, { author: 'a' }],
          [3, { author: 'c' }],
        ]),
        db.transaction((tx) => tx.collection(notes).set(4, { author: 'd' })),
        index.count(),
      ];
      await Promise.all(calls);
      await reading.toArray();
      return [await index.keys().toArray(), await index.count({ gte: 'c' }), (await index.last())?.value];
    });
    expect(found).toEqual([[2, 1, 3, 4], 2, { author: 'd' }]);
    expect(await add(page, 5, 'a')).toBe('KV_UNIQUE');
    expect(await authors(page)).toEqual([['a 2', 'b 1', 'c 3', 'd 4'], []]);
  });
}

test('tabs keep an index right together, also when the leader changes', async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await context.newPage(), await context.newPage()];
  await openNotes(first);
  expect(await add(first, 1, 'ann')).toBe('stored');
  await openNotes(second);
  expect(await add(second, 2, 'bob')).toBe('stored');
  expect(await add(second, 3, 'ann')).toBe('KV_UNIQUE');
  const third = await context.newPage();
  await third.goto(HARNESS_URL);
  await first.close();
  // The next leader loads the code before it takes the write.
  expect(await add(second, 4, 'abe')).toBe('stored');
  expect(await authors(second)).toEqual([['abe 4', 'ann 1', 'bob 2'], []]);
  // A page that declares nothing can delete, and cannot write.
  const bare = await third.evaluate(async () => {
    const db = await window.mangrove.open('indexed');
    const notes = db.collection<number, Note>('notes');
    const code = await notes.set(9, { author: 'x' }).then(
      () => 'stored',
      (error: { code: string }) => error.code,
    );
    return [code, await notes.delete(2)];
  });
  expect(bare).toEqual(['KV_INDEX_MISMATCH', true]);
  expect(await authors(second)).toEqual([['abe 4', 'ann 1'], []]);
});

test('iterators over an index continue in the next leader if nothing was committed since', async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await context.newPage(), await context.newPage()];
  await openNotes(first);
  await first.evaluate(() => {
    const { notes } = window as unknown as Kept;
    return notes.setMany(
      Array.from({ length: 1000 }, (_, id) => [id, { author: `author ${String(id).padStart(4, '0')}` }] as const),
    );
  });
  await openNotes(second);
  // Chunks grow, and one is read ahead: most entries are still to come.
  await second.evaluate(async () => {
    const { db, notes } = window as unknown as Kept;
    const snapshot = db.snapshot();
    const iterators = [
      notes.index('byAuthor').keys(),
      notes
        .index('byAuthor')
        .entries({ reverse: true, limit: 900, offset: 10 })
        .map(({ key }) => key),
      snapshot
        .collection(notes)
        .index('byAuthor')
        .entries({ gte: 'author 0100', meta: true })
        .map(({ key }) => key),
    ];
    const begun = await Promise.all(iterators.map((iterator) => iterator.nextMany(5)));
    Object.assign(window, { begun, iterators, snapshot });
  });
  await first.close();
  const found = await second.evaluate(async () => {
    const { begun, iterators } = window as unknown as {
      begun: number[][];
      iterators: { toArray(): Promise<number[]> }[];
    };
    return Promise.all(iterators.map(async (iterator, at) => [...begun[at]!, ...(await iterator.toArray())]));
  });
  const all = Array.from({ length: 1000 }, (_, id) => id);
  expect(found).toEqual([all, [...all].reverse().slice(10, 910), all.slice(100)]);
  // Later ones read the state of then.
  expect(await add(second, 1000, 'author 0000a')).toBe('stored');
  expect(
    await second.evaluate(async () => (await (window as unknown as Kept).notes.index('byAuthor').at(1))?.key),
  ).toBe(1000);
});

test('an index of a full collection is built by the tabs that declare it', async ({ profile }) => {
  const context = await profile.launch();
  const [first, second] = [await context.newPage(), await context.newPage()];
  await first.goto(HARNESS_URL);
  await first.evaluate(async () => {
    const db = await window.mangrove.open('indexed');
    const notes = db.collection<number, Note>('notes');
    await notes.setMany(Array.from({ length: 6000 }, (_, id) => [id, { author: `author ${id}` }] as const));
    await db.close();
  });
  await Promise.all([openNotes(first), openNotes(second)]);
  const build = (page: Page, id: number): Promise<unknown> =>
    page.evaluate(async (id) => {
      const { notes } = window as unknown as Kept;
      const built = notes.buildIndexes({ onProgress: () => undefined });
      await notes.set(id, { author: `changed ${id}` });
      await built;
      return notes.index('byAuthor').count();
    }, id);
  expect(await Promise.all([build(first, 17), build(second, 5018)])).toEqual([6000, 6000]);
  const found = await second.evaluate(async () => {
    const { db, notes } = window as unknown as Kept;
    return [await notes.index('byAuthor').count({ prefix: 'changed' }), (await db.verify()).problems];
  });
  expect(found).toEqual([2, []]);
});

test('a database with indexes opens where their code cannot be loaded, and refuses writes only', async ({
  profile,
}) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await openNotes(page);
  expect(await add(page, 1, 'ann')).toBe('stored');
  await page.evaluate(() => (window as unknown as Kept).db.close());
  await context.route(/mangrove_lazy_bg/, (route) => route.abort());
  await openNotes(page);
  const found = await page.evaluate(async () => {
    const { notes } = window as unknown as Kept;
    const { code, retryable } = (await notes.set(2, { author: 'bob' }).catch((error: unknown) => error)) as {
      code: string;
      retryable: boolean;
    };
    return [await notes.get(1), code, retryable];
  });
  expect(found).toEqual([{ author: 'ann' }, 'KV_IO', true]);
  await context.unroute(/mangrove_lazy_bg/);
  await page.evaluate(() => (window as unknown as Kept).db.close());
  await openNotes(page);
  expect(await add(page, 2, 'bob')).toBe('stored');
  expect(await authors(page)).toEqual([['ann 1', 'bob 2'], []]);
});
