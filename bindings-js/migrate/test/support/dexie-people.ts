// Random values for a table of Dexie with every kind of index, and the comparison of each index
// with Dexie's answers. Runs in Node and in browsers.
import type { Dexie, Table } from 'dexie';
import type { Collection, Key } from 'mangrove-kv';

/** Primary key, and an index of each kind. */
export const PEOPLE =
  '++id, name, born, [last+first], [tags+born], *tags, &email, address.city, name.length, [address.city+address.zip], *address.zips, &*phones';

/** What IndexedDB takes as keys and what it does not, side by side. */
const PARTS: readonly (() => unknown)[] = [
  () => 0,
  () => -0,
  () => -1.5,
  () => 2,
  () => 1e300,
  () => Infinity,
  () => -Infinity,
  () => Number.NaN,
  () => '',
  () => 'a',
  () => 'ab',
  () => 'b',
  () => '\uffff',
  () => '\u{1f333}',
  () => '\ud800',
  () => 'a\0b',
  () => new Date(0),
  () => new Date(-5),
  () => new Date(Number.NaN),
  () => true,
  () => false,
  () => null,
  () => undefined,
  () => 5n,
  () => new Uint8Array([1, 2]),
  () => new Uint8Array([1, 2]).buffer,
  () => new Uint16Array([7]),
  () => new DataView(new ArrayBuffer(3), 1),
  () => [],
  () => ['a'],
  () => ['a', 1],
  () => ['a', null],
  () => [['b'], []],
  () => [Number.NaN],
  () => ({ a: 1 }),
  () => new Map([['a', 1]]),
];

/** Text of a key, the same for keys that IndexedDB compares as equal. */
function show(key: unknown): string {
  if (typeof key === 'number') return String(key);
  if (typeof key === 'string') return JSON.stringify(key);
  if (key instanceof Date) return `date ${key.getTime()}`;
  if (Array.isArray(key)) return `[${key.map(show).join()}]`;
  const bytes = ArrayBuffer.isView(key)
    ? new Uint8Array(key.buffer, key.byteOffset, key.byteLength)
    : new Uint8Array(key as ArrayBuffer);
  return `bytes ${bytes.join(' ')}`;
}

/** People with random properties; `next` returns numbers in [0, 1). */
export function peopleOf(count: number, next: () => number): object[] {
  const part = (): unknown => (PARTS[Math.floor(next() * PARTS.length)] as () => unknown)();
  // Not as a member: Chromium then leaves the entry out of a multi-entry index, against the standard.
  const partOrHoles = (): unknown => (next() < 0.05 ? new Array(2) : part());
  const list = (): unknown => (next() < 0.3 ? partOrHoles() : Array.from({ length: Math.floor(next() * 5) }, part));
  return Array.from({ length: count }, (_, index) => {
    const person: Record<string, unknown> = { note: index };
    const add = (name: string, value: () => unknown): void => {
      if (next() < 0.9) person[name] = value();
    };
    for (const name of ['name', 'last', 'first', 'born']) add(name, partOrHoles);
    add('tags', list);
    add('email', () => (next() < 0.5 ? `${index}@example.com` : null));
    add('phones', () => [`+${index}`, index, `+${index}`, null]);
    add('address', () => (next() < 0.2 ? part() : { city: part(), zip: part(), zips: list() }));
    return person;
  });
}

/** What is not as Dexie has it; empty if nothing is. Also the number of compared index entries. */
export async function compareIndexes(
  table: Table<unknown, Key>,
  collection: Collection<Key, unknown>,
): Promise<{ readonly wrong: string[]; readonly compared: number }> {
  const wrong: string[] = [];
  let compared = 0;
  for (const { name } of table.schema.indexes) {
    const index = collection.index(name);
    const mine = (await index.entries().toArray()).map(({ indexKey, key }) => `${show(indexKey)} -> ${show(key)}`);
    const indexKeys: Key[] = [];
    const theirs: string[] = [];
    await table.orderBy(name).eachKey((indexKey, { primaryKey }) => {
      indexKeys.push(indexKey as Key);
      theirs.push(`${show(indexKey)} -> ${show(primaryKey)}`);
    });
    compared += theirs.length;
    if (mine.join('\n') !== theirs.join('\n')) {
      const [extra, missing] = [
        mine.filter((entry) => !theirs.includes(entry)),
        theirs.filter((entry) => !mine.includes(entry)),
      ];
      wrong.push(`${name}: ${extra.join('; ')} is too much, ${missing.join('; ')} is missing, or the order is another`);
    }
    const reversed = (await index.keys({ reverse: true }).toArray()).map(show).join();
    if (
      reversed !==
      [...theirs]
        .reverse()
        .map((entry) => entry.split(' -> ').at(-1))
        .join()
    )
      wrong.push(`${name}: the reverse order`);
    for (const indexKey of indexKeys.filter((_, at) => at % 7 === 0)) {
      const [counted, rank] = [await index.count({ eq: indexKey as string }), await index.rank(indexKey)];
      const [equal, below] = [
        await table
          .where(name)
          .equals(indexKey as string)
          .count(),
        await table.where(name).below(indexKey).count(),
      ];
      if (counted !== equal || rank !== below)
        wrong.push(
          `${name}: ${show(indexKey)} is there ${counted} times behind ${rank}, instead of ${equal} behind ${below}`,
        );
    }
  }
  return { wrong, compared };
}

/** Dexie's database with a table of people. */
export async function fillPeople(dexie: Dexie, count: number, next: () => number): Promise<Table<unknown, Key>> {
  dexie.version(1).stores({ people: PEOPLE });
  const table = dexie.table<unknown, Key>('people');
  await table.bulkAdd(peopleOf(count, next));
  return table;
}
