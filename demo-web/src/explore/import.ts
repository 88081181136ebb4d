// Imports the data set into the database.
import citiesUrl from 'virtual:cities.json?url';
import type { City, CityStore, Entry } from '../cities.ts';

interface RawCity extends City {
  readonly id: number;
}

export interface ImportProgress {
  readonly done: number;
  readonly total: number;
  /** Milliseconds spent writing. */
  readonly elapsed: number;
}

export interface ImportResult extends ImportProgress {
  readonly rawBytes: number;
}

/** Number of cities per commit. */
const BATCH = 4000;

export async function importCities(
  store: CityStore,
  onProgress: (progress: ImportProgress) => void,
  signal: AbortSignal,
): Promise<ImportResult> {
  const response = await fetch(citiesUrl, { signal });
  if (!response.ok) throw new Error(`the data set could not be loaded: ${response.status} ${response.statusText}`);
  const text = await response.text();
  const raw = JSON.parse(text) as RawCity[];
  const start = performance.now();
  const progress = (done: number): ImportProgress => ({ done, total: raw.length, elapsed: performance.now() - start });
  for (let from = 0; from < raw.length; from += BATCH) {
    signal.throwIfAborted();
    onProgress(progress(from));
    const entries = raw.slice(from, from + BATCH).map(({ id, ...city }): Entry => ({ id, city }));
    // Each commit is whole or absent, but only the last one has to wait for the disk. An
    // interrupted import starts over and writes the same keys.
    await store.addMany(entries, 'none');
  }
  await store.finishImport(raw.length);
  const result = { ...progress(raw.length), rawBytes: new Blob([text]).size };
  onProgress(result);
  return result;
}
