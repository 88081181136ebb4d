// Shared by the checks of a storage.
import type { CustomStorage, Database, OpenOptions, StorageFile } from 'mangrove-kv';

/** Opens a database over a storage, as `open(name, { ...options, storage })` does. */
export type OpenDatabase = (storage: CustomStorage, options: Omit<OpenOptions, 'storage'>) => Promise<Database>;

/** Options of `testStorage`. */
export interface StorageTestOptions {
  /** Registers a test, as `test` of node:test, Vitest, Bun and Deno do. */
  test?: ((name: string, run: () => Promise<void>) => unknown) | undefined;
  /**
   * Throws an error with the message if the value is falsy, as `assert` of node:assert and Chai do.
   */
  assert?: ((value: unknown, message: string) => void) | undefined;
  /**
   * Returns a new object over the files of `storage`, all of which are closed, as after a restart
   * of the program. Without it the same object stays in use.
   */
  reopen?: ((storage: CustomStorage) => CustomStorage | Promise<CustomStorage>) | undefined;
  /** Removes what a check created, after the check. */
  dispose?: ((storage: CustomStorage) => void | Promise<void>) | undefined;
  /**
   * Leaves room for this many more bytes; `Infinity` lifts the limit. Without it, running out of
   * space is not tested.
   */
  setRoom?: ((storage: CustomStorage, bytes: number) => void) | undefined;
  /**
   * Whether `remove` removes files. A storage that holds all of its files open cannot. Default:
   * true.
   */
  removes?: boolean | undefined;
  /** Opens a database where `open` of `mangrove-kv` does not work. */
  open?: OpenDatabase | undefined;
}

export interface Check {
  readonly name: string;
  readonly run: () => Promise<void>;
}

/** One storage under test. */
export interface Subject {
  readonly storage: CustomStorage;
  /** Opens a file, which is closed automatically later. */
  file(name?: string): StorageFile;
  /** Closes all files and replaces `storage` with the storage after a restart. */
  reopen(): Promise<void>;
}

export interface Context {
  /** Defines a check, which receives an empty storage. */
  check(name: string, run: (subject: Subject) => void | Promise<void>): Check;
  assert(value: unknown, message: string): void;
  equal(actual: unknown, expected: unknown, what: string): void;
  /** Returns what the call throws; the check fails if it does not throw. */
  thrownBy(call: () => unknown, what: string): unknown;
  readonly options: StorageTestOptions;
  readonly open: OpenDatabase;
}

/** The engine's name for the data file. */
export const DATA = 'data';
/** The engine's name for the log: commits that are not in the data file yet. */
export const LOG = 'log';

class StorageUnderTest implements Subject {
  storage: CustomStorage;
  readonly #options: StorageTestOptions;
  #files: StorageFile[] = [];

  constructor(storage: CustomStorage, options: StorageTestOptions) {
    this.storage = storage;
    this.#options = options;
  }

  file(name: string = DATA): StorageFile {
    const file = this.storage.open(name);
    this.#files.push(file);
    return file;
  }

  async reopen(): Promise<void> {
    this.#closeAll();
    this.storage = (await this.#options.reopen?.(this.storage)) ?? this.storage;
  }

  async end(): Promise<void> {
    this.#closeAll();
    await this.#options.dispose?.(this.storage);
  }

  #closeAll(): void {
    for (const file of this.#files.splice(0)) file.close();
  }
}

function assertPlainly(value: unknown, message: string): void {
  if (!value) throw new Error(message);
}

const openDatabase: OpenDatabase = async (storage, options) => {
  const { open } = await import('mangrove-kv');
  return open('storage test', { ...options, storage });
};

export function toContext(
  makeStorage: () => CustomStorage | Promise<CustomStorage>,
  options: StorageTestOptions,
): Context {
  const assert = options.assert ?? assertPlainly;
  const run = async (body: (subject: Subject) => void | Promise<void>): Promise<void> => {
    const subject = new StorageUnderTest(await makeStorage(), options);
    try {
      await body(subject);
    } finally {
      await subject.end();
    }
  };
  return {
    check: (name, body) => ({ name, run: () => run(body) }),
    assert,
    equal: (actual, expected, what) =>
      assert(Object.is(actual, expected), `${what}: ${String(actual)} instead of ${String(expected)}`),
    thrownBy: (call, what) => {
      try {
        call();
      } catch (error) {
        return error;
      }
      return assert(false, `${what} has to throw`);
    },
    options,
    open: options.open ?? openDatabase,
  };
}
