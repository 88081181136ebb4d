// The example of @mangrove-kv/tanstack-db: what it shows is what a computation without a database gives, in two tabs and after a reload.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from '@playwright/test';
import { build } from 'vite';
import {
  COUNTRIES,
  customerOf,
  lastDayOf,
  orderOf,
  productOf,
  sizesOf,
} from '../../bindings-js/adapters/tanstack-db/example/src/data.ts';
import type { Order } from '../../bindings-js/adapters/tanstack-db/example/src/data.ts';
import { serve } from '../http.ts';
import { expect, test } from '../persistent.ts';

const ROOT = fileURLToPath(new URL('../../bindings-js/adapters/tanstack-db/example', import.meta.url));
const ROWS = 3000;
const PAGE_SIZE = 25;
const LAST_DAY = lastDayOf(sizesOf(ROWS));

let directory: string;
test.beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'mangrove-tanstack-'));
  await build({
    root: ROOT,
    configFile: join(ROOT, 'vite.config.ts'),
    logLevel: 'error',
    build: { outDir: directory, emptyOutDir: true },
  });
});
test.afterAll(() => rm(directory, { recursive: true, force: true }));

const money = (cents: number): string => (cents / 100).toFixed(2);

/** The orders of a database of this test, by their ids. */
function allOrders(): Map<number, Order> {
  const sizes = sizesOf(ROWS);
  return new Map(Array.from({ length: sizes.orders }, (_, id) => [id, orderOf(id, sizes)]));
}

/** The texts of a page of the newest orders. */
function newestOf(orders: ReadonlyMap<number, Order>, page: number): string[] {
  const sorted = [...orders.values()].sort((one, other) => other.placedAt - one.placedAt);
  return sorted.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE).map(({ customer, product, quantity, amount }) => {
    const { name, country } = customerOf(customer);
    return [name, country, productOf(product).name, quantity, money(amount)].join(' ');
  });
}

/** The texts of the countries on a day. */
function countriesOf(orders: ReadonlyMap<number, Order>, day: number): string[] {
  return COUNTRIES.flatMap((country) => {
    const own = [...orders.values()].filter(
      (order) => order.day === day && customerOf(order.customer).country === country,
    );
    const sum = own.reduce((total, { amount }) => total + amount, 0);
    return own.length === 0 ? [] : [`${country} ${own.length} ${money(sum)}`];
  });
}

const textsOf = (page: Page, view: string, columns: readonly number[]): Promise<string[]> =>
  page.evaluate(
    ([id, wanted]) =>
      [...document.querySelectorAll(`#${id} tr`)].map((row) =>
        wanted.map((column) => row.children[column]?.textContent).join(' '),
      ),
    [view, columns] as const,
  );

async function expectShown(page: Page, orders: ReadonlyMap<number, Order>, at = 0): Promise<void> {
  await expect.poll(() => textsOf(page, 'newest', [1, 2, 3, 4, 5])).toEqual(newestOf(orders, at));
  await expect.poll(() => textsOf(page, 'countries', [0, 1, 2])).toEqual(countriesOf(orders, LAST_DAY));
}

async function fillIn(page: Page, address: string): Promise<void> {
  await page.goto(address);
  await page.click('#fill');
  await page.waitForSelector('main:not([hidden])');
}

test('two tabs show the joins of what is stored, and what either changes', async ({ profile }) => {
  await using server = await serve(directory);
  const address = `${server.url}?storage=mangrove&rows=${ROWS}`;
  const context = await profile.launch();
  const first = await context.newPage();
  await fillIn(first, address);
  const orders = allOrders();
  await expectShown(first, orders);

  const second = await context.newPage();
  await second.goto(address);
  await expectShown(second, orders);
  // The last day, and the rows around the page.
  const loaded = Number(/^[\d,]+/.exec((await second.textContent('#loaded'))!)![0].replace(',', ''));
  expect(loaded).toBeGreaterThanOrEqual([...orders.values()].filter(({ day }) => day === LAST_DAY).length);
  expect(loaded).toBeLessThan(1500);

  const edited = [...orders.values()].find(
    ({ placedAt }) => placedAt === Math.max(...[...orders.values()].map((each) => each.placedAt)),
  )!;
  await first.click(`#newest tr[data-id="${edited.id}"] button`);
  edited.quantity += 1;
  edited.amount += productOf(edited.product).price;
  await expectShown(first, orders);
  await expectShown(second, orders);

  await second.click('#order');
  await expect.poll(() => second.getAttribute('#newest tr', 'data-id')).not.toBe(String(edited.id));
  const added = Number(await second.getAttribute('#newest tr', 'data-id'));
  await expect.poll(() => first.getAttribute('#newest tr', 'data-id')).toBe(String(added));
  const [text] = await textsOf(first, 'newest', [1, 2, 3, 4, 5]);
  const [, customer, product] = /^Customer (\d+) .* Product (\d+) 1 /.exec(text!)!.map(Number);
  orders.set(added, {
    id: added,
    customer: customer!,
    product: product!,
    quantity: 1,
    amount: productOf(product!).price,
    placedAt: added,
    day: Number.MAX_SAFE_INTEGER,
  });
  for (const page of [first, second]) await expectShown(page, orders);

  await second.click('#older');
  await expectShown(second, orders, 1);
  await first.close();
  await second.reload();
  await expectShown(second, orders);
  await context.close();
});
