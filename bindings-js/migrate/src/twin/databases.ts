// The databases of a twin. All stores of a page share one handle for each database, as a tab has room for about a
// hundred of them.
import { KvError, open } from 'mangrove-kv';
import type { Database, Durability, OpenOptions } from 'mangrove-kv';
import { misnamed } from 'mangrove-kv/internal';
import type { Names } from 'mangrove-kv/internal';

// Derived from the environment, so that programs without the DOM types compile too.
type FactoryType = typeof globalThis extends { IDBFactory: new (...args: never[]) => infer F } ? F : object;

/** Where a twin keeps its data, and how it moves old data there. */
export interface TwinOptions {
  /**
   * First part of the names of the databases; in Node, Deno and Bun the directory that contains them, relative to the
   * current one. Default: the name of the library.
   */
  readonly directory?: string | undefined;
  /** Same as `storage` of `open`. Default: `"auto"`. In a browser without OPFS, IndexedDB. */
  readonly storage?: OpenOptions['storage'];
  /**
   * When a write resolves. Default: `"relaxed"`, as in IndexedDB: it survives the death of the page or process as soon
   * as it resolves, and a power cut 100 ms later.
   */
  readonly durability?: Durability | undefined;
  /**
   * Whether the object stores of IndexedDB stay as they are after their entries were moved. By default they are emptied,
   * unless the copy is in memory, or in IndexedDB for want of OPFS. Default: false.
   */
  readonly keepSource?: boolean | undefined;
  /**
   * What to do with entries of the IndexedDB database that only IndexedDB can hold, such as a CryptoKey or a file
   * handle, or with keys of more than 4,096 bytes or 64 arrays in each other: `"throw"` refuses the store with an error
   * that names the entry, `"leave"` leaves them, and the database, where they are. Default: `"throw"`.
   */
  readonly onUnmovable?: 'throw' | 'leave' | undefined;
  /** IndexedDB to move entries from. Default: the global one, if there is one. */
  readonly indexedDB?: FactoryType | undefined;
}

const NAMES: Names<TwinOptions> = {
  directory: 1,
  storage: 1,
  durability: 1,
  keepSource: 1,
  onUnmovable: 1,
  indexedDB: 1,
};

function invalid(message: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', message);
}

/** Checks the options of a call. */
export function checkTwinOptions(call: string, options: TwinOptions): void {
  const wrong = misnamed(call, options, NAMES);
  if (wrong !== undefined) throw invalid(wrong);
  const { directory, durability, keepSource, onUnmovable } = options;
  if (directory !== undefined && (typeof directory !== 'string' || directory === ''))
    throw invalid(`directory of ${call} has to be a name`);
  if (durability !== undefined && !['strict', 'relaxed', 'none'].includes(durability))
    throw invalid(`durability of ${call} has to be "strict", "relaxed" or "none"`);
  if (keepSource !== undefined && typeof keepSource !== 'boolean')
    throw invalid(`keepSource of ${call} has to be a boolean`);
  if (onUnmovable !== undefined && onUnmovable !== 'throw' && onUnmovable !== 'leave')
    throw invalid(`onUnmovable of ${call} has to be "throw" or "leave"`);
}

const handles = new Map<string, Promise<Database>>();

/** UTF-8, and for half a surrogate pair, which names in IndexedDB may have, what UTF-8 would be for its number. */
function bytesOf(character: string): Iterable<number> {
  const code = character.charCodeAt(0);
  return character.length === 1 && code >= 0xd800 && code < 0xe000
    ? [0xed, 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f)]
    : new TextEncoder().encode(character);
}

/** A name that file systems take, also those that do not tell upper from lower case. */
function escaped(name: string): string {
  const text = name.replace(/[^a-z0-9_-]/gu, (character) =>
    [...bytesOf(character)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''),
  );
  return text === '' ? '%' : text;
}

/** Name of the database that stands for an IndexedDB database. */
export function databaseName(directory: string, name: string): string {
  return `${directory}/${escaped(name)}`;
}

/** The database of that name, opened once. */
export function sharedDatabase(name: string, { storage, durability = 'relaxed' }: TwinOptions): Promise<Database> {
  const existing = handles.get(name);
  if (existing !== undefined) return existing;
  // Where IndexedDB works, its replacement should: private windows and service workers have nothing else.
  const handle = open(name, { storage, durability, onUnavailable: 'indexeddb' });
  handles.set(name, handle);
  const forget = (): void => {
    if (handles.get(name) === handle) handles.delete(name);
  };
  handle.then((db) => db.addEventListener('close', forget), forget);
  return handle;
}
