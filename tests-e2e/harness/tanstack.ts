// Collections of TanStack DB on a database that tabs share, driven by the tests.
import { createCollection, createLiveQueryCollection, eq, gte } from '@tanstack/db';
import type { Collection } from '@tanstack/db';
import { persistedCollectionOptions } from '@tanstack/db-sqlite-persistence-core';
import { mangroveCollectionOptions } from '@mangrove-kv/tanstack-db';
import { mangrovePersistence } from '@mangrove-kv/tanstack-db/persistence';
import { open as openDatabase } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';

export interface Person {
  id: string;
  name: string;
  age: number;
  city: string;
}

export interface City {
  id: string;
  country: string;
}

/** How a tab keeps people. */
export type Kind = 'eager' | 'on-demand' | 'persisted';

let db: Database;
let people: Collection<Person, string>;
let cities: Collection<City, string>;
let shown: () => unknown[] = () => [];

const made = <T extends { id: string }>(name: string, kind: Kind): Collection<T, string> => {
  const getKey = ({ id }: T): string => id;
  const options =
    kind === 'persisted'
      ? persistedCollectionOptions<T, string>({ id: name, getKey, persistence: mangrovePersistence(db) } as never)
      : mangroveCollectionOptions<T, string>({
          database: db,
          name,
          getKey,
          keyPath: 'id',
          indexes: ['age', 'city', 'country'],
          syncMode: kind,
        });
  return createCollection(options as never) as unknown as Collection<T, string>;
};

export async function open(kind: Kind): Promise<string> {
  db = await openDatabase('people');
  people = made<Person>('people', kind);
  cities = made<City>('cities', kind);
  if (kind !== 'on-demand') await Promise.all([people.preload(), cities.preload()]);
  return people.status;
}

/** The number of people that the tab has loaded. */
export const loaded = (): number => people.size;

export async function insert(rows: Person[]): Promise<void> {
  await people.insert(rows).isPersisted.promise;
}

export async function insertCities(rows: City[]): Promise<void> {
  await cities.insert(rows).isPersisted.promise;
}

export async function rename(id: string, name: string): Promise<void> {
  await people.update(id, (draft) => {
    draft.name = name;
  }).isPersisted.promise;
}

export async function grow(id: string, age: number): Promise<void> {
  await people.update(id, (draft) => {
    draft.age = age;
  }).isPersisted.promise;
}

export async function remove(id: string): Promise<void> {
  await people.delete(id).isPersisted.promise;
}

export const find = (id: string): Person | undefined => {
  const row = people.get(id);
  return row === undefined ? undefined : { id: row.id, name: row.name, age: row.age, city: row.city };
};

/** Shows the oldest three. */
export async function showOldest(): Promise<void> {
  const query = createLiveQueryCollection((q) =>
    q
      .from({ person: people })
      .orderBy(({ person }) => person.age, 'desc')
      .limit(3),
  );
  await query.preload();
  shown = () => query.toArray.map(({ id }) => id);
}

/** Shows the names and countries of those who are at least as old. */
export async function showJoined(age: number): Promise<void> {
  const query = createLiveQueryCollection((q) =>
    q
      .from({ person: people })
      .innerJoin({ home: cities }, ({ person, home }) => eq(person.city, home.id))
      .where(({ person }) => gte(person.age, age))
      .select(({ person, home }) => ({ name: person.name, country: home.country })),
  );
  await query.preload();
  shown = () => query.toArray.map(({ name, country }) => `${name} ${country}`).sort();
}

export const show = (): unknown[] => shown();

/** Where the database is kept, and what is wrong with it. */
export async function verify(): Promise<unknown> {
  return [db.persistence, (await db.verify()).problems];
}
