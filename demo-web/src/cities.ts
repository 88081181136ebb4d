// The page's database: every city by name, and an index of the same cities by country.
import { keyCodecs, open } from 'mangrove-kv';
import type { Collection, Commit, Database, Durability, Snapshot, Subscription } from 'mangrove-kv';

export interface City {
  name: string;
  country: string;
  admin1: string;
  lat: number;
  lng: number;
}

/**
 * The name comes first, because search is by the beginning of a name. The id tells apart cities
 * with the same name and country.
 */
export type CityKey = readonly [name: string, country: string, id: number];
type CountryKey = readonly [country: string, name: string, id: number];

export interface Entry {
  readonly key: CityKey;
  readonly city: City;
}

/** Selects the cities in the list: names that start with `text`, in one country or in all. */
export interface Filter {
  readonly text: string;
  readonly country: string;
}

/** Key in the default collection, set once an import is complete. */
const IMPORTED = 'imported';

/** Appended to a text, sorts after every string that starts with it. */
const LAST = '\uffff';

export class CityStore {
  readonly database: Database;
  private readonly cities: Collection<CityKey, City>;
  private readonly byCountry: Collection<CountryKey, boolean>;

  private constructor(database: Database) {
    this.database = database;
    this.cities = database.collection('cities', { key: keyCodecs.tuple<CityKey>() });
    this.byCountry = database.collection('by country', { key: keyCodecs.tuple<CountryKey>() });
  }

  static async open(name: string, lockTimeout: number): Promise<CityStore> {
    return new CityStore(await open(name, { lockTimeout }));
  }

  count(filter: Filter): Promise<number> {
    return filter.country === ''
      ? this.cities.count(nameRange(filter.text))
      : this.byCountry.count(countryRange(filter));
  }

  /**
   * Returns the filter's entries from position `offset`, up to `limit`. Calls made in the same tick
   * travel in one message.
   */
  async page(filter: Filter, offset: number, limit: number): Promise<Entry[]> {
    const positions = Array.from({ length: limit }, (_, index) => offset + index);
    if (filter.country === '') {
      const range = nameRange(filter.text);
      const found = await Promise.all(positions.map((position) => this.cities.at(position, range)));
      return found.flatMap((entry) => (entry === undefined ? [] : [{ key: entry[0], city: entry[1] }]));
    }
    const range = countryRange(filter);
    const found = await Promise.all(positions.map((position) => this.byCountry.at(position, range)));
    const keys = found.flatMap((entry) => (entry === undefined ? [] : [[entry[0][1], entry[0][0], entry[0][2]] as const]));
    const cities = await this.cities.getMany(keys);
    return keys.flatMap((key, index) => {
      const city = cities[index];
      return city === undefined ? [] : [{ key, city }];
    });
  }

  /** Returns the position of the filter's first city at or after `name`. */
  rank(filter: Filter, name: string): Promise<number> {
    return filter.country === ''
      ? this.cities.rank([name] as unknown as CityKey, nameRange(filter.text))
      : this.byCountry.rank([filter.country, name] as unknown as CountryKey, countryRange(filter));
  }

  get(key: CityKey): Promise<City | undefined> {
    return this.cities.get(key);
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

  /** Adds cities and their index entries in one commit. */
  async addMany(entries: readonly Entry[], durability: Durability = 'strict'): Promise<void> {
    const batch = this.database.batch();
    const cities = batch.collection(this.cities);
    const byCountry = batch.collection(this.byCountry);
    for (const { key, city } of entries) {
      cities.set(key, city);
      byCountry.set([key[1], key[0], key[2]], true);
    }
    await batch.commit({ durability });
  }

  /** Replaces a city, or adds one; returns its key. */
  async replace(old: CityKey | undefined, city: City): Promise<CityKey> {
    const key: CityKey = [city.name, city.country, old?.[2] ?? Date.now()];
    await this.restore([...(old === undefined ? [] : [[old, undefined] as const]), [key, city]]);
    return key;
  }

  delete(key: CityKey): Promise<void> {
    return this.restore([[key, undefined]]);
  }

  /** Sets cities, or deletes those without a value, with their index entries, in one commit. */
  async restore(changes: readonly (readonly [CityKey, City | undefined])[]): Promise<void> {
    const batch = this.database.batch();
    const cities = batch.collection(this.cities);
    const byCountry = batch.collection(this.byCountry);
    for (const [key, city] of changes) {
      const indexKey: CountryKey = [key[1], key[0], key[2]];
      if (city === undefined) {
        cities.delete(key);
        byCountry.delete(indexKey);
      } else {
        cities.set(key, city);
        byCountry.set(indexKey, true);
      }
    }
    await batch.commit();
  }

  /** Returns a snapshot of the current state. */
  keep(): { getMany(keys: readonly CityKey[]): Promise<(City | undefined)[]>; close(): Promise<void> } {
    const snapshot: Snapshot = this.database.snapshot();
    const cities = snapshot.collection(this.cities);
    return { getMany: (keys) => cities.getMany(keys), close: () => snapshot.close() };
  }

  /** Follows changes of cities in all tabs. */
  follow(listener: (commit: Commit<CityKey, City>) => void): Subscription {
    return this.cities.subscribe({}, listener);
  }

  /** Calls `listener` when an import is complete, in any tab. */
  onImported(listener: () => void): Subscription {
    return this.database.subscribe({}, listener);
  }

  getMany(keys: readonly CityKey[]): Promise<(City | undefined)[]> {
    return this.cities.getMany(keys);
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

function nameRange(text: string): { gte?: CityKey; lt?: CityKey } {
  // A tuple sorts before all longer tuples that start with it.
  return text === '' ? {} : { gte: [text] as unknown as CityKey, lt: [text + LAST] as unknown as CityKey };
}

function countryRange({ text, country }: Filter): { gte: CountryKey; lt: CountryKey } {
  return { gte: [country, text] as unknown as CountryKey, lt: [country, text + LAST] as unknown as CountryKey };
}
