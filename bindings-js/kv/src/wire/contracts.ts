// What the API gives to the layers below it: declared here, so that imports go one way.
import type { FastCodec } from '../codec/fast.ts';
import type { KeyCodec } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';

/** Options for the engine and its host. */
export interface EngineOptions {
  readonly create: boolean;
  readonly exclusive: boolean;
  readonly readOnly: boolean;
  /** Another process may write to the files meanwhile. */
  readonly besideWriter?: boolean;
  readonly cacheBytes: number | undefined;
  readonly compression: string | undefined;
  readonly unitBytes: number | undefined;
  readonly nodeBytes: number | undefined;
  /** Number of commits kept for followers; 0 leaves the database's setting as it is. */
  readonly feedCommits: number;
  /** Whether timers purge expired entries and merge memtables. Default: true. */
  readonly worksInBackground?: boolean;
  /**
   * 16 random bytes, the identity of the database, if it is created, and of this opening; then the
   * secret of an encrypted database.
   */
  readonly opening: Uint8Array;
}

/** The state that a reader sees. */
export interface View {
  /** Id of an open snapshot or transaction; 0 for the newest version. */
  readonly id: number;
  readonly isClosed: boolean;
}

/** A collection as requests name it, with its codecs. */
export interface CodedCollection<K, V> {
  readonly name: string;
  /** Index in the connection (`Connection.use`). */
  readonly index: number;
  readonly key: KeyCodec<K>;
  readonly value: ValueCodec<V>;
  readonly fastKey: FastCodec<K> | undefined;
  readonly fastValue: FastCodec<V> | undefined;
}

/** Returns, or resolves to, what is stored for a value. */
export type Validate<V> = (value: unknown) => V | Promise<V>;

/** What the engine knows of an index. */
export interface IndexDefinition {
  readonly name: string;
  readonly version: number;
  readonly unique: boolean;
}

/**
 * Creates the objects of the synchronous API. Transports that support it carry this, so that the others
 * need not load the code; only the API knows more of it.
 */
export type SyncFaces = object;
