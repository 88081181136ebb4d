// An open database.
import { keyCodecs } from '../codec/keys.ts';
import type { Key } from '../codec/keys.ts';
import { valueCodecs } from '../codec/values.ts';
import { KvError } from '../errors.ts';
import type { ChangesOptions, CommitIterator } from '../feed-types.ts';
import type {
  Batch, BatchOp, Collection, CollectionOptions, CollectionReference, CommitInfo, Database, Durability, Result, Snapshot,
  MaintenanceOptions, Stats, SyncDatabase, Transaction, TransactionOptions, VerifyReport, WriteOptions,
} from '../types.ts';
import { asyncDispose, attempt, ignore } from './async.ts';
import { BatchState, KvBatch } from './batch.ts';
import { ChangeList } from './changes.ts';
import { checkCodec } from './codecs.ts';
import { KvCollection } from './collection.ts';
import type { Connection } from './connection.ts';
import { checkWait, toExpiry } from './expiry.ts';
import { changes } from './feed/follow.ts';
import { rememberCodecs } from './known-codecs.ts';
import { Op } from './protocol.ts';
import { NEWEST } from './reader.ts';
import type { Target } from './reader.ts';
import { DatabaseScope } from './scope.ts';
import { KvSnapshot } from './snapshot.ts';
import { KvSyncDatabase } from './sync.ts';
import { KvTransaction, checkTransactionOptions, runTransaction, toResult } from './transaction.ts';
import { backup, compact, verify } from './upkeep.ts';

/** Name of the collection that the database itself is. */
const DEFAULT_COLLECTION = '';
/** Expired entries that are removed in one commit. */
const PURGE_SLICE = 1000;

type CheckedTransactionOptions = ReturnType<typeof checkTransactionOptions>;

/** Where and how a database was opened. */
export interface DatabaseInfo {
  readonly path: string;
  readonly persistence: Database['persistence'];
  readonly durability: Durability;
}

function toTarget<K, V>(connection: Connection, name: string, options: CollectionOptions<K, V>): Target<K, V> {
  // Without an option the type parameters are the defaults' or the caller's word.
  const key = checkCodec('key', options.key ?? (keyCodecs.any as unknown as NonNullable<typeof options.key>));
  const value = checkCodec('value', options.value ?? valueCodecs.structured<V>());
  const expireIn = options.expireIn === undefined ? undefined : checkWait(options.expireIn);
  rememberCodecs(connection, name, key, value);
  return { connection, name, index: connection.use(name, key.id, value.id), key, value, expireIn };
}

export class KvDatabase<K, V> extends KvCollection<K, V> implements Database<K, V> {
  readonly path: string;
  readonly persistence: Database['persistence'];
  readonly #connection: Connection;
  readonly #durability: Durability;
  readonly #scope: DatabaseScope;
  #sync: SyncDatabase<K, V> | undefined;

  constructor(connection: Connection, info: DatabaseInfo, options: CollectionOptions<K, V>) {
    super(toTarget(connection, DEFAULT_COLLECTION, options), new DatabaseScope(connection, info.durability));
    this.#connection = connection;
    this.path = info.path;
    this.persistence = info.persistence;
    this.#durability = info.durability;
    this.#scope = new DatabaseScope(connection, info.durability);
  }

  get status(): Database['status'] {
    return this.#connection.status;
  }

  collection<K2 = Key, V2 = unknown>(name: string, options: CollectionOptions<K2, V2> = {}): Collection<K2, V2> {
    checkName(name);
    return new KvCollection(toTarget(this.#connection, name, options), this.#scope);
  }

  collections(): Promise<string[]> {
    return this.#connection.request((writer) => writer.u8(Op.collections), (reader) => {
      const names: string[] = [];
      for (let left = reader.uv(); left > 0; left--) {
        names.push(reader.str());
        reader.uv();
        reader.bytes();
        reader.bytes();
      }
      return names.filter((name) => name !== DEFAULT_COLLECTION);
    });
  }

  dropCollection(name: string): Promise<boolean> {
    return attempt(() => {
      checkName(name);
      return this.#scope.write(Op.drop, undefined, (writer) => writer.str(name), (reader) => reader.u8() !== 0);
    });
  }

