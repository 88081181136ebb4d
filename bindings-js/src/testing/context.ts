// What the checks of a storage share.
import type { CustomStorage, Database, OpenOptions, StorageFile } from 'mangrove-kv';

/** Opens a database over a storage, as `open(name, { ...options, storage })` does. */
export type OpenDatabase = (storage: CustomStorage, options: Omit<OpenOptions, 'storage'>) => Promise<Database>;

/** Options of `testStorage`. */
export interface StorageTestOptions {
  /** Registers a test, as `test` of node:test, Vitest, Bun and Deno do. */
  test?: ((name: string, run: () => Promise<void>) => unknown) | undefined;
  /** Throws an error with the message if the value is falsy, as `assert` of node:assert and Chai do. */
  assert?: ((value: unknown, message: string) => void) | undefined;
  /**
   * A new object over the files of `storage`, all of which are closed, as after a restart of the program. Without it
   * the same object is used on.
   */
  reopen?: ((storage: CustomStorage) => CustomStorage | Promise<CustomStorage>) | undefined;
  /** Removes what a check made, when it is over. */
  dispose?: ((storage: CustomStorage) => void | Promise<void>) | undefined;
  /** Leaves room for this many bytes more; `Infinity` ends that. Without it running out of space is not tested. */
  setRoom?: ((storage: CustomStorage, bytes: number) => void) | undefined;
  /** Whether `remove` removes. A storage whose files are all held open cannot. Default true. */
  removes?: boolean | undefined;
  /** How a database is opened where `open` of `mangrove-kv` does not work. */
  open?: OpenDatabase | undefined;
}

export interface Check {
  readonly name: string;
  readonly run: () => Promise<void>;
}

/** One storage under test. */
export interface Subject {
  readonly storage: CustomStorage;
  /** Opens a file and remembers to close it. */
  file(name?: string): StorageFile;
  /** Closes all files and gives the storage after a restart. */
  reopen(): Promise<void>;
}

export interface Context {
  /** A check that gets an empty storage. */
  check(name: string, run: (subject: Subject) => void | Promise<void>): Check;
  assert(value: unknown, message: string): void;
  equal(actual: unknown, expected: unknown, what: string): void;
  /** What a call throws; it fails if it does not. */
  thrownBy(call: () => unknown, what: string): unknown;
  readonly options: StorageTestOptions;
  readonly open: OpenDatabase;
}

/** The engine's name for the file of the database. */
export const DATA = 'data';
/** The engine's name for the file of commits that are not in it yet. */
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
    this.storage = await this.#options.reopen?.(this.storage) ?? this.storage;
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
    equal: (actual, expected, what) => assert(Object.is(actual, expected), `${what}: ${String(actual)} instead of ${String(expected)}`),
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
