// The storage on access handles, with handles that fail as handles of browsers were seen to fail.
// Real ones are tested in browsers, but no browser can be told to run out of space or to release a
// file late.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpfsStorage, directoryName, toKvError } from '../src/storage/opfs.ts';
import { code, rejects } from './support/kit.ts';

class Handle {
  bytes = new Uint8Array(0);
  /** What `write` returns instead of writing. */
  writeResult: number | undefined;
  readResult: number | undefined;
  closed = 0;
  sizesAsked = 0;

  read(into: Uint8Array, { at }: { at: number }): number {
    const part = this.bytes.subarray(at, at + into.length);
    into.set(part);
    return this.readResult ?? part.length;
  }

  write(from: Uint8Array, { at }: { at: number }): number {
    if (this.writeResult !== undefined) return this.writeResult;
    const grown = new Uint8Array(Math.max(this.bytes.length, at + from.length));
    grown.set(this.bytes);
    grown.set(from, at);
    this.bytes = grown;
    return from.length;
  }

  flush(): void {}

  getSize(): number {
    this.sizesAsked++;
    return this.bytes.length;
  }

  truncate(size: number): void {
    if (size > 1e6) throw new DOMException('no room', 'QuotaExceededError');
    this.bytes = this.bytes.slice(0, size);
  }

  close(): void {
    this.closed++;
  }
}

class FileSystem {
  /** Handle of the data file. */
  readonly handle = new Handle();
  readonly #log = new Handle();
  hasLog = false;
  /** Content of the data file for a later look, if not what the handle wrote. */
  stored: Uint8Array<ArrayBuffer> | undefined;
  /** Errors with which the next attempts to open reject. */
  refusals: unknown[] = [];
  attempts = 0;
  /** What an attempt to open returns, if not the handle. */
  answer: Promise<Handle> | undefined;
  isCreated = false;
  /** The data file was removed. */
  isMissing = false;
  readonly removed: string[] = [];
  /** Files created to find out whether handles open at all. */
  readonly probes = new Set<string>();

