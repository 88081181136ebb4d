// Which databases have something mirrored. Live queries look here, and load nothing of the rest.
import type { Connection } from '../wire/connection.ts';
import type { Span } from './sorted-entries.ts';
import type { Store, Viewer } from './store.ts';

/** Looks at what is mirrored, and is told when that has changed. */
export interface View extends Viewer {
  span: Span;
  readonly store: Store;
  onChange(): void;
}

/** What is mirrored of one database. */
export interface MirroredStores {
  /** The store of a collection or an index, by a name that tells how it is decoded. */
  store(name: string): Store | undefined;
  /** Tells a view of changes, until the returned function is called. */
  watch(view: View): () => void;
  /** To be called before a read, which sees nothing that has expired. */
  expire(store: Store): void;
  /** Whether there may be newer commits that cannot be read now. */
  readonly isStale: boolean;
  /** Why they cannot be read. */
  readonly error: unknown;
}

// By a symbol of the registry of all: mirrors and live queries are files of their own, each with a copy of this one.
const HUB: unique symbol = Symbol.for('mangrove-kv.mirrors') as never;

interface Mirroring {
  [HUB]?: MirroredStores;
}

export function hubOf(connection: Connection): MirroredStores | undefined {
  return (connection as unknown as Mirroring)[HUB];
}

export function setHub(connection: Connection, hub: MirroredStores): void {
  (connection as unknown as Mirroring)[HUB] = hub;
}
