// What requests refer to: a collection, and the state in which it is read.
import { fastOf } from '../codec/fast.ts';
import type { KeyCodec } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import { KvError } from '../base/errors.ts';
import type { BuildIndexesOptions } from '../types/indexes.ts';
import type { Connection } from './connection.ts';
import type { CodedCollection, IndexDefinition, Validate, View } from './contracts.ts';

/** Name of the default collection, which the database object itself stands for. */
export const DEFAULT_COLLECTION = '';

/** The collection that holds the schema version. */
export const SCHEMA_COLLECTION = 'mangrove:schema';

export function checkName(name: unknown): void {
  if (typeof name === 'string' && name !== DEFAULT_COLLECTION && !/\p{Surrogate}/u.test(name)) return;
  throw new KvError('KV_INVALID_ARGUMENT', 'a collection name has to be a well-formed string that is not empty');
}

export const NEWEST: View = { id: 0, isClosed: false };

/** The indexes that a collection was opened with. */
export interface TargetIndexes<K, V> {
  readonly definitions: IndexDefinition[];
  /** Place of an index among those declared. */
  place(name: string): number;
  /** A record's index keys, as the engine reads them in a batch: a view that is valid until the next call. */
  keysOf(key: K, value: V): Uint8Array;
  /** Declares the indexes to the engine, unless that was done; `undefined` once it has succeeded. */
  declare(target: Target<K, V>): Promise<void> | undefined;
  /** As `declare`; with `waits`, until they are built. */
  ready(target: Target<K, V>, waits: boolean): Promise<void> | undefined;
  /** As `declare`, at once. */
  declareSync(target: Target<K, V>): void;
  /** Forgets that the indexes were declared, as they may be gone. */
  forget(target: Target<K, V>): void;
  /** Declares the indexes, and builds those that are not complete. */
  begin(target: Target<K, V>): void;
  build(target: Target<K, V>, options: BuildIndexesOptions): Promise<void>;
}

/** A collection as the client knows it. */
export interface Target<K, V> extends CodedCollection<K, V> {
  readonly connection: Connection;
  /** Time to live, in milliseconds, of entries stored without an expiry of their own. */
  readonly expireIn: number | undefined;
  /** Throws if the value is invalid. */
  readonly validate: Validate<V> | undefined;
  readonly indexes: TargetIndexes<K, V> | undefined;
}

export function newTarget<K, V>(
  connection: Connection,
  name: string,
  key: KeyCodec<K>,
  value: ValueCodec<V>,
  options: Partial<Pick<Target<K, V>, 'expireIn' | 'validate' | 'indexes'>> = {},
): Target<K, V> {
  const { expireIn, validate, indexes } = options;
  const index = connection.use(name, key.id, value.id, indexes?.definitions);
  const target = {
    connection,
    name,
    index,
    key,
    value,
    fastKey: fastOf(key),
    fastValue: fastOf(value),
    expireIn,
    validate,
    indexes,
  };
  indexes?.begin(target);
  return target;
}
