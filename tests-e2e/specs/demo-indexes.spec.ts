// The demo's searches through declared indexes, against a plain computation on the data set.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Locator, Page } from '@playwright/test';
import { keyCodecs, open } from 'mangrove-kv';
import { ALL, CityStore } from '../../demo-web/src/cities.ts';
import type { CityRow } from '../../demo-web/tools/cities.ts';
import { CITIES, hits, importCities } from '../demo.ts';
import { expect as quick, test } from '../persistent.ts';

/** A slow browser on a busy machine reads a window of the list for seconds. */
const expect = quick.configure({ timeout: 30_000 });

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const ofCountry = (country: string): CityRow[] => CITIES.filter((city) => city.country === country);
const byName = (cities: readonly CityRow[]): string[] =>
  [...cities].sort((a, b) => compare(a.name, b.name) || a.id - b.id).map(({ name }) => name);
/** The largest first, and of two cities of the same size the one with the larger id. */
const byPopulation = (cities: readonly CityRow[], least = 0): [name: string, population: string][] =>
  cities
    .filter(({ population }) => population !== undefined && population >= least)
    .sort((a, b) => b.population! - a.population! || b.id - a.id)
    .map(({ name, population }) => [name, population!.toLocaleString('en')]);

const row = (page: Page, position: number) => page.locator(`.row[aria-rowindex="${position}"]`);

/** Name and population in the rows from the first position on. */
async function shown(page: Page, count: number): Promise<[name: string, population: string][]> {
  const cells: [string, string][] = [];
  for (let position = 1; position <= count; position++) {
    const one = row(page, position);
    await expect(one).not.toHaveClass(/loading/);
    cells.push([await one.locator(':nth-child(2)').innerText(), await one.locator(':nth-child(4)').innerText()]);
  }
  return cells;
}

const shownNames = async (page: Page, count: number): Promise<string[]> =>
  (await shown(page, count)).map(([name]) => name);

/** Opens the editor from a row, once the row shows this city: until then a click opens another one. */
async function edit(page: Page, position: number, name: string): Promise<void> {
  await expect(row(page, position)).not.toHaveClass(/loading/);
  await expect(row(page, position).locator(':nth-child(2)')).toHaveText(name);
  await row(page, position).click();
}

/** Replaces the content of a number field, to which `fill` of Firefox appends. */
async function fillNumber(field: Locator, text: string): Promise<void> {
  await field.evaluate((input: HTMLInputElement) => {
    input.value = '';
    input.dispatchEvent(new Event('input', { bubbles: true }));
  });
  if (text !== '') await field.fill(text);
}

async function save(page: Page, fields: Readonly<Record<string, string>>): Promise<void> {
  for (const [field, value] of Object.entries(fields)) {
    const input = page.getByTestId(`edit-${field}`);
    await (field === 'population' ? fillNumber(input, value) : input.fill(value));
  }
  await page.getByTestId('edit-save').click();
  await expect(page.getByTestId('edit-save')).toBeHidden();
}

test('finds cities by country, and by country and population', async ({ profile }) => {
  test.slow();
  const context = await profile.launch();
  const page = await context.newPage();
  await importCities(page);
  const [label, index] = [page.locator('#hits-label'), page.locator('#hits-index')];
  await expect(index).toHaveText('byName');
  expect(await shownNames(page, 8)).toEqual(byName(CITIES).slice(0, 8));

  const [search, country, order, least] = [
    page.getByTestId('search'),
    page.getByTestId('country'),
    page.getByTestId('order'),
    page.getByTestId('least'),
  ];
  for (const code of ['EC', 'JP', 'US', 'VA']) {
    await country.fill(code.toLowerCase());
    await expect.poll(() => hits(page)).toBe(ofCountry(code).length);
    await expect(index).toHaveText('byCountry');
    const expected = byName(ofCountry(code)).slice(0, 8);
    await expect.poll(() => shownNames(page, expected.length)).toEqual(expected);
  }
  await country.fill('US');
  await search.fill('San');
  const san = byName(ofCountry('US').filter(({ name }) => name.startsWith('San')));
  await expect.poll(() => hits(page)).toBe(san.length);
  await expect.poll(() => shownNames(page, 8)).toEqual(san.slice(0, 8));
  await search.fill('Nowhere near');
  await expect.poll(() => hits(page)).toBe(0);

  await order.selectOption('population');
  await expect(search).toBeHidden();
  for (const code of ['US', 'EC', 'IN', 'NZ']) {
    await country.fill(code);
    for (const most of [0, 1, 1000, 100_000, 1_000_000, 100_000_000]) {
      await fillNumber(least, most === 0 ? '' : String(most));
      const expected = byPopulation(ofCountry(code), most);
      await expect.poll(() => hits(page), `${code} from ${most}`).toBe(expected.length);
      await expect
        .poll(() => shown(page, Math.min(expected.length, 6)), `${code} from ${most}`)
        .toEqual(expected.slice(0, 6));
    }
  }
  await expect(index).toHaveText('byCountryPopulation');

  // The last position, too.
  await fillNumber(least, '');
  await country.fill('IN');
  const india = byPopulation(ofCountry('IN'));
  await expect.poll(() => hits(page)).toBe(india.length);
  await page.getByTestId('jump').fill(String(india.length));
  await page.getByTestId('jump').press('Enter');
  await expect(row(page, india.length)).toContainText(india.at(-1)![0]);
  await expect(row(page, india.length).locator(':nth-child(4)')).toHaveText(india.at(-1)![1]);

  // Half a country is none, and the way back to all cities is the other order.
  await country.fill('');
  await expect.poll(() => hits(page)).toBe(0);
  await expect(label).toContainText('type the two letters of a country');
  await order.selectOption('name');
  await search.fill('');
  await expect.poll(() => hits(page)).toBe(CITIES.length);
  // The order by population begins with the country of the city in focus.
  await search.fill('Quito');
  await expect(row(page, 1).locator(':nth-child(2)')).toHaveText('Quito');
  await expect(row(page, 1).locator(':nth-child(3)')).toHaveText('EC');
  await order.selectOption('population');
  await expect(country).toHaveValue('EC');
  await expect.poll(() => hits(page)).toBe(byPopulation(ofCountry('EC')).length);
});