  /** Runs `use` with this as the browser's file system. */
  async install(use: () => Promise<void>): Promise<void> {
    const file = {
      getFile: async () => new Blob([this.stored ?? this.handle.bytes]),
      createSyncAccessHandle: async () => {
        this.attempts++;
        const refusal = this.refusals.shift();
        if (refusal !== undefined) throw refusal;
        return await (this.answer ?? this.handle);
      },
    };
    const log = { createSyncAccessHandle: async () => this.#log };
    const missing = (): never => {
      throw new DOMException('nothing there', 'NotFoundError');
    };
    const directory = {
      getDirectoryHandle: async (_name: string, { create }: { create: boolean }) => {
        this.isCreated ||= create;
        return this.isCreated ? directory : missing();
      },
      getFileHandle: async (name: string, { create = false }: { create?: boolean } = {}) => {
        if (name.startsWith('mangrove-')) this.probes.add(name);
        if (name === 'data.restored') return missing();
        if (name !== 'log') return create || (this.isCreated && !this.isMissing) ? file : missing();
        this.hasLog ||= create;
        return this.hasLog ? log : missing();
      },
      removeEntry: async (name: string) => void (this.probes.delete(name) || this.removed.push(name)),
    };
    const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
    Object.defineProperty(globalThis, 'navigator', {
      configurable: true,
      value: { storage: { getDirectory: async () => directory } },
    });
    try {
      await use();
    } finally {
      if (before === undefined) delete (globalThis as { navigator?: unknown }).navigator;
      else Object.defineProperty(globalThis, 'navigator', before);
    }
    assert.deepEqual(this.removed, [], 'nothing else is ever removed');
    assert.equal(this.probes.size, 0);
  }
}

const held = (name: string): DOMException => new DOMException('held', name);

test('open waits for a file that is held, and then opens it', async () => {
  const system = new FileSystem();
  system.refusals = [held('NoModificationAllowedError'), held('InvalidStateError'), held('NoModificationAllowedError')];
  await system.install(async () => {
    const storage = await OpfsStorage.open('a', true, 10_000);
    assert.equal(system.attempts, 4);
    await storage.close();
    await storage.close();
    assert.equal(system.handle.closed, 1);
  });
});

test('open does not wait for a browser that opens no handles and says that files are held', async () => {
  const system = new FileSystem();
  system.refusals = [held('InvalidStateError'), held('NotSupportedError')];
  await system.install(async () => {
    await rejects(OpfsStorage.open('a', true, 60_000), 'KV_UNSUPPORTED');
    assert.equal(system.attempts, 2);
    // The second refusal is of the probe file.
    for (const refusal of [undefined, held('UnknownError')]) {
      system.refusals = [held('InvalidStateError'), refusal];
      (await OpfsStorage.open('a', true, 60_000)).close();
    }
    assert.equal(system.attempts, 8);
  });
});

test('open gives up with KV_LOCKED after the time allowed', async () => {
  const system = new FileSystem();
  system.refusals = Array.from({ length: 100 }, () => held('NoModificationAllowedError'));
  await system.install(async () => {
    await rejects(OpfsStorage.open('a', true, 0), 'KV_LOCKED');
    assert.equal(system.attempts, 1);
    await rejects(OpfsStorage.open('a', true, 30), 'KV_LOCKED');
    assert.ok(system.attempts > 2);
  });
});

test('other failures are not retried', async () => {
  for (const [name, expected] of [
    ['SecurityError', 'KV_UNSUPPORTED'],
    ['NotSupportedError', 'KV_UNSUPPORTED'],
    ['UnknownError', 'KV_IO'],
    ['QuotaExceededError', 'KV_QUOTA_EXCEEDED'],
  ] as const) {
    const system = new FileSystem();
    system.refusals = [held(name)];
    await system.install(async () => {
      await rejects(OpfsStorage.open('a', true, 10_000), expected);
      assert.equal(system.attempts, 1);
    });
  }
});

test('a private window is unsupported, whatever error its browser reports', async () => {
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  const getDirectory = (): Promise<never> => Promise.reject(new DOMException('transient', 'UnknownError'));
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { storage: { getDirectory } } });
  try {
    await rejects(OpfsStorage.open('a', true, 10_000), 'KV_UNSUPPORTED');
  } finally {
    if (before === undefined) delete (globalThis as { navigator?: unknown }).navigator;
    else Object.defineProperty(globalThis, 'navigator', before);
  }
});

test('the error that Firefox reports for lack of room is recognized', () => {
  const error = Object.assign(new Error(''), { name: 'NS_ERROR_FILE_NO_DEVICE_SPACE' });
  assert.equal(toKvError(error, 'truncate').code, 'KV_QUOTA_EXCEEDED');
});

test('asking for a missing database creates nothing', async () => {
  const system = new FileSystem();
  await system.install(async () => {
    await rejects(OpfsStorage.open('a', false, 0), 'KV_NOT_FOUND');
    assert.equal(system.isCreated, false);
    assert.equal(system.attempts, 0);
  });
});

test('a short or negative count is an error, whatever else the browser says', async () => {
  const system = new FileSystem();
  await system.install(async () => {
    const storage = await OpfsStorage.open('a', true, 0);
    const file = storage.open('data');
    file.write(0, new Uint8Array(100).fill(1));
    assert.equal(file.size(), 100);
    for (const count of [0, 99, 101, -8, 4294967288, NaN]) {
      system.handle.writeResult = count;
      assert.throws(() => file.write(100, new Uint8Array(100)), code('KV_QUOTA_EXCEEDED'));
      assert.equal(file.size(), 100);
    }
    system.handle.writeResult = undefined;
    file.write(100, new Uint8Array(100).fill(2));
    const into = new Uint8Array(200);
    file.read(0, into);
    assert.equal(
      into.reduce((sum, byte) => sum + byte, 0),
      300,
    );
    assert.throws(() => file.read(150, new Uint8Array(100)), code('KV_IO'));
    system.handle.readResult = -1;
    assert.throws(() => file.read(0, new Uint8Array(100)), code('KV_IO'));
    assert.throws(() => file.truncate(1e9), code('KV_QUOTA_EXCEEDED'));
    assert.equal(file.size(), 200);
    file.close();
    assert.throws(() => file.write(0, new Uint8Array(1)), code('KV_CLOSED'));
    await storage.close();
  });
});

