// The inspector on a page of its own: collections with indexes.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

interface Note {
  readonly tags: string[];
  readonly due: number;
}

type Db = Awaited<ReturnType<typeof window.mangrove.open>>;

test('shows the indexes of a collection, and its entries in their order', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  await page.goto(HARNESS_URL);
  await page.evaluate(async () => {
    const writer = await window.mangrove.open('inspected');
    const bare = writer.collection<number, Note>('notes');
    await bare.setMany(
      Array.from({ length: 120 }, (_, id) => [id, { tags: [`tag ${id % 3}`, `all`], due: id % 5 }] as const),
    );
    const notes = writer.collection<number, Note>('notes', {
      indexes: {
        byTag: { key: ({ tags }) => tags, multi: true, version: 4 },
        // The entries do not allow it, so it is never complete.
        byDue: { key: ({ due }) => due, unique: true },
      },
    });
    await notes.buildIndexes().catch(() => undefined);
    await writer.set('plain', 1);
    // The database is another handle than the one with the functions.
    const db = await window.mangrove.open('inspected');
    (await window.loadInspector()).mountInspector(document.body, db, { refreshMs: 50 });
    Object.assign(window, { writer, notes, db });
  });
  const names = page.locator('.collections .name');
  await expect(names).toHaveText(['(default)', 'notes']);
  const collection = page.getByRole('button', { name: /^notes/ });
  await expect(collection).toContainText('2 indexes');
  await collection.click();
  const indexes = page.getByRole('table', { name: 'Indexes' });
  await expect(indexes.getByRole('row')).toHaveText([
    /Index.*Entries.*State/,
    /byTag.*version 4, multi.*240.*complete/,
    /byDue.*version 1, unique.*0.*0 of 120, 0 %/,
  ]);
  await expect(indexes.getByRole('progressbar', { name: 'Build of byDue' })).toBeVisible();
  await expect(indexes.getByRole('progressbar', { name: 'Build of byTag' })).toBeHidden();

  const order = page.getByLabel('Order');
  await expect(order.getByRole('option')).toHaveText(['by key', 'by index byTag', 'by index byDue']);
  await order.selectOption('by index byTag');
  const table = page.getByRole('region', { name: 'Entries' });
  const rows = table.locator('tbody tr');
  await expect(page.locator('.pager')).toContainText('to 50 of 240');
  await expect(table.getByRole('columnheader').first()).toHaveText('Index key');
  await expect(rows.first().locator('.index-key')).toHaveText('all');
  await page.getByLabel('Begins with').fill('tag 2');
  await expect(page.locator('.pager')).toContainText('to 40 of 40');
  await expect(rows.first().locator('.row-button')).toHaveText('2');
  await page.getByLabel('Backwards').check();
  await expect(rows.first().locator('.row-button')).toHaveText('119');
  await rows.first().locator('.row-button').click();
  await expect(table.locator('.tree').first()).toContainText('due4');
  // What is written appears, and the program that declares the indexes writes on.
  await page.evaluate(() => (window as unknown as { notes: ReturnType<Db['collection']> }).notes.dropIndex('byDue'));
  await page.evaluate(async () => {
    const { writer } = window as unknown as { writer: Db };
    const notes = writer.collection<number, Note>('notes', {
      indexes: { byTag: { key: ({ tags }) => tags, multi: true, version: 4 } },
    });
    await notes.set(500, { tags: ['tag 2'], due: 1 });
  });
  await expect(rows.first().locator('.row-button')).toHaveText('500');
  await expect(indexes.getByRole('row')).toHaveText([/Index/, /byTag.*version 4, multi.*241.*complete/]);
  await page.getByLabel('Begins with').fill('');
  await order.selectOption('by key');
  await expect(page.locator('.pager')).toContainText('to 50 of 121');
  await expect(table.getByRole('columnheader').first()).toHaveText('Key');
  // The name of an index chooses its order, and a second time that of keys.
  await indexes.getByRole('button', { name: 'byTag' }).click();
  await expect(order).toHaveValue('byTag');
  await expect(page.locator('.pager')).toContainText('to 50 of 241');
  await indexes.getByRole('button', { name: 'byTag' }).click();
  await expect(order).toHaveValue('');
  await expect(page.locator('.pager')).toContainText('to 50 of 121');

  await page.getByRole('button', { name: /default/ }).click();
  await expect(rows.locator('.row-button')).toHaveText(['plain']);
  await expect(order).toBeHidden();
  await expect(indexes).toBeHidden();
  expect(problems).toEqual([]);
});

