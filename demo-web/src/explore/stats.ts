// The panel with the database's figures and the times of the last operations.
import { ALL } from '../cities.ts';
import type { CityStore, Sizes } from '../cities.ts';
import { element, formatBytes, formatCount, formatTime } from '../dom.ts';

const times = new Map<string, number>();
let rawBytes = Number(localStorage.getItem('mangrove-demo:raw-bytes') ?? 0);
/** What the parts of the file take, as of a size of the file. */
let parts: { readonly fileSize: number; readonly sizes: Sizes } | undefined;

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

/** A part of the file, also as a percentage of the JSON from which it was imported. */
function size(bytes: number): string {
  return rawBytes > 0 ? `${formatBytes(bytes)} · ${((bytes / rawBytes) * 100).toFixed(0)} %` : formatBytes(bytes);
}

export async function showStats(store: CityStore): Promise<void> {
  const stats = await store.database.stats();
  const cities = await store.count(ALL);
  // Walks all trees, so it is repeated only when the file has grown or shrunk.
  if (parts?.fileSize !== stats.fileSize) parts = { fileSize: stats.fileSize, sizes: await store.sizes() };
  const lookups = stats.cacheHits + stats.cacheMisses;
  const rows: [string, string][] = [
    ['cities', formatCount(cities)],
    ['raw JSON', rawBytes > 0 ? size(rawBytes) : '–'],
    ['file', size(stats.fileSize)],
    ['records in it', size(parts.sizes.cities)],
    ['indexes in it', size(parts.sizes.indexes)],
    ['free in it', formatBytes(stats.freeSize)],
    ['tree depth', formatCount(stats.depth)],
    [
      'cache hits',
      lookups > 0 ? `${((stats.cacheHits / lookups) * 100).toFixed(1)} % of ${formatCount(lookups)}` : '–',
    ],
    ['commits', formatCount(stats.version)],
    ...[...times].map(([name, time]): [string, string] => [name, formatTime(time)]),
  ];
  element('stats').replaceChildren(...rows.map(([name, value]) => figure(name, value)));
}
