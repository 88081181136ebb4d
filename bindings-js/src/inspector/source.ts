// What is inspected, and how its collections are opened: by the ids of the codecs that they are stored with.
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import type { CollectionLayout, Database, Key, KeyCodec, Layout, Stats, ValueCodec } from 'mangrove-kv';

/** What the inspector needs of an iterator. */
export interface InspectedEntries {
  /** As of a `KvIterator`. */
  toArray(): Promise<readonly (readonly [key: unknown, value: unknown])[]>;
}

/** What the inspector needs of a collection: a `Collection` of any types is one. */
export interface InspectedCollection {
  /** `""` for the database's own. */
  readonly name: string;
  /** As of a `Collection`. */
  count(options?: object): Promise<number>;
  /** As of a `Collection`. */
  entries(options?: object): InspectedEntries;
}

/** What the inspector needs of a database: a `Database` of any types is one. */
export interface InspectedDatabase
  extends InspectedCollection, Pick<Database, 'path' | 'persistence' | 'stats' | 'layout' | 'verify' | 'compact' | 'backup'> {
  /** As of a `Database`. */
  collection(name: string, options: { key: KeyCodec<Key>; value: ValueCodec<unknown> }): InspectedCollection;
}

// What is decoded is only shown, so that its type does not matter.
const KEY_CODECS = [
  keyCodecs.any, keyCodecs.string, keyCodecs.utf8, keyCodecs.bytes, keyCodecs.uint32, keyCodecs.int53, keyCodecs.uint64, keyCodecs.tuple(),
] as readonly unknown[] as readonly KeyCodec<Key>[];
const VALUE_CODECS = [
  valueCodecs.structured(), valueCodecs.json(), valueCodecs.string, valueCodecs.bytes,
] as readonly unknown[] as readonly ValueCodec<unknown>[];

/** Above this a layout is only made when it is asked for. */
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

  /** The newest layout, or the one of before. */
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

  /** Whether a layout may be made after each commit. */
  get isLayoutCheap(): boolean {
    return this.#layoutMs < CHEAP_LAYOUT_MS;
  }

  /** A handle of a collection; undefined if its codecs are not known here. */
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

/** A collection's name for people. */
export function nameOf(name: string): string {
  return name === '' ? '(default)' : name;
}
