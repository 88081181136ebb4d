// The panel with the database's figures and the times of the last operations.
import type { CityStore } from '../cities.ts';
import { element, formatBytes, formatCount, formatTime } from '../dom.ts';

const times = new Map<string, number>();
let rawBytes = Number(localStorage.getItem('mangrove-demo:raw-bytes') ?? 0);

/** Runs an operation and records its time for the panel. */
export async function timed<T>(name: string, run: () => Promise<T>): Promise<T> {
  const start = performance.now();
  try {
    return await run();
  } finally {
    times.set(name, performance.now() - start);
  }
}

export function setTime(name: string, milliseconds: number): void {
  times.set(name, milliseconds);
}

export function setRawBytes(bytes: number): void {
  rawBytes = bytes;
  localStorage.setItem('mangrove-demo:raw-bytes', String(bytes));
}

function figure(name: string, value: string): HTMLElement {
  const row = document.createElement('div');
  const term = document.createElement('dt');
  term.textContent = name;
  const description = document.createElement('dd');
  description.textContent = value;
  description.dataset['testid'] = `stat-${name.replaceAll(' ', '-')}`;
  row.append(term, description);
  return row;
}

export async function showStats(store: CityStore): Promise<void> {
  const stats = await store.database.stats();
  const records = await store.count({ text: '', country: '' });
  const lookups = stats.cacheHits + stats.cacheMisses;
  const rows: [string, string][] = [
    ['records', formatCount(records)],
    ['file size', formatBytes(stats.fileSize)],
    ['of raw JSON', rawBytes > 0 ? `${((stats.fileSize / rawBytes) * 100).toFixed(0)} % of ${formatBytes(rawBytes)}` : '–'],
    ['free in file', formatBytes(stats.freeSize)],
    ['tree depth', formatCount(stats.depth)],
    ['cache hits', lookups > 0 ? `${((stats.cacheHits / lookups) * 100).toFixed(1)} % of ${formatCount(lookups)}` : '–'],
    ['commits', formatCount(stats.version)],
    ...[...times].map(([name, time]): [string, string] => [name, formatTime(time)]),
  ];
  element('stats').replaceChildren(...rows.map(([name, value]) => figure(name, value)));
}
