// Strict transactions: run on the log's newest state, and are in the log only if nothing came
// between.
import { KvError } from 'mangrove-kv';
import { isSuperseded, keyText } from 'mangrove-kv/internal';
import type { Collection, Key, Reader, Transaction, Writer } from 'mangrove-kv';
import { keyId } from './key-ranges.ts';
import { STRICT } from './record.ts';
import type { ReplicationOp } from './record.ts';
import type { ReplicaState } from './state.ts';
import type { Bytes, KnownTable, Tables } from './tables.ts';

/** A transaction on the newest state of the log. */
export interface StrictTransaction {
  /**
   * A collection, by handle or by name with the default codecs; the database is the handle of the
   * default collection. All can be read, keys in mode "strict" can be written; other writes throw
   * KV_REPLICATION_MODE.
   */
  collection<K = Key, V = unknown, I = V>(collection: Collection<K, V, I> | string): Reader<K, V> & Writer<K, V, I>;
}

/** Options of `Replication.transaction`. */
export interface StrictOptions {
  /**
   * How often the function runs again after conflicts, or because what it read is lost with the tab
   * that kept it. Default: 100.
   */
  readonly maxRetries?: number | undefined;
  /** Gives up waiting. If the record was sent already, it may still take effect. */
  readonly signal?: AbortSignal | undefined;
}

type AnyCollection = Reader<unknown, unknown> & Writer<unknown, unknown>;

/** The keys that calls of these names write, by the call's arguments. */
const WRITES: { readonly [name: string]: (args: readonly unknown[]) => Iterable<unknown> } = {
  set: ([key]) => [key],
  setStream: ([key]) => [key],
  delete: ([key]) => [key],
  update: ([key]) => [key],
  getOrInsert: ([key]) => [key],
  getOrInsertComputed: ([key]) => [key],
  deleteMany: ([keys]) => keys as Iterable<unknown>,
  setMany: ([entries]) => Array.from(entries as Iterable<readonly [unknown, unknown]>, ([key]) => key),
};

/** Passes calls to a transaction, and notes which keys are written. */
class Recorder implements StrictTransaction {
  readonly #tx: Transaction;
  readonly #tables: Tables;
  readonly #touched = new Map<KnownTable, Map<string, Bytes>>();

  constructor(tx: Transaction, tables: Tables) {
    this.#tx = tx;
    this.#tables = tables;
  }

  collection<K = Key, V = unknown, I = V>(collection: Collection<K, V, I> | string): Reader<K, V> & Writer<K, V, I> {
    const name = typeof collection === 'string' ? collection : collection.name;
    const handle = this.#tx.collection(collection as Collection<unknown, unknown>);
    return this.#recording(name, handle) as unknown as Reader<K, V> & Writer<K, V, I>;
  }

  #recording(name: string, handle: AnyCollection): AnyCollection {
    return new Proxy(handle, {
      get: (target, property) => {
        const member: unknown = Reflect.get(target, property, target);
        if (typeof member !== 'function') return member;
        const call = member.bind(target) as (...args: unknown[]) => unknown;
        if (property === 'clear') return (...args: unknown[]) => this.#clear(name, target, args, call);
        const keysOf = typeof property === 'string' && Object.hasOwn(WRITES, property) ? WRITES[property] : undefined;
        if (keysOf === undefined) return call;
        return async (...given: unknown[]) => {
          // An iterable can be read once.
          const [first, ...rest] = given;
          const args =
            property === 'setMany' || property === 'deleteMany' ? [[...(first as Iterable<unknown>)], ...rest] : given;
          const table = this.#writable(name);
          for (const key of keysOf(args)) this.#touch(table, key);
          return call(...args);
        };
      },
    });
  }

  async #clear(
    name: string,
    target: AnyCollection,
    args: unknown[],
    call: (...args: unknown[]) => unknown,
  ): Promise<unknown> {
    const table = this.#writable(name);
    for await (const key of target.keys(...(args.slice(0, 1) as [object]))) this.#touch(table, key);
    return call(...args);
  }

  #writable(name: string): KnownTable {
    const table = this.#tables.byName.get(name);
    if (table?.modes.has('strict') === true) return table;
    throw new KvError(
      'KV_REPLICATION_MODE',
      `replication.transaction writes collections in mode "strict" only, and ${JSON.stringify(name)} is not one; write it with db.transaction`,
    );
  }

  #touch(table: KnownTable, given: unknown): void {
    const key = table.key.encode(given);
    if (!table.modes.isStrict(key)) {
      throw new KvError(
        'KV_REPLICATION_MODE',
        `replication.transaction writes keys in mode "strict" only, and ${keyText(given)} of collection ${JSON.stringify(table.name)} is not one; write it with db.transaction`,
      );
    }
    let keys = this.#touched.get(table);
    if (keys === undefined) this.#touched.set(table, (keys = new Map()));
    // A copy: codecs may use a buffer again.
    keys.set(keyId(key), key.slice());
  }

  /** What the transaction leaves of each key that it wrote. */
  async ops(): Promise<ReplicationOp[]> {
    const reads: Promise<ReplicationOp>[] = [];
    for (const [table, keys] of this.#touched) {
      const data = this.#tx.collection(table.data);
      for (const key of keys.values()) {
        reads.push(
          data.getEntry(key).then(async (entry) => {
            if (entry === undefined) return { type: 'delete', collection: table.name, key };
            await this.#checkUnique(table, key, entry.value);
            return { type: 'set', collection: table.name, key, value: entry.value, expiresAt: entry.expiresAt ?? 0 };
          }),
        );
      }
    }
    return Promise.all(reads);
  }

  /** A commit would check this; but this transaction is not committed, its record is applied. */
  async #checkUnique(table: KnownTable, key: Bytes, value: Bytes): Promise<void> {
    for (const { name, keysOf } of table.unique) {
      const index = this.#tx.collection(table.data).index(name);
      for (const indexKey of keysOf(value, key)) {
        const owners = await index.keys({ eq: indexKey, limit: 2 }).toArray();
        if (owners.every((owner) => keyId(owner) === keyId(key))) continue;
        throw new KvError(
          'KV_UNIQUE',
          `the key ${keyText(indexKey)} of the unique index ${JSON.stringify(name)} of collection ${JSON.stringify(table.name)} belongs to another entry; nothing was stored`,
        );
      }
    }
  }
}

