// The storages of this package and the example of the documentation pass `testStorage`; storages
// that break one promise each fail it.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { CustomStorage, StorageFile } from 'mangrove-kv';
import { testStorage } from '@mangrove-kv/storage-tests';
import { MemoryStorage } from '../../kv/src/storage/memory.ts';
import { NodeStorage } from '../../kv/src/storage/node-fs.ts';
import { FaultyStorage, failure } from '../../kv/test/support/faulty-storage.ts';
import { MapStorage } from '../../kv/test/support/map-storage.ts';

const named =
  (prefix: string) =>
  (name: string, run: () => Promise<void>): unknown =>
    test(`${prefix}: ${name}`, run);

await testStorage(() => new MemoryStorage(), { test: named('memory'), assert });
await testStorage(() => new MapStorage(), { test: named('example'), assert });
await testStorage(() => new FaultyStorage(), {
  test: named('with limited room'),
  assert,
  setRoom: (storage, bytes) => {
    (storage as FaultyStorage).roomBytes = bytes;
  },
});

const directories = new WeakMap<CustomStorage, string>();

function inDirectory(directory: string): CustomStorage {
  mkdirSync(directory, { recursive: true });
  const storage = new NodeStorage(directory);
  directories.set(storage, directory);
  return storage;
}

const directoryOf = (storage: CustomStorage): string => directories.get(storage) as string;

await testStorage(() => inDirectory(mkdtempSync(join(tmpdir(), 'mangrove-storage-'))), {
  test: named('node:fs'),
  assert,
  reopen: (storage) => inDirectory(directoryOf(storage)),
  dispose: (storage) => rmSync(directoryOf(storage), { recursive: true, force: true }),
});

/** An in-memory storage with some methods replaced. */
function broken(
  change: (file: StorageFile, name: string) => Partial<StorageFile>,
  storage: Partial<CustomStorage> = {},
): CustomStorage {
  const memory = new MemoryStorage();
  const remembered = new Map<string, StorageFile>();
  return {
    open: (name) => {
      const file = memory.open(name);
      const whole: StorageFile = {
        read: (at, into) => file.read(at, into),
        write: (at, from) => file.write(at, from),
        flush: () => {},
        size: () => file.size(),
        truncate: (size) => file.truncate(size),
        close: () => {},
      };
      const opened = { ...whole, ...change(file, name) };
      remembered.set(name, opened);
      return opened;
    },
    list: () => memory.list(),
    remove: (name) => memory.remove(name),
    ...storage,
  };
}

let closed = new WeakSet<StorageFile>();

const BROKEN: Record<string, () => CustomStorage> = {
  'short reads': () =>
    broken((file) => ({
      read: (at, into) => file.read(at, into.subarray(0, Math.max(Math.min(into.length, file.size() - at), 0))),
    })),
  'short writes': () => broken((file) => ({ write: (at, from) => file.write(at, from.subarray(0, 100_000)) })),
  'the start of the buffer instead of the given part': () =>
    broken((file) => ({
      write: (at, from) => file.write(at, new Uint8Array(from.buffer as ArrayBuffer, 0, from.length)),
    })),
  'a truncation that only remembers the size': () =>
    broken((file) => {
      let size = file.size();
      return {
        size: () => size,
        write: (at, from) => {
          file.write(at, from);
          size = Math.max(size, at + from.length);
        },
        truncate: (to) => {
          if (to > file.size()) file.truncate(to);
          size = to;
        },
        read: (at, into) => {
          if (at + into.length > size) throw new Error('end');
          file.read(at, into);
        },
      };
    }),
  'a truncation that does not extend': () =>
    broken((file) => ({ truncate: (size) => file.truncate(Math.min(size, file.size())) })),
  'one file under all names': () => {
    const memory = new MemoryStorage();
    return { ...broken(() => ({})), open: () => memory.open('data') };
  },
  'asynchronous flushes': () => broken(() => ({ flush: async () => {} })),
  'a second close that throws': () =>
    broken((file) => ({
      close: () => {
        if (closed.has(file)) throw new Error('closed');
        closed.add(file);
      },
    })),
  'files that are empty when they are opened': () => {
    const storage = broken((file) => {
      file.truncate(0);
      return {};
    });
    return storage;
  },
  'names listed twice': () => {
    const memory = new MemoryStorage();
    return {
      open: (name) => memory.open(name),
      list: () => [...memory.list(), ...memory.list()],
      remove: (name) => memory.remove(name),
    };
  },
  'removals without effect': () => broken(() => ({}), { remove: () => {} }),
  'an error for a missing file': () => {
    const memory = new MemoryStorage();
    return {
      open: (name) => memory.open(name),
      list: () => memory.list(),
      remove: (name) => {
        if (!memory.list().includes(name)) throw new Error('missing');
        memory.remove(name);
      },
    };
  },
};

for (const [what, make] of Object.entries(BROKEN)) {
  test(`detected: ${what}`, async () => {
    closed = new WeakSet();
    await assert.rejects(
      testStorage(make),
      (error: unknown) => error instanceof AggregateError && error.errors.length > 0,
    );
  });
}

test('detected: lack of room without a code for it', async () => {
  class Wordless extends FaultyStorage {
    override open(name: string): StorageFile {
      const file = super.open(name);
      const write = file.write.bind(file);
      file.write = (at, from) => {
        try {
          write(at, from);
        } catch {
          throw failure('EWHAT');
        }
      };
      return file;
    }
  }
  const setRoom = (storage: CustomStorage, bytes: number): void => {
    (storage as FaultyStorage).roomBytes = bytes;
  };
  await assert.rejects(
    testStorage(() => new Wordless(), { setRoom }),
    AggregateError,
  );
});

test('the documentation shows the tested example', () => {
  const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8');
  const code = read('../../kv/test/support/map-storage.ts').split('\n').slice(1).join('\n');
  assert.ok(read('../../../docs/STORAGE.md').includes(code));
});