test('a handle that cannot report its size hides no other failure', async () => {
  const system = new FileSystem();
  await system.install(async () => {
    const storage = await OpfsStorage.open('a', true, 0);
    const file = storage.open('data');
    system.handle.writeResult = -8;
    system.handle.getSize = () => {
      throw new DOMException('no answer', 'InvalidStateError');
    };
    assert.throws(() => file.write(0, new Uint8Array(1)), code('KV_QUOTA_EXCEEDED'));
  });
});

/** A data file, as far as it distinguishes one database from others. */
function dataFile(id: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(8192).fill(id);
}

test('removed files are noticed after a write, and their handles are not closed', async (context) => {
  for (const found of ['nothing', 'another database', 'an empty file'] as const) {
    const system = new FileSystem();
    await system.install(async () => {
      context.mock.timers.enable({ apis: ['setTimeout'] });
      const storage = await OpfsStorage.open('a', true, 0);
      const lost: unknown[] = [];
      storage.onLost = (error) => lost.push(error);
      const file = storage.open('data');
      file.write(0, dataFile(1));
      const look = async (): Promise<void> => {
        context.mock.timers.tick(1000);
        // The check itself takes some turns.
        for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
      };
      await look();
      assert.equal(lost.length, 0);
      if (found === 'nothing') system.isMissing = true;
      else system.stored = found === 'an empty file' ? new Uint8Array(0) : dataFile(2);
      await look();
      assert.equal(lost.length, 0, 'nobody wrote');
      file.write(0, dataFile(1));
      await look();
      assert.equal(lost.length, 1);
      assert.ok(code('KV_EVICTED')(lost[0]));
      context.mock.timers.reset();
      await storage.close();
      assert.equal(system.handle.closed, 0, 'closing it might never return');
      assert.equal(lost.length, 1, 'reported once');
    });
  }
});

test('removed files are noticed when they are closed', async () => {
  const system = new FileSystem();
  await system.install(async () => {
    const storage = await OpfsStorage.open('a', true, 0);
    storage.open('data').write(0, dataFile(1));
    system.stored = dataFile(2);
    await storage.close();
    assert.equal(system.handle.closed, 0);
  });
});

test('a browser that does not answer causes KV_TIMEOUT', async (context) => {
  const system = new FileSystem();
  system.answer = new Promise(() => undefined);
  await system.install(async () => {
    context.mock.timers.enable({ apis: ['setTimeout'] });
    const opening = OpfsStorage.open('a', true, 0);
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
    context.mock.timers.tick(30_000);
    await rejects(opening, 'KV_TIMEOUT');
    context.mock.timers.reset();
  });
});

test('the size is not queried each time', async () => {
  const system = new FileSystem();
  await system.install(async () => {
    const file = (await OpfsStorage.open('a', true, 0)).open('data');
    for (let at = 0; at < 50; at++) {
      file.write(at, new Uint8Array(1));
      file.size();
    }
    assert.ok(system.handle.sizesAsked <= 2);
  });
});

test('a file without content is not yet a database', async () => {
  const system = new FileSystem();
  await system.install(async () => {
    const storage = await OpfsStorage.open('a', true, 0);
    assert.deepEqual(storage.list(), []);
    storage.open('data').write(0, new Uint8Array(1));
    assert.deepEqual(storage.list(), ['data']);
    assert.deepEqual((await OpfsStorage.open('a', true, 0)).list(), ['data', 'log'], 'the log is there from now on');
    assert.throws(() => storage.remove('data'), code('KV_IO'));
    assert.throws(() => storage.open('other'), code('KV_IO'));
  });
});

test('every name has its own directory', () => {
  const names = ['a', 'A', '.', '..', '...', 'a/b', 'a%2Fb', 'ä', '%2E', ' ', 'con', '\\', 'a\0b'];
  const directories = names.map(directoryName);
  assert.equal(new Set(directories).size, names.length);
  for (const [index, directory] of directories.entries()) {
    assert.doesNotMatch(directory, /^\.{1,2}$|[/\\\0]/);
    assert.equal(decodeURIComponent(directory), names[index]);
  }
  for (const name of ['', '\ud800']) assert.throws(() => directoryName(name), code('KV_INVALID_ARGUMENT'));
});
