// The page: fills the collections once, then shows two live views of them, which every tab can edit.
import { customerOf, lastDayOf, orderNow, orderOf, productOf, sizesOf } from './data.ts';
import type { Sizes } from './data.ts';
import { STORAGES } from './storage.ts';
import type { Storage } from './storage.ts';
import { collectionsOf, dayByCountry, newestOrders } from './views.ts';
import type { Collections, CountryRow, NewestRow, View } from './views.ts';

/** Rows of a transaction while the collections are filled. */
const BATCH = 5000;

const parameters = new URLSearchParams(location.search);
const kind = parameters.get('storage') ?? 'mangrove';
/** Where it is noted how many rows a storage has, and the milliseconds in which they were stored. */
const FILLED = `tanstack-example:${kind}`;

function element<K extends keyof HTMLElementTagNameMap = 'output'>(id: string): HTMLElementTagNameMap[K] {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element ${id}`);
  return found as HTMLElementTagNameMap[K];
}

const status = element('status');
const say = (text: string): void => {
  status.textContent = text;
};
const sinceStart = (): string => `${Math.round(performance.now()).toLocaleString('en')} ms after the start of the page`;
const money = (cents: number): string => (cents / 100).toFixed(2);

function cell(text: string, isNumber = false): HTMLTableCellElement {
  const made = document.createElement('td');
  made.textContent = text;
  if (isNumber) made.className = 'number';
  return made;
}

async function fill({ orders, customers, products }: Collections, sizes: Sizes): Promise<void> {
  const start = performance.now();
  const total = sizes.orders + sizes.customers + sizes.products;
  let done = 0;
  const insert = async <T extends object>(
    collection: { insert(rows: T[]): { isPersisted: { promise: Promise<unknown> } } },
    rows: number,
    rowOf: (id: number) => T,
  ): Promise<void> => {
    for (let first = 0; first < rows; first += BATCH) {
      const batch = Array.from({ length: Math.min(BATCH, rows - first) }, (_, n) => rowOf(first + n));
      await collection.insert(batch).isPersisted.promise;
      done += batch.length;
      say(`${done.toLocaleString('en')} of ${total.toLocaleString('en')} rows are stored`);
    }
  };
  await insert(products, sizes.products, productOf);
  await insert(customers, sizes.customers, customerOf);
  await insert(orders, sizes.orders, (id) => orderOf(id, sizes));
  localStorage.setItem(FILLED, JSON.stringify({ rows: total, milliseconds: performance.now() - start }));
}

/** Says how much of the largest collection is in memory. */
const sayLoaded = ({ orders }: Collections, sizes: Sizes): void => {
  element('loaded').textContent =
    `${orders.size.toLocaleString('en')} of ${sizes.orders.toLocaleString('en')} orders are in memory`;
};

/** Shows a view whenever it changes, and notes how long after the start of the page it was complete. */
function show<T>(view: View<T>, name: 'newest' | 'countries', toRow: (row: T) => HTMLTableRowElement): () => void {
  const body = element<'tbody'>(name);
  const draw = (): void => body.replaceChildren(...view.rows().map(toRow));
  view.follow(draw);
  view.ready.then(
    () => {
      draw();
      body.dataset['shownMs'] ??= String(performance.now());
      element(`${name}-state`).textContent = `complete ${sinceStart()}`;
    },
    (error: unknown) => say(`The view ${name} failed: ${String(error)}`),
  );
  return draw;
}

function showNewest(collections: Collections, sizes: Sizes): void {
  const view = newestOrders(collections);
  let page = 0;
  const turn = async (by: number): Promise<void> => {
    page = Math.max(0, page + by);
    await view.turnTo(page);
    draw();
    element('newest-state').textContent = `page ${page + 1}`;
    element('newest').dataset['page'] = String(page);
  };
  element<'button'>('newer').onclick = () => void turn(-1);
  element<'button'>('older').onclick = () => void turn(1);
  element<'button'>('order').onclick = () => void collections.orders.insert(orderNow(sizes));
  const draw = show(view, 'newest', (row: NewestRow) => {
    const line = document.createElement('tr');
    line.dataset['id'] = String(row.id);
    const more = document.createElement('button');
    more.textContent = 'One more';
    more.onclick = () => {
      collections.orders.update(row.id, (order) => {
        order.quantity += 1;
        order.amount += row.price ?? 0;
      });
    };
    const last = cell('');
    last.append(more);
    line.append(
      cell(new Date(row.placedAt).toISOString().slice(0, 16).replace('T', ' ')),
      ...[row.customer, row.country, row.product].map((text) => cell(text ?? '…')),
      cell(String(row.quantity), true),
      cell(money(row.amount), true),
      last,
    );
    return line;
  });
}

function showCountries(collections: Collections, lastDay: number): void {
  let day = lastDay;
  let view: View<CountryRow> | undefined;
  const turn = (by: number): void => {
    day = Math.min(lastDay, Math.max(0, day + by));
    void view?.close();
    view = dayByCountry(collections, day);
    element('countries').dataset['day'] = String(day);
    show(view, 'countries', ({ country, orders, amount }) => {
      const line = document.createElement('tr');
      line.append(cell(country ?? '…'), cell(String(orders), true), cell(money(amount), true));
      return line;
    });
  };
  element<'button'>('earlier').onclick = () => turn(-1);
  element<'button'>('later').onclick = () => turn(1);
  turn(0);
}

function showViews(collections: Collections, { rows, milliseconds }: { rows: number; milliseconds: number }): void {
  element('fill').hidden = true;
  document.querySelector('main')!.hidden = false;
  say(`${rows.toLocaleString('en')} rows, stored in ${(milliseconds / 1000).toFixed(1)} s`);
  const sizes = sizesOf(rows);
  collections.orders.subscribeChanges(() => sayLoaded(collections, sizes));
  showNewest(collections, sizes);
  showCountries(collections, lastDayOf(sizes));
}

function offerToFill(storage: Storage, collections: Collections): void {
  const rows = Number(parameters.get('rows') ?? 1_000_000);
  const button = element<'button'>('fill');
  say('There are no rows yet.');
  button.textContent = `Store ${rows.toLocaleString('en')} rows`;
  button.hidden = false;
  button.onclick = async () => {
    button.hidden = true;
    try {
      await storage.writable();
      await fill(collections, sizesOf(rows));
    } catch (error) {
      say(`The rows cannot be stored: ${String(error)}`);
      return;
    }
    // A new page has none of the rows in its memory.
    location.reload();
  };
}

for (const name of Object.keys(STORAGES)) {
  const link = document.createElement('a');
  link.href = `?storage=${name}`;
  link.textContent = name;
  if (name === kind) link.setAttribute('aria-current', 'page');
  element<'nav'>('storages').append(link, ' ');
}

const openStorage = STORAGES[kind];
if (openStorage === undefined) {
  say(`There is no storage ${kind}.`);
} else {
  const storage = await openStorage();
  const collections = collectionsOf(storage);
  const filled = localStorage.getItem(FILLED);
  if (filled === null) offerToFill(storage, collections);
  else showViews(collections, JSON.parse(filled) as { rows: number; milliseconds: number });
}
