// The page's database: the cities by id, with indexes by name, by country, and by country and
// population.
import { keyCodecs, open } from 'mangrove-kv';
import type {
  Collection,
  Commit,
  Database,
  Durability,
  Index,
  IndexRange,
  Key,
  Snapshot,
  Subscription,
  Transaction,
} from 'mangrove-kv';
import { mirror } from 'mangrove-kv/live';
import type { IndexMirror } from 'mangrove-kv/live';

export interface City {
  name: string;
  country: string;
  admin1: string;
  lat: number;
  lng: number;
  /** Absent if it is unknown. */
  population?: number;
}

/** An id of GeoNames; cities that visitors add have larger ones. */
export type CityId = number;

export interface Entry {
  readonly id: CityId;
  readonly city: City;
}

/**
 * Selects the cities in the list: those whose names start with `text`, in one country or in all,
 * by name; or those of a country with a known population of at least `least`, the largest first.
 */
export type Filter =
  | { readonly by: 'name'; readonly text: string; readonly country: string }
  | { readonly by: 'population'; readonly country: string; readonly least: number };

export const ALL: Filter = { by: 'name', text: '', country: '' };

const INDEXES = {
  byName: { key: ({ name }: City) => name },
  byCountry: { key: ({ country, name }: City) => [country, name] },
  byCountryPopulation: {
    key: ({ country, population }: City) => (population === undefined ? undefined : [country, population]),
  },
} as const;

type IndexName = keyof typeof INDEXES;

/** Key in the default collection, set once an import is complete. */
const IMPORTED = 'imported';

/** First id of the cities that visitors add. */
const FIRST_OWN_ID = 2 ** 31;

/** Appended to a text, sorts after every string that starts with it. */
const LAST = '\uffff';

/** Cities at the beginning of the list by name that are mirrored: some screens. */
const MIRRORED = 1000;

/** Bytes in the file. */
export interface Sizes {
  readonly cities: number;
  readonly indexes: number;
}

export class CityStore {
  readonly database: Database;
  private readonly cities: Collection<CityId, City>;
  #first: IndexMirror<CityId, City> | undefined;

  private constructor(database: Database) {
    this.database = database;
    this.cities = database.collection('cities', { key: keyCodecs.uint32, indexes: INDEXES });
  }

  static async open(name: string, lockTimeout: number): Promise<CityStore> {
    return new CityStore(await open(name, { lockTimeout, version: 1, upgrade: removeUnversioned }));
  }

  /**
   * Resolves when the indexes can be read. They have to be built only in a database that was restored
   * from a backup: backups leave them out.
   */
  buildIndexes(onProgress: (index: string, done: number, total: number) => void): Promise<void> {
    return this.cities.buildIndexes({ onProgress: ({ index, done, total }) => onProgress(index, done, total) });
  }

  /** Mirrors the beginning of the list by name, which is what a visitor sees first and comes back to. */
  async mirrorFirst(): Promise<void> {
    if (this.#first !== undefined) return;
    const last = await this.cities.index('byName').at(MIRRORED - 1);
    const first = mirror(this.cities, { index: 'byName', ...(last && { lte: last.indexKey }) });
    await first.ready;
    this.#first = first;
  }

  /** The filter's entries from a position, at once; `undefined` if they are not mirrored. */
  pageNow(filter: Filter, offset: number, limit: number): Entry[] | undefined {
    const isAll = filter.by === 'name' && filter.text === '' && filter.country === '';
    const first = isAll && this.#first?.status === 'ready' ? this.#first : undefined;
    if (first === undefined || offset + limit > first.size) return undefined;
    return first.range({ offset, limit }).map(({ key, value }) => ({ id: key, city: value }));
  }

  count(filter: Filter): Promise<number> {
    const { index, range } = this.#select(filter);
    return index.count(range);
  }

  /** Returns the filter's entries from position `offset`, up to `limit`. */
  async page(filter: Filter, offset: number, limit: number): Promise<Entry[]> {
    const now = this.pageNow(filter, offset, limit);
    if (now !== undefined) return now;
    const { index, range } = this.#select(filter);
    const found = await index.entries({ ...range, offset, limit }).toArray();
    return found.map(({ key, value }) => ({ id: key, city: value }));
  }

  /** Returns the position of the first city at or after `name`, among those by name. */
  rank(filter: Filter & { readonly by: 'name' }, name: string): Promise<number> {
    const { index, range } = this.#select(filter);
    return index.rank(filter.country === '' ? name : [filter.country, name], range);
  }

  /** The index and the part of it that hold the filter's cities. */
  #select(filter: Filter): { readonly index: Index<CityId, City>; readonly range: IndexRange } {
    const index = this.cities.index(indexOf(filter));
    const { country } = filter;
    if (filter.by === 'population')
      return { index, range: { prefix: [country], gte: [country, filter.least], reverse: true } };
    const from = (text: string): Key => (country === '' ? text : [country, text]);
    if (country === '' && filter.text === '') return { index, range: {} };
    return { index, range: { gte: from(filter.text), lt: from(filter.text + LAST) } };
  }

