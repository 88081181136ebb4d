// What keys are, and what bounds ranges of them.

/**
 * Keys that the default key codec accepts, in this order: null < false < true < number < bigint <
 * Date < string < binary < array.
 */
export type Key = null | boolean | number | bigint | string | Date | Uint8Array | ArrayBuffer | readonly Key[];

/**
 * Sorts after every key. Allowed only in bounds: `{ gt: ['ada', MAX_KEY] }` skips all of ada's
 * keys.
 */
export const MAX_KEY: unique symbol = Symbol.for('mangrove-kv.MAX_KEY');

/**
 * A key or, for tuple keys, also any leading part of one: `['ada']` for
 * `[user: string, id: number]`.
 */
export type KeyPrefix<K> = K | (K extends readonly [...infer Head, unknown] ? KeyPrefix<Head> : never);

/**
 * A key, a leading part of a tuple key, or either with {@link MAX_KEY}, which means "after all of
 * these".
 */
export type Bound<K> = K | (K extends readonly [...infer Head, unknown]
  ? readonly [...Head, typeof MAX_KEY] | Bound<Head>
  : typeof MAX_KEY);
