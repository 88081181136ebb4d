// The inspected database. Opens its collections with the codecs whose ids are stored with them.
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import type {
  CollectionLayout,
  Database,
  IndexOptions,
  IndexStats,
  Key,
  KeyCodec,
  Layout,
  Stats,
  ValueCodec,
} from 'mangrove-kv';

/** The parts of an iterator that the inspector uses. */
export interface InspectedEntries {
  /** Same as `toArray` of a `KvIterator`. */
  toArray(): Promise<readonly (readonly [key: unknown, value: unknown])[]>;
}

/** An entry as it is found in an index. */
export interface InspectedIndexEntry {
  readonly indexKey: unknown;
  readonly key: unknown;
  readonly value: unknown;
}

/** The parts of an index that the inspector uses. An `Index` of any types fits. */
export interface InspectedIndex {
  /** Same as `count` of an `Index`. */
  count(options?: object): Promise<number>;
  /** Same as `entries` of an `Index`. */
  entries(options?: object): {
    /** Same as `toArray` of a `KvIterator`. */
    toArray(): Promise<readonly InspectedIndexEntry[]>;
  };
}

/** The parts of a collection that the inspector uses. A `Collection` of any types fits. */
export interface InspectedCollection {
  /** The collection's name; `""` for the database's default collection. */
  readonly name: string;
  /** Same as `count` of a `Collection`. */
  count(options?: object): Promise<number>;
  /** Same as `entries` of a `Collection`. */
  entries(options?: object): InspectedEntries;
  /** Same as `index` of a `Collection`. */
  index(name: string): InspectedIndex;
}

/** The parts of a database that the inspector uses. A `Database` of any types fits. */
export interface InspectedDatabase
  extends InspectedCollection,
    Pick<Database, 'path' | 'persistence' | 'bucket' | 'stats' | 'layout' | 'verify' | 'compact' | 'backup'> {
  /** Same as `collection` of a `Database`. */
  collection(
    name: string,
    options: {
      key: KeyCodec<Key>;
      value: ValueCodec<unknown>;
      indexes?: { readonly [name: string]: IndexOptions<Key, unknown> };
    },
  ): InspectedCollection;
}

// Decoded values are only displayed, so their types do not matter.
const KEY_CODECS = [
  keyCodecs.any,
  keyCodecs.string,
  keyCodecs.utf8,
  keyCodecs.bytes,
  keyCodecs.uint32,
  keyCodecs.int53,
  keyCodecs.uint64,
  keyCodecs.tuple(),
] as readonly unknown[] as readonly KeyCodec<Key>[];
const VALUE_CODECS = [
  valueCodecs.structured(),
  valueCodecs.json(),
  valueCodecs.string,
  valueCodecs.bytes,
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
        () => {
          this.#layoutMs = performance.now() - start;
        },
        () => {
          if (this.#layout === made) this.#layout = undefined;
        },
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
      const codecs = codecsOf({ keyCodec, valueCodec });
      if (codecs === undefined) return undefined;
      collection = this.database.collection(name, codecs);
      this.#opened.set(id, collection);
    }
    return collection;
  }

  /** Returns an index of a collection, as it is stored; `undefined` if it cannot be opened here. */
  openIndex(layout: CollectionLayout, { name, unique, version }: IndexStats): InspectedIndex | undefined {
    const given = layout.name === '' ? this.database : this.#given.get(layout.name);
    try {
      if (given !== undefined) return given.index(name);
    } catch {
      // That handle does not declare the index.
    }
    const codecs = codecsOf(layout);
    if (layout.name === '' || codecs === undefined) return undefined;
    return this.database
      .collection(layout.name, { ...codecs, indexes: { [name]: { key: 'stored', unique, version } } })
      .index(name);
  }
}

/** The codecs of a collection; `undefined` unless both are known. */
function codecsOf({
  keyCodec,
  valueCodec,
}: Pick<CollectionLayout, 'keyCodec' | 'valueCodec'>):
  | { readonly key: KeyCodec<Key>; readonly value: ValueCodec<unknown> }
  | undefined {
  const key = KEY_CODECS.find((codec) => codec.id === keyCodec);
  const value = VALUE_CODECS.find((codec) => codec.id === valueCodec);
  return key && value && { key, value };
}

/** Display name of a collection. */
export function nameOf(name: string): string {
  return name === '' ? '(default)' : name;
}
