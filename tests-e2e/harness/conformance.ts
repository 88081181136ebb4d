// Runs the storage conformance tests on the storages that only a browser has.
import type { CustomStorage } from 'mangrove-kv';
import { testStorage } from '@mangrove-kv/storage-tests';
import { deleteIdb } from '../../bindings-js/kv/src/storage/idb.ts';
import { IndexedDbStorage } from '../../bindings-js/kv/src/storage/indexeddb.ts';
import { OpfsStorage } from '../../bindings-js/kv/src/storage/opfs.ts';

export interface Outcome {
  readonly passed: string[];
  readonly failed: string[];
}

interface Kind<S extends CustomStorage> {
  open(name: string): Promise<S>;
  /** Releases the files once everything is stored. */
  release(storage: S): Promise<void>;
  remove(name: string): Promise<unknown>;
  readonly removes: boolean;
}

const WAIT_MS = 5000;

const OPFS: Kind<OpfsStorage> = {
  open: (name) => OpfsStorage.open(name, true, WAIT_MS),
  release: async (storage) => storage.close(),
  remove: async (name) =>
    (await (await navigator.storage.getDirectory()).getDirectoryHandle('mangrove')).removeEntry(
      encodeURIComponent(name),
      { recursive: true },
    ),
  removes: false,
};

const INDEXED_DB: Kind<IndexedDbStorage> = {
  open: (name) => IndexedDbStorage.open(name, true, WAIT_MS),
  release: async (storage) => {
    await storage.settled();
    storage.close();
  },
  remove: deleteIdb,
  removes: true,
};

async function check<S extends CustomStorage>(kind: Kind<S>): Promise<Outcome> {
  const names = new WeakMap<CustomStorage, string>();
  let made = 0;
  const open = async (name: string): Promise<S> => {
    const storage = await kind.open(name);
    names.set(storage, name);
    return storage;
  };
  const nameOf = (storage: CustomStorage): string => names.get(storage) as string;
  const passed: string[] = [];
  const failed: string[] = [];
  let before: Promise<unknown> = Promise.resolve();
  await testStorage(() => open(`storage ${made++}`), {
    removes: kind.removes,
    reopen: async (storage) => {
      await kind.release(storage as S);
      return open(nameOf(storage));
    },
    dispose: async (storage) => {
      await kind.release(storage as S);
      await kind.remove(nameOf(storage));
    },
    // Tests run sequentially.
    test: (name, run) => {
      before = before.then(run).then(
        () => passed.push(name),
        (error: Error) => failed.push(`${name}: ${error.message}`),
      );
      return before;
    },
  });
  return { passed, failed };
}

export function checkStorage(kind: 'opfs' | 'indexeddb'): Promise<Outcome> {
  return kind === 'opfs' ? check(OPFS) : check(INDEXED_DB);
}