  batch(): Batch<K, V>;
  batch(ops: Iterable<BatchOp<K, V>>, options?: WriteOptions): Promise<CommitInfo>;
  batch(ops?: Iterable<BatchOp<K, V>>, options?: WriteOptions): Batch<K, V> | Promise<CommitInfo> {
    const send = (changes: ChangeList, given: WriteOptions | undefined): Promise<CommitInfo> =>
      this.writeBatch(changes, given).then(({ version }) => ({ version }));
    if (ops === undefined) {
      return new KvBatch(new BatchState((collection) => this.#resolve(collection), send), this.target);
    }
    return attempt(() => {
      const changes = new ChangeList();
      for (const op of ops) {
        // An operation on another collection is checked by that collection's codecs.
        const target = (op.collection === undefined ? this.target : this.#resolve(op.collection)) as Target<unknown, unknown>;
        if (op.type === 'set') changes.set(target, op.key, op.value, toExpiry(op, target.expireIn));
        else if (op.type === 'delete') changes.delete(target, op.key);
        else if (op.type === 'check') changes.check(target, op.key, op.version);
        else throw new KvError('KV_INVALID_ARGUMENT', 'the type of a batch operation has to be "set", "delete" or "check"');
      }
      return send(changes, options);
    });
  }

  begin(options?: TransactionOptions): Transaction<K, V> {
    return this.#begin(checkTransactionOptions(options, this.#durability), false);
  }

  async transaction<T>(fn: (tx: Transaction<K, V>) => T | Promise<T>, options?: TransactionOptions): Promise<T> {
    return (await this.#run(fn, options)).value;
  }

  tryTransaction<T>(
    fn: (tx: Transaction<K, V>) => T | Promise<T>,
    options?: TransactionOptions,
  ): Promise<Result<T>> {
    return toResult(this.#run(fn, options));
  }

  refresh(): Promise<boolean> {
    return this.#connection.request((writer) => writer.u8(Op.refresh), (reader) => reader.u8() !== 0);
  }

  get sync(): SyncDatabase<K, V> {
    this.#connection.checkSync();
    this.#sync ??= new KvSyncDatabase(this.target, NEWEST, this.#durability, (collection, options) =>
      (typeof collection === 'string' && options !== undefined
        ? toTarget(this.#connection, checkedName(collection), options)
        : this.#resolve(collection)));
    return this.#sync;
  }

  purgeExpired(): Promise<number> {
    return this.#purge(0);
  }

  changes(options?: ChangesOptions): CommitIterator {
    return changes(this.#connection, options);
  }

  snapshot(): Snapshot<K, V> {
    return new KvSnapshot(this.target, (collection) => this.#resolve(collection));
  }

  flush(): Promise<void> {
    return this.#connection.request((writer) => writer.u8(Op.flush), ignore);
  }

  stats(): Promise<Stats> {
    return this.#connection.request((writer) => writer.u8(Op.stats), (reader) => JSON.parse(reader.str()) as Stats);
  }

  verify(options?: MaintenanceOptions): Promise<VerifyReport> {
    return verify(this.#connection, options, async () => (await this.stats()).entries);
  }

  compact(options?: MaintenanceOptions): Promise<{ readonly before: number; readonly after: number }> {
    return compact(this.#connection, options);
  }

  backup(options?: MaintenanceOptions): ReadableStream<Uint8Array<ArrayBuffer>> {
    return backup(this.#connection, options);
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  #begin(options: CheckedTransactionOptions, isInCallback: boolean): KvTransaction<K, V> {
    return new KvTransaction(this.target, (collection) => this.#resolve(collection), options, isInCallback);
  }

  async #run<T>(
    fn: (tx: Transaction<K, V>) => T | Promise<T>,
    options: TransactionOptions | undefined,
  ): Promise<{ value: T; version: number }> {
    const checked = checkTransactionOptions(options, this.#durability);
    return runTransaction(() => this.#begin(checked, true), fn, checked.maxRetries);
  }

  /** Slice by slice, so that other calls get their turn. */
  async #purge(before: number): Promise<number> {
    const purged = await this.#connection.request((writer) => writer.u8(Op.purge).uv(PURGE_SLICE), (reader) => reader.uv());
    return purged < PURGE_SLICE ? before + purged : this.#purge(before + purged);
  }

  /** The collection that is meant, as this database knows it. */
  #resolve<K2, V2>(collection: CollectionReference): Target<K2, V2> {
    if (typeof collection === 'string') {
      checkName(collection);
      return toTarget(this.#connection, collection, {});
    }
    if (collection instanceof KvCollection && collection.target.connection === this.#connection) {
      return collection.target as Target<K2, V2>;
    }
    throw new KvError('KV_INVALID_ARGUMENT', 'the collection has to be a name or a collection of this database');
  }
}

function checkName(name: unknown): void {
  if (typeof name === 'string' && name !== DEFAULT_COLLECTION && !/\p{Surrogate}/u.test(name)) return;
  throw new KvError('KV_INVALID_ARGUMENT', 'a collection name has to be a well-formed string that is not empty');
}

function checkedName(name: string): string {
  checkName(name);
  return name;
}
