// What Node, Deno and Bun publish about calls on the tracing channel "mangrove-kv:call".

/**
 * The message of all events of one call on the tracing channel `"mangrove-kv:call"` of
 * `node:diagnostics_channel`: the same object in `start`, `end`, `asyncStart`, `asyncEnd` and `error`.
 * Databases that were opened while the channel had a subscriber are traced. Apart from `result` and `error`,
 * nothing in it contains a key or a value.
 */
export interface CallTrace {
  /** Name under which the database was opened, or is being opened. */
  readonly database: string;
  /** Where the data is kept; `undefined` for `open`. */
  readonly persistence: 'fs' | 'memory' | 'custom' | 'opfs' | 'indexeddb' | undefined;
  /** Name of the method, such as `"get"`, `"setMany"`, `"transaction"`, `"commit"`, `"flush"` or `"open"`. */
  readonly operation: string;
  /** Name of the collection, `""` for the default one; `undefined` if the call is not about one. */
  readonly collection: string | undefined;
  /** Name of the index that is read. */
  readonly index: string | undefined;
  /** What was called: the database or its collections, a transaction, or a snapshot. */
  readonly scope: 'database' | 'transaction' | 'snapshot';
  /** Whether it is a call of the synchronous API, which has no `asyncStart` and `asyncEnd`. */
  readonly isSync: boolean;
  /** Number of keys, entries or operations given to `getMany`, `hasMany`, `setMany`, `deleteMany` or `batch`, if known. */
  readonly count: number | undefined;
  /** Of `entries`, `keys`, `values` and `prefix`: items read so far. They end when the iterator does. */
  items?: number;
  /** Of `transaction` and `tryTransaction`: how often the callback was started, once more for each retry. */
  attempts?: number;
  /**
   * Makes the call. A subscriber to `start` may put a function around it, which has to return what it returns, so that
   * the call and its callbacks run in a context of the subscriber.
   */
  run: () => unknown;
  /** What the call returned or resolved to, from `end` or `asyncStart` on. */
  result?: unknown;
  /** What the call threw or rejected with, from `error` on. */
  error?: unknown;
}
