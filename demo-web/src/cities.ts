// What the page stores: every city under its name, and an index of the same cities by country.
import { keyCodecs, open } from 'mangrove-kv';
import type { Collection, Database, Durability } from 'mangrove-kv';

export interface City {
  name: string;
  country: string;
  admin1: string;
  lat: number;
  lng: number;
}

/** Name first, because search is by the beginning of a name; the number parts cities that share name and country. */
export type CityKey = readonly [name: string, country: string, id: number];
type CountryKey = readonly [country: string, name: string, id: number];

export interface Entry {
  readonly key: CityKey;
  readonly city: City;
}

/** What the list shows: cities whose names begin with `text`, of one country or of all. */
export interface Filter {
  readonly text: string;
  readonly country: string;
}

/** Key in the default collection. */
const IMPORTED = 'imported';

/** After every string that begins with the same text. */
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

  /** `limit` entries of the filter from position `offset` on. */
  async page(filter: Filter, offset: number, limit: number): Promise<Entry[]> {
    if (filter.country === '') {
      const found = await this.cities.entries({ ...nameRange(filter.text), offset, limit }).toArray();
      return found.map(([key, city]) => ({ key, city }));
    }
    const found = await this.byCountry.keys({ ...countryRange(filter), offset, limit }).toArray();
    const keys = found.map(([country, name, id]): CityKey => [name, country, id]);
    const cities = await this.cities.getMany(keys);
    return keys.flatMap((key, index) => {
      const city = cities[index];
      return city === undefined ? [] : [{ key, city }];
    });
  }

  /** Position of the first city of the filter at or after `name`. */
  rank(filter: Filter, name: string): Promise<number> {
    return filter.country === ''
      ? this.cities.rank([name] as unknown as CityKey, nameRange(filter.text))
      : this.byCountry.rank([filter.country, name] as unknown as CountryKey, countryRange(filter));
  }

  get(key: CityKey): Promise<City | undefined> {
    return this.cities.get(key);
  }

  /** Whether the data set is there to its last city. */
  isImported(): Promise<boolean> {
    return this.database.has(IMPORTED);
  }

  /** Makes an import durable and remembers that it is complete. */
  async finishImport(cities: number): Promise<void> {
    await this.database.set(IMPORTED, { cities });
  }

  /** Adds cities and their index in one commit. */
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

  /** Puts a city in place of another, under its own key, or adds it. */
  async replace(old: CityKey | undefined, city: City): Promise<CityKey> {
    const key: CityKey = [city.name, city.country, old?.[2] ?? Date.now()];
    const batch = this.database.batch();
    if (old !== undefined) {
      batch.collection(this.cities).delete(old);
      batch.collection(this.byCountry).delete([old[1], old[0], old[2]]);
    }
    batch.collection(this.cities).set(key, city);
    batch.collection(this.byCountry).set([key[1], key[0], key[2]], true);
    await batch.commit();
    return key;
  }

  async delete(key: CityKey): Promise<void> {
    const batch = this.database.batch();
    batch.collection(this.cities).delete(key);
    batch.collection(this.byCountry).delete([key[1], key[0], key[2]]);
    await batch.commit();
  }

  getMany(keys: readonly CityKey[]): Promise<(City | undefined)[]> {
    return this.cities.getMany(keys);
  }

  /** Reads every city; returns how many there were. */
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
  // A shorter tuple sorts before all that begin with it.
  return text === '' ? {} : { gte: [text] as unknown as CityKey, lt: [text + LAST] as unknown as CityKey };
}

function countryRange({ text, country }: Filter): { gte: CountryKey; lt: CountryKey } {
  return { gte: [country, text] as unknown as CountryKey, lt: [country, text + LAST] as unknown as CountryKey };
}
