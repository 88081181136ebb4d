// The inspected database. Opens its collections with the codecs whose ids are stored with them.
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import type { CollectionLayout, Database, Key, KeyCodec, Layout, Stats, ValueCodec } from 'mangrove-kv';

/** The parts of an iterator that the inspector uses. */
export interface InspectedEntries {
  /** Same as `toArray` of a `KvIterator`. */
  toArray(): Promise<readonly (readonly [key: unknown, value: unknown])[]>;
}

/** The parts of a collection that the inspector uses. A `Collection` of any types fits. */
export interface InspectedCollection {
  /** The collection's name; `""` for the database's default collection. */
  readonly name: string;
  /** Same as `count` of a `Collection`. */
  count(options?: object): Promise<number>;
  /** Same as `entries` of a `Collection`. */
  entries(options?: object): InspectedEntries;
}

/** The parts of a database that the inspector uses. A `Database` of any types fits. */
export interface InspectedDatabase
  extends InspectedCollection, Pick<Database, 'path' | 'persistence' | 'stats' | 'layout' | 'verify' | 'compact' | 'backup'> {
  /** Same as `collection` of a `Database`. */
  collection(name: string, options: { key: KeyCodec<Key>; value: ValueCodec<unknown> }): InspectedCollection;
}

// Decoded values are only displayed, so their types do not matter.
const KEY_CODECS = [
  keyCodecs.any, keyCodecs.string, keyCodecs.utf8, keyCodecs.bytes, keyCodecs.uint32, keyCodecs.int53, keyCodecs.uint64, keyCodecs.tuple(),
] as readonly unknown[] as readonly KeyCodec<Key>[];
const VALUE_CODECS = [
  valueCodecs.structured(), valueCodecs.json(), valueCodecs.string, valueCodecs.bytes,
] as readonly unknown[] as readonly ValueCodec<unknown>[];

/** A layout that takes longer than this is only made on request. */
const CHEAP_LAYOUT_MS = 100;

export class Source {
  readonly database: InspectedDatabase;
  readonly #given: ReadonlyMap<string, InspectedCollection>;
  readonly #opened = new Map<string, InspectedCollection>();
  #layout: Promise<Layout> | undefined;
  #layoutMs = 0;

  constructor(database: InspectedDatabase, given: readonly InspectedCollection[]) {
    this.database = database;
    this.#given = new Map(given.map((collection) => [collection.name, collection]));
  }

  stats(): Promise<Stats> {
    return this.database.stats();
  }

  /** A new layout if `isFresh`, otherwise the latest one. */
  layout(isFresh: boolean): Promise<Layout> {
    if (this.#layout === undefined || isFresh) {
      const start = performance.now();
      const made = this.database.layout();
      this.#layout = made;
      made.then(
        () => { this.#layoutMs = performance.now() - start; },
        () => { if (this.#layout === made) this.#layout = undefined; },
      );
    }
    return this.#layout;
  }

  /** Whether a layout is cheap enough to be made after each commit. */
  get isLayoutCheap(): boolean {
    return this.#layoutMs < CHEAP_LAYOUT_MS;
  }

  /** Returns a handle of a collection; `undefined` if its codecs are unknown here. */
  open({ name, keyCodec, valueCodec }: CollectionLayout): InspectedCollection | undefined {
    const given = this.#given.get(name);
    if (given !== undefined) return given;
    if (name === '') return this.database;
    const id = JSON.stringify([name, keyCodec, valueCodec]);
    let collection = this.#opened.get(id);
    if (collection === undefined) {
      const key = KEY_CODECS.find((codec) => codec.id === keyCodec);
      const value = VALUE_CODECS.find((codec) => codec.id === valueCodec);
      if (key === undefined || value === undefined) return undefined;
      collection = this.database.collection(name, { key, value });
      this.#opened.set(id, collection);
    }
    return collection;
  }
}

/** Display name of a collection. */
export function nameOf(name: string): string {
  return name === '' ? '(default)' : name;
}