  get(id: CityId): Promise<City | undefined> {
    return this.cities.get(id);
  }

  /** Whether the data set was imported completely. */
  isImported(): Promise<boolean> {
    return this.database.has(IMPORTED);
  }

  /**
   * Makes an import durable, records that it is complete, and gives back the space of the leaves
   * that it replaced.
   */
  async finishImport(cities: number): Promise<void> {
    await this.database.set(IMPORTED, { cities });
    await this.database.compact();
  }

  /** Adds cities in one commit, which keeps their index entries, too. */
  async addMany(entries: readonly Entry[], durability: Durability = 'strict'): Promise<void> {
    await this.cities.setMany(
      entries.map(({ id, city }) => [id, city] as const),
      { durability },
    );
  }

  /** Replaces a city. */
  async replace(id: CityId, city: City): Promise<void> {
    await (this.#first ?? this.cities).set(id, city);
  }

  /** Adds a city under a new id, which it returns. */
  add(city: City): Promise<CityId> {
    return this.database.transaction(async (tx) => {
      const cities = tx.collection(this.cities);
      const last = await cities.last({ gte: FIRST_OWN_ID });
      const id = last === undefined ? FIRST_OWN_ID : last[0] + 1;
      await cities.set(id, city);
      return id;
    });
  }

  /** Deletes a city. */
  async delete(id: CityId): Promise<void> {
    await (this.#first ?? this.cities).delete(id);
  }

  /** Sets cities, or deletes those without a value, in one commit. */
  async restore(changes: readonly (readonly [CityId, City | undefined])[]): Promise<void> {
    const batch = this.database.batch();
    const cities = batch.collection(this.cities);
    for (const [id, city] of changes) {
      if (city === undefined) cities.delete(id);
      else cities.set(id, city);
    }
    await batch.commit();
  }

  /** Returns a snapshot of the current state. */
  keep(): { getMany(ids: readonly CityId[]): Promise<(City | undefined)[]>; close(): Promise<void> } {
    const snapshot: Snapshot = this.database.snapshot();
    const cities = snapshot.collection(this.cities);
    return { getMany: (ids) => cities.getMany(ids), close: () => snapshot.close() };
  }

  /** Follows changes of cities in all tabs. */
  follow(listener: (commit: Commit<CityId, City>) => void): Subscription {
    return this.cities.subscribe({}, listener);
  }

  /** Calls `listener` when an import is complete, in any tab. */
  onImported(listener: () => void): Subscription {
    return this.database.subscribe({}, listener);
  }

  getMany(ids: readonly CityId[]): Promise<(City | undefined)[]> {
    return this.cities.getMany(ids);
  }

  /** Space that the cities and their indexes take in the file. Reads the inner nodes of the trees. */
  async sizes(): Promise<Sizes> {
    const { collections } = await this.database.layout();
    const layout = collections.find(({ name }) => name === this.cities.name);
    if (layout === undefined) return { cities: 0, indexes: 0 };
    return { cities: layout.levels.reduce((sum, { fileSize }) => sum + fileSize, 0), indexes: layout.indexSize };
  }

  /** Reads every city; returns their number. */
  async scan(reverse: boolean): Promise<number> {
    let count = 0;
    const entries = this.cities.entries({ reverse });
    for (;;) {
      const some = await entries.nextMany(1000);
      if (some.length === 0) return count;
      count += some.length;
    }
  }
}

/** Name of the index that holds the filter's cities in their order. */
export function indexOf({ by, country }: Filter): IndexName {
  if (by === 'population') return 'byCountryPopulation';
  return country === '' ? 'byName' : 'byCountry';
}

/**
 * Before the database had versions, cities had other keys and no population: they are imported
 * anew.
 */
async function removeUnversioned(tx: Transaction, from: number): Promise<void> {
  if (from > 0) return;
  for (const name of ['cities', 'by country']) await tx.dropCollection(name);
  await tx.delete(IMPORTED);
}
