// Calls of IndexedDB that fail, or that something happens before, at a chosen one of them.
import { IDBDatabase, IDBFactory, IDBObjectStore } from 'fake-indexeddb';
import { objectsOf, openSource, result } from '../../src/source.ts';

const CALLS: [object, string[]][] = [
  [IDBFactory.prototype, ['open', 'deleteDatabase']],
  [IDBDatabase.prototype, ['transaction', 'close']],
  [IDBObjectStore.prototype, ['getAll', 'getAllKeys', 'count', 'openCursor', 'clear']],
];

/** Calls `before` with the number and name of each call of IndexedDB while `run` runs; what it throws, the call throws. */
export async function hooked<T>(
  before: (call: number, name: string, args: readonly unknown[]) => void,
  run: () => Promise<T>,
): Promise<T> {
  let calls = 0;
  const undo: (() => void)[] = [];
  for (const [prototype, names] of CALLS) {
    for (const name of names) {
      const methods = prototype as Record<string, (...args: unknown[]) => unknown>;
      const original = methods[name] as (...args: unknown[]) => unknown;
      methods[name] = function (this: unknown, ...args) {
        // fake-indexeddb itself begins the transaction of an upgrade.
        if (args[1] !== 'versionchange') before(++calls, name, args);
        return original.apply(this, args);
      };
      undo.push(() => {
        methods[name] = original;
      });
    }
  }
  try {
    return await run();
  } finally {
    for (const restore of undo) restore();
  }
}

/** Names of all databases. */
export async function databaseNames(): Promise<string[]> {
  return (await indexedDB.databases()).map(({ name }) => name as string).sort();
}

/** Whether all object stores of a database are empty, or there is no such database. */
export async function isEmptied(name: string): Promise<boolean> {
  const source = await openSource(indexedDB, name);
  if (source === undefined) return true;
  const counts = [...source.objectStoreNames].map((store) => result(objectsOf(source, store).count(), store));
  return Promise.all(counts)
    .then((all) => all.every((count) => count === 0))
    .finally(() => source.close());
}

/** Waits until `isTrue`; gives up after a minute, which no machine needs. */
export async function until(isTrue: () => Promise<boolean>): Promise<void> {
  const end = Date.now() + 60_000;
  while (!(await isTrue())) {
    if (Date.now() > end) throw new Error('not true after a minute');
    await new Promise((resolve) => {
      setTimeout(resolve, 5);
    });
  }
}