test('edits, undo and reloads keep the indexes right', async ({ profile }) => {
  test.slow();
  const context = await profile.launch();
  const page = await context.newPage();
  await importCities(page);
  const [country, order, least, undo] = [
    page.getByTestId('country'),
    page.getByTestId('order'),
    page.getByTestId('least'),
    page.getByTestId('undo-last'),
  ];
  await country.fill('EC');
  await order.selectOption('population');
  await fillNumber(least, '100000');
  const all = ofCountry('EC');
  const large = byPopulation(all, 100_000);
  await expect.poll(() => hits(page)).toBe(large.length);

  // Out of the range, and back.
  await edit(page, 1, large[0]![0]);
  await save(page, { population: '99999' });
  await expect.poll(() => hits(page)).toBe(large.length - 1);
  await expect.poll(() => shown(page, 2)).toEqual(large.slice(1, 3));
  await undo.click();
  await expect.poll(() => hits(page)).toBe(large.length);
  await expect.poll(() => shown(page, 2)).toEqual(large.slice(0, 2));
  // To another place in it.
  await edit(page, 3, large[2]![0]);
  await save(page, { population: '90000000' });
  await expect.poll(() => shown(page, 3)).toEqual([[large[2]![0], '90,000,000'], large[0], large[1]]);
  await undo.click();
  await expect.poll(() => shown(page, 3)).toEqual(large.slice(0, 3));
  // An unknown population leaves the city in the country's other index only.
  await edit(page, 2, large[1]![0]);
  await save(page, { population: '' });
  await expect.poll(() => hits(page)).toBe(large.length - 1);
  await order.selectOption('name');
  await expect.poll(() => hits(page)).toBe(all.length);
  await order.selectOption('population');
  await expect.poll(() => hits(page)).toBe(large.length - 1);
  // Another country.
  await edit(page, 1, large[0]![0]);
  await save(page, { country: 'pe' });
  await expect.poll(() => hits(page)).toBe(large.length - 2);
  await country.fill('PE');
  const peru = byPopulation(ofCountry('PE'), 100_000);
  await expect.poll(() => hits(page)).toBe(peru.length + 1);
  // Deleted, and added.
  await edit(page, 1, peru[0]![0]);
  await page.getByTestId('edit-delete').click();
  await expect.poll(() => hits(page)).toBe(peru.length);
  await page.getByTestId('add').click();
  await save(page, { name: 'Mangrove', country: 'pe', population: '100000', lat: '-3.5', lng: '-80.4' });
  await expect.poll(() => hits(page)).toBe(peru.length + 1);
  await page.getByTestId('add').click();
  await save(page, { name: 'Mangrove', country: 'pe', population: '100001', lat: '-3.5', lng: '-80.4' });
  await expect.poll(() => hits(page)).toBe(peru.length + 2);

  await page.reload();
  await expect.poll(() => hits(page)).toBe(CITIES.length + 1);
  await page.getByTestId('search').fill('Mangrove');
  await country.fill('PE');
  await expect.poll(() => hits(page)).toBe(2);
  await order.selectOption('population');
  await fillNumber(least, '100000');
  await expect.poll(() => hits(page)).toBe(peru.length + 2);
  await country.fill('EC');
  await expect.poll(() => hits(page)).toBe(large.length - 2);
  // Verification compares the entries of indexes with the cities.
  await page.getByRole('link', { name: 'Inspect' }).click();
  const inspector = page.getByTestId('inspector');
  await inspector.getByRole('tab', { name: 'Maintenance' }).click();
  await inspector.getByRole('button', { name: 'Verify' }).click();
  await expect(inspector.locator('.outcome').first()).toContainText('Nothing is damaged', { timeout: 60_000 });
});

test('a database from before the indexes makes room for a new import', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-demo-'));
  try {
    const before = await open(directory);
    const key = keyCodecs.tuple<[string, string, number]>();
    await before
      .collection('cities', { key })
      .set(['Quito', 'EC', 0], { name: 'Quito', country: 'EC', admin1: '18', lat: -0.2, lng: -78.5 });
    await before.collection('by country', { key }).set(['EC', 'Quito', 0], true);
    await before.set('imported', { cities: 1 });
    await before.close();
    for (const id of [7, 8]) {
      const store = await CityStore.open(directory, 1000);
      expect(await store.isImported()).toBe(id === 8);
      expect(await store.count(ALL)).toBe(id - 7);
      expect(await store.database.collections()).toEqual(['cities']);
      await store.addMany([
        { id, city: { name: 'Quito', country: 'EC', admin1: '18', lat: -0.2, lng: -78.5, population: id } },
      ]);
      await store.finishImport(1);
      expect((await store.page({ by: 'population', country: 'EC', least: 0 }, 0, 9)).map((entry) => entry.id)).toEqual(
        id === 7 ? [7] : [8, 7],
      );
      await store.database.close();
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});
