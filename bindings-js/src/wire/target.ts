// What requests refer to: a collection, and the state in which it is read.
import { fastOf } from '../codec/fast.ts';
import type { FastCodec } from '../codec/fast.ts';
import type { KeyCodec } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import { KvError } from '../base/errors.ts';
import type { Connection } from './connection.ts';
import type { Indexes } from '../api/indexes.ts';
import type { Validate } from '../api/schema.ts';

/** Name of the default collection, which the database object itself stands for. */
export const DEFAULT_COLLECTION = '';

/** The collection that holds the schema version. */
export const SCHEMA_COLLECTION = 'mangrove:schema';

export function checkName(name: unknown): void {
  if (typeof name === 'string' && name !== DEFAULT_COLLECTION && !/\p{Surrogate}/u.test(name)) return;
  throw new KvError('KV_INVALID_ARGUMENT', 'a collection name has to be a well-formed string that is not empty');
}

/** The state that a reader sees. */
export interface View {
  /** Id of an open snapshot or transaction; 0 for the newest version. */
  readonly id: number;
  readonly isClosed: boolean;
}

export const NEWEST: View = { id: 0, isClosed: false };

/** A collection as the client knows it. */
export interface Target<K, V> {
  readonly connection: Connection;
  readonly name: string;
  /** Index in the connection (`Connection.use`). */
  readonly index: number;
  readonly key: KeyCodec<K>;
  readonly value: ValueCodec<V>;
  readonly fastKey: FastCodec<K> | undefined;
  readonly fastValue: FastCodec<V> | undefined;
  /** Time to live, in milliseconds, of entries stored without an expiry of their own. */
  readonly expireIn: number | undefined;
  /** Returns, or resolves to, what is stored for a value; throws if the value is invalid. */
  readonly validate: Validate<V> | undefined;
  /** The indexes that it was opened with. */
  readonly indexes: Indexes<K, V> | undefined;
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
  const target = { connection, name, index, key, value, fastKey: fastOf(key), fastValue: fastOf(value), expireIn, validate, indexes };
  indexes?.begin(target);
  return target;
}

/** Whether encoding and decoding keys and values runs none of the caller's code. */
export function isFast({ fastKey, fastValue }: { readonly fastKey: unknown; readonly fastValue: unknown }): boolean {
  return fastKey !== undefined && fastValue !== undefined;
}

/**
 * In place of a result: the request has to be sent as a message. `Symbol.for` makes it the same in
 * all copies of this module.
 */
export const ASK: unique symbol = Symbol.for('mangrove-kv.ask');
