// What is read: a collection, in a state.
import { fastOf } from '../codec/fast.ts';
import type { FastCodec } from '../codec/fast.ts';
import type { KeyCodec } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import { KvError } from '../base/errors.ts';
import type { Connection } from './connection.ts';
import type { Validate } from '../api/schema.ts';

/** Name of the collection that the database itself is. */
export const DEFAULT_COLLECTION = '';

export function checkName(name: unknown): void {
  if (typeof name === 'string' && name !== DEFAULT_COLLECTION && !/\p{Surrogate}/u.test(name)) return;
  throw new KvError('KV_INVALID_ARGUMENT', 'a collection name has to be a well-formed string that is not empty');
}

/** Which state a reader sees. */
export interface View {
  /** 0 for the newest. */
  readonly id: number;
  readonly isClosed: boolean;
}

export const NEWEST: View = { id: 0, isClosed: false };

/** A collection as the client knows it. */
export interface Target<K, V> {
  readonly connection: Connection;
  readonly name: string;
  /** Its number in the connection. */
  readonly index: number;
  readonly key: KeyCodec<K>;
  readonly value: ValueCodec<V>;
  readonly fastKey: FastCodec<K> | undefined;
  readonly fastValue: FastCodec<V> | undefined;
  /** Milliseconds until entries expire that are stored without a time. */
  readonly expireIn: number | undefined;
  /** Gives what is stored for a value. */
  readonly validate: Validate<V> | undefined;
}

export function newTarget<K, V>(
  connection: Connection,
  name: string,
  key: KeyCodec<K>,
  value: ValueCodec<V>,
  options: Partial<Pick<Target<K, V>, 'expireIn' | 'validate'>> = {},
): Target<K, V> {
  const { expireIn, validate } = options;
  const index = connection.use(name, key.id, value.id);
  return { connection, name, index, key, value, fastKey: fastOf(key), fastValue: fastOf(value), expireIn, validate };
}

/** Whether keys and values are encoded and decoded without code of the caller's. */
export function isFast({ fastKey, fastValue }: { readonly fastKey: unknown; readonly fastValue: unknown }): boolean {
  return fastKey !== undefined && fastValue !== undefined;
}

/** Stands for a result that only a message brings. The same where this module is there more than once. */
export const ASK: unique symbol = Symbol.for('mangrove-kv.ask');