const MAX_WAIT_MS = 200;

/** What strict transactions need: a replica, or the tab that has it. */
export interface StrictHost<R> {
  readonly tables: Tables;
  settle(signal?: AbortSignal): Promise<void>;
  isDisturbed(version: number, drained: number, signal?: AbortSignal): Promise<boolean>;
  /** Undefined: the record was not taken, and has no effect. Otherwise `outcomeOf` tells whether it has one. */
  offer(
    flags: number,
    ops: readonly ReplicationOp[],
    expect: number,
    options: { readonly signal?: AbortSignal },
  ): Promise<R | undefined>;
  outcomeOf(record: R, signal?: AbortSignal): Promise<boolean>;
}

/** What a strict transaction has sent: it outlives failures of the log. */
export interface Sent<T, R> {
  open?: { readonly record: R; readonly result: T } | undefined;
}

/** Whether the sent record is in the log. Throws while the outcome is unknown; then call it again. */
async function isInLog<T, R>(host: StrictHost<R>, sent: Sent<T, R>, record: R, signal?: AbortSignal): Promise<boolean> {
  const isIn = await host.outcomeOf(record, signal);
  sent.open = undefined;
  return isIn;
}

/** A run of the function, and what it wrote. */
interface Run<T> {
  readonly result: T;
  readonly ops: readonly ReplicationOp[];
  /** Of the database when it began. */
  readonly version: number;
  /** Undefined before the database was replicated. */
  readonly state: ReplicaState | undefined;
}

async function execute<T>(
  tables: Tables,
  fn: (tx: StrictTransaction) => T | Promise<T>,
  signal?: AbortSignal,
): Promise<Run<T>> {
  const tx = tables.db.begin({ timeout: Infinity, ...(signal && { signal }) });
  try {
    const version = await tx.baseVersion;
    const state = await tx.collection(tables.state).get('state');
    const recorder = new Recorder(tx, tables);
    const result = await fn(recorder);
    return { result, ops: await recorder.ops(), version, state };
  } finally {
    tx.rollback();
  }
}

/** After a failure of the log it is called again with the same `sent`. */
export async function runStrict<T, R>(
  host: StrictHost<R>,
  fn: (tx: StrictTransaction) => T | Promise<T>,
  { maxRetries = 100, signal }: StrictOptions,
  sent: Sent<T, R> = {},
): Promise<T> {
  const { tables } = host;
  const { open } = sent;
  if (open !== undefined && (await isInLog(host, sent, open.record, signal))) return open.result;
  for (let attempt = 0; attempt <= maxRetries; attempt++) {
    await host.settle(signal);
    const run = await execute(tables, fn, signal).catch((error: unknown) => {
      // Nothing was offered yet, so the function may run again.
      if (!isSuperseded(error) || attempt === maxRetries) throw error;
      return undefined;
    });
    // A write that went past replication is undone; this run may have read it.
    if (
      run?.state !== undefined &&
      run.state.rejoin === undefined &&
      !(await host.isDisturbed(run.version, run.state.drained, signal))
    ) {
      const { result, ops, state } = run;
      // Also if it has only read: only the log's answer tells that nothing newer is in it.
      const record = await host.offer(STRICT, ops, state.cursor.position, { ...(signal && { signal }) });
      if (record !== undefined) {
        sent.open = { record, result };
        if (await isInLog(host, sent, record, signal)) return result;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(MAX_WAIT_MS, 2 ** attempt)));
  }
  throw new KvError(
    'KV_CONFLICT',
    `replication.transaction: other devices wrote to the log before each of ${maxRetries + 1} runs was in it; write less often, or split the data into several databases`,
    { retryable: true },
  );
}
