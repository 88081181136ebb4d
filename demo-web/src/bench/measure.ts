// Times the database in the visitor's own browser.
import { ALL } from '../cities.ts';
import type { CityId, CityStore } from '../cities.ts';
import { formatCount, formatTime } from '../dom.ts';

export interface Measurement {
  readonly name: string;
  readonly id: string;
  /** In milliseconds: the median per call, or the total. */
  readonly time: number;
  readonly rate: string;
}

const SAMPLE = 2000;
const MANY = 100;

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? 0;
}

async function randomIds(store: CityStore, total: number): Promise<CityId[]> {
  const positions = Array.from({ length: SAMPLE }, () => Math.floor(Math.random() * total));
  const entries = await Promise.all(positions.map((position) => store.page(ALL, position, 1)));
  return entries.flatMap((found) => found.map(({ id }) => id));
}

export async function measure(store: CityStore, onResult: (result: Measurement) => void): Promise<void> {
  const total = await store.count(ALL);
  const ids = await randomIds(store, total);

  const single: number[] = [];
  for (const id of ids) {
    const start = performance.now();
    await store.get(id);
    single.push(performance.now() - start);
  }
  const sum = single.reduce((a, b) => a + b, 0);
  onResult({
    name: 'get, one by one, p50',
    id: 'get',
    time: median(single),
    rate: `${formatCount((ids.length / sum) * 1000)} /s`,
  });

  const batches: number[] = [];
  for (let from = 0; from + MANY <= ids.length; from += MANY) {
    const start = performance.now();
    await store.getMany(ids.slice(from, from + MANY));
    batches.push(performance.now() - start);
  }
  const perSecond = (MANY / median(batches)) * 1000;
  onResult({
    name: `getMany of ${MANY}, p50`,
    id: 'get-many',
    time: median(batches),
    rate: `${formatCount(perSecond)} /s`,
  });

  for (const reverse of [false, true]) {
    const start = performance.now();
    const count = await store.scan(reverse);
    const time = performance.now() - start;
    const name = reverse ? 'full scan backwards' : 'full scan forwards';
    onResult({
      name,
      id: reverse ? 'scan-reverse' : 'scan-forward',
      time,
      rate: `${formatCount((count / time) * 1000)} /s`,
    });
  }

  const writes: number[] = [];
  for (const id of ids.slice(0, 200)) {
    const city = await store.get(id);
    if (city === undefined) continue;
    const start = performance.now();
    await store.addMany([{ id, city }]);
    writes.push(performance.now() - start);
  }
  onResult({
    name: 'durable write, p50',
    id: 'write',
    time: median(writes),
    rate: `${formatCount(1000 / median(writes))} /s`,
  });
}

export function measurementRow({ name, id, time, rate }: Measurement): HTMLTableRowElement {
  const row = document.createElement('tr');
  const texts = [name, formatTime(time), rate];
  row.append(
    ...texts.map((text, index) => {
      const cell = document.createElement(index === 0 ? 'th' : 'td');
      cell.textContent = text;
      if (index === 1) cell.dataset['testid'] = `measure-${id}`;
      if (index === 2) cell.dataset['testid'] = `measure-${id}-rate`;
      return cell;
    }),
  );
  return row;
}