test('an index that is being built is not read, and says so', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  await page.evaluate(async () => {
    const db = await window.mangrove.open('inspected', { storage: 'memory' });
    await db.collection<number, number>('numbers').setMany([
      [1, 7],
      [2, 7],
    ]);
    const numbers = db.collection<number, number>('numbers', {
      indexes: { byValue: { key: (value) => value, unique: true } },
    });
    await numbers.buildIndexes().catch(() => undefined);
    (await window.loadInspector()).mountInspector(document.body, db, { refreshMs: 50 });
    Object.assign(window, { numbers });
  });
  await page.getByLabel('Order').selectOption('by index byValue');
  const body = page.getByRole('region', { name: 'Entries' }).locator('tbody');
  await expect(body).toHaveText('This index cannot be read before it is complete.');
  await page.evaluate(async () => {
    const { numbers } = window as unknown as { numbers: ReturnType<Db['collection']> };
    await numbers.set(2, 8);
    await numbers.buildIndexes();
  });
  await expect(body.locator('.index-key')).toHaveText(['7', '8']);
});

test('ranges of an index with compound keys are typed as text or as arrays', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  await page.evaluate(async () => {
    const db = await window.mangrove.open('inspected', { storage: 'memory' });
    interface City {
      readonly country: string;
      readonly population: number | undefined;
    }
    const cities = db.collection<string, City>('cities', {
      indexes: {
        byCountryPopulation: {
          key: ({ country, population }) => (population === undefined ? undefined : [country, population]),
        },
      },
    });
    await cities.setMany([
      ['Quito', { country: 'EC', population: 2_781_641 }],
      ['Cuenca', { country: 'EC', population: 636_996 }],
      ['Lima', { country: 'PE', population: 7_737_002 }],
      ['Nuuk', { country: 'GL', population: undefined }],
      ['Tallinn', { country: 'EE', population: 394_024 }],
    ]);
    (await window.loadInspector()).mountInspector(document.body, db, { refreshMs: 50 });
  });
  await expect(page.getByRole('table', { name: 'Indexes' })).toContainText('leaves out 1 entry');
  await page.getByLabel('Order').selectOption('by index byCountryPopulation');
  const rows = page.getByRole('region', { name: 'Entries' }).locator('tbody tr');
  const keys = rows.locator('.row-button');
  await expect(keys).toHaveText(['Cuenca', 'Quito', 'Tallinn', 'Lima']);
  await expect(rows.first().locator('.index-key')).toHaveText('["EC", 636996]');
  const [prefix, from, to] = [
    page.getByLabel('Begins with'),
    page.getByRole('textbox', { name: 'From' }),
    page.getByRole('textbox', { name: 'To' }),
  ];
  await prefix.fill('EC');
  await expect(keys).toHaveText(['Cuenca', 'Quito']);
  await prefix.fill('E');
  await expect(keys).toHaveText(['Cuenca', 'Quito', 'Tallinn']);
  await prefix.fill('["EC"]');
  await from.fill('["EC", 700000]');
  await expect(keys).toHaveText(['Quito']);
  await prefix.fill('');
  await page.getByLabel('Backwards').check();
  await expect(keys).toHaveText(['Lima', 'Tallinn', 'Quito']);
  await to.fill('EE');
  await expect(keys).toHaveText(['Tallinn', 'Quito']);
  await expect(page.locator('.pager')).toContainText('to 2 of 2');
});
