// An open database.
import { keyCodecs } from '../codec/keys.ts';
import type { Key } from '../codec/keys.ts';
import { valueCodecs } from '../codec/values.ts';
import { KvError } from '../base/errors.ts';
import { EventTarget } from '../base/platform.ts';
import { TRACER } from '../base/trace.ts';
import type { TabsTrace, Traced } from '../base/trace.ts';
import type { ChangesOptions, CommitIterator } from '../types/feed.ts';
import type {
  Batch,
  BatchOp,
  Collection,
  CollectionOptions,
  CollectionReference,
  CommitInfo,
  Database,
  Durability,
  Encryption,
  Layout,
  LayoutOptions,
  MaintenanceOptions,
  Result,
  SignalOptions,
  Snapshot,
  Stats,
  SyncDatabase,
  Transaction,
  TransactionOptions,
  VerifyReport,
  WriteOptions,
} from '../types/index.ts';
import { asyncDispose, attempt, checkSignal, ignore, loadChunk } from '../base/async.ts';
import { BatchState, KvBatch } from './batch.ts';
import { ChangeList } from './changes.ts';
import { checkCodec } from '../wire/codecs.ts';
import { KvCollection, write } from './collection.ts';
import type { Connection } from '../wire/connection.ts';
import { hold, report } from './events.ts';
import { toIndexes } from './indexes.ts';
import { COLLECTION, SIGNAL, WRITE, checkIterable, checkOp, checkWait, toExpiry } from './arguments.ts';
import { changes } from './feed/follow.ts';
import { rememberCodecs } from '../wire/known-codecs.ts';
import { checkNames, placeOf } from '../base/names.ts';
import { checkStrict } from './options.ts';
import { Op } from '../wire/opcodes.ts';
import { toValidate } from './schema.ts';
import { DEFAULT_COLLECTION, checkName, newTarget } from '../wire/collection-target.ts';
import type { Target } from '../wire/collection-target.ts';
import { DatabaseScope } from './write-verbs.ts';
import { KvSnapshot } from './snapshot.ts';
import { promised } from './task.ts';
import { KvTransaction, checkTransactionOptions, runTransaction, toResult } from './transaction.ts';
import { backup, verify } from './maintenance/backup-verify.ts';
import type { ApiSyncFaces } from './synchronous.ts';

/** Maximum number of expired entries that one commit purges. */
const PURGE_SLICE = 1000;

type CheckedTransactionOptions = ReturnType<typeof checkTransactionOptions>;

/** Where and how a database was opened. */
export interface DatabaseInfo {
  readonly path: string;
  readonly persistence: Database['persistence'];
  readonly bucket?: string | undefined;
  readonly durability: Durability;
  /** Whether another `open` may have to wait until this database is closed. */
  readonly isLocked?: boolean;
}

/** `strictValues` is the option of `open`, the default for the database's collections. */
function toTarget<K, V, I>(
  connection: Connection,
  name: string,
  options: CollectionOptions<K, V, I>,
  strictValues = false,
): Target<K, V> {
  const strict = checkStrict(options, strictValues);
  // Without these options, K and V are the default codecs' types or an assertion of the caller.
  const key = checkCodec(
    'key',
    options.key === undefined ? (keyCodecs.any as unknown as NonNullable<typeof options.key>) : options.key,
  );
  const value = checkCodec(
    'value',
    options.value === undefined ? valueCodecs.structured<V>({ strict }) : options.value,
  );
  const expireIn = options.expireIn === undefined ? undefined : checkWait(options.expireIn);
  const validate = toValidate(options.schema);
  rememberCodecs(connection, name, key, value);
  const indexes = toIndexes<K, V>(options.indexes);
  return newTarget(connection, name, key, value, { expireIn, validate, indexes });
}

export class KvDatabase<K, V, I = V> extends KvCollection<K, V, I> implements Database<K, V, I>, Traced {
  readonly path: string;
  readonly persistence: Database['persistence'];
  readonly bucket: string | undefined;
  readonly #connection: Connection;
  readonly #durability: Durability;
  readonly #strictValues: boolean;
  readonly #scope: DatabaseScope;
  readonly #listeners = new EventTarget();
  readonly #onBlocked = (reason: Extract<TabsTrace, { readonly event: 'blocked' }>['reason'] = 'open'): void => {
    this[TRACER]?.record({ source: 'tabs', event: 'blocked', reason });
    report(this.#listeners, this, 'blocked', { leader: this.#connection.leader });
  };
  #sync: SyncDatabase<K, V, I> | undefined;

  constructor(connection: Connection, info: DatabaseInfo, options: CollectionOptions<K, V, I>) {
    super(toTarget(connection, DEFAULT_COLLECTION, options), new DatabaseScope(connection, info.durability));
    this.#connection = connection;
    this.path = info.path;
    connection.name = JSON.stringify(info.path);
    this.persistence = info.persistence;
    this.bucket = info.bucket;
    this.#durability = info.durability;
    this.#strictValues = options.strictValues ?? false;
    this.#scope = new DatabaseScope(connection, info.durability);
    this.transact = (work, given) => this.transaction(work, given);
    const release = info.isLocked ? hold(placeOf(info.persistence, info.path, info.bucket), this.#onBlocked) : ignore;
    connection.onBlocked = this.#onBlocked;
    connection.onLeader = (leader) => report(this.#listeners, this, 'leader', { leader });
    connection.onBackgroundError = (error) => report(this.#listeners, this, 'error', { error });
    connection.onClosed = (failure) => {
      if (failure !== undefined) connection.onBackgroundError(failure);
      release();
      report(this.#listeners, this, 'close', { reason: failure, leader: connection.leader });
    };
  }

  get [TRACER](): Traced[typeof TRACER] {
    return this.#connection.tracer;
  }

  get status(): Database['status'] {
    return this.#connection.status;
  }

  collection<K2 = Key, V2 = unknown, I2 = V2>(
    name: string,
    options: CollectionOptions<K2, V2, I2> = {},
  ): Collection<K2, V2, I2> {
    if (name !== DEFAULT_COLLECTION) checkName(name);
    checkNames('collection', options, COLLECTION);
    const collection = new KvCollection<K2, V2, I2>(
      toTarget(this.#connection, name, options, this.#strictValues),
      this.#scope,
    );
    collection.transact = this.transact;
    return collection;
  }

  dropCollection(name: string): Promise<boolean> {
    return write(this.verbs, (verbs) => verbs.dropCollection(name));
  }

  renameCollection(from: string, to: string): Promise<boolean> {
    return write(this.verbs, (verbs) => verbs.renameCollection(from, to));
  }

  collections(): Promise<string[]> {
    return this.#connection.request(
      (writer) => writer.u8(Op.collections),
      (reader) => {
        const names: string[] = [];
        for (let left = reader.uv(); left > 0; left--) {
          names.push(reader.str());
          reader.uv();
          reader.bytes();
          reader.bytes();
        }
        return names.filter((name) => !/^(mangrove:|$)/.test(name));
      },
    );
  }

  batch(): Batch<K, I>;
  batch(ops: Iterable<BatchOp<K, I>>, options?: WriteOptions): Promise<CommitInfo>;
  batch(...args: [ops?: Iterable<BatchOp<K, I>>, options?: WriteOptions]): Batch<K, I> | Promise<CommitInfo> {
    const [ops, options] = args;
    const send = (changes: ChangeList, given: WriteOptions | undefined): Promise<CommitInfo> => {
      this.#scope.check();
      return promised(
        this.#connection,
        this.verbs.batch(changes, given, (_, version) => ({ version })),
      );
    };
    if (args.length === 0) {
      const state = new BatchState((collection, given) => this.#resolve(collection, given), send);
      return new KvBatch(state, this.target as Target<K, unknown>);
    }
    return attempt(() => {
      this.verbs.begin('batch', options, WRITE);
      const changes = new ChangeList();
      for (const op of checkIterable('the operations of batch', ops as Iterable<BatchOp<K, I>>)) {
        checkOp(op);
        // The operation's types are not those of another collection; its codecs check the key and
        // value instead.
        const target = (op.collection === undefined ? this.target : this.#resolve(op.collection)) as Target<
          unknown,
          unknown
        >;
        if (op.type === 'set') changes.set(target, op.key, op.value, toExpiry(op, target.expireIn));
        else if (op.type === 'delete') changes.delete(target, op.key);
        else changes.check(target, op.key, op.version);
      }
      return send(changes, options);
    }, options?.signal);
  }

  begin(options?: TransactionOptions): Transaction<K, V, I> {
    return this.#begin(checkTransactionOptions('begin', options, this.#durability), false);
  }

  transaction<T>(fn: (tx: Transaction<K, V, I>) => T | Promise<T>, options?: TransactionOptions): Promise<T> {
    return this.#run('transaction', fn, options).then(({ value }) => value);
  }

  tryTransaction<T>(
    fn: (tx: Transaction<K, V, I>) => T | Promise<T>,
    options?: TransactionOptions,
  ): Promise<Result<T>> {
    return toResult(this.#run('tryTransaction', fn, options));
  }

  refresh(): Promise<boolean> {
    return this.#connection.requestLoading(
      (writer) => writer.u8(Op.refresh),
      (reader) => reader.u8() !== 0,
    );
  }

  get sync(): SyncDatabase<K, V, I> {
    const faces = this.#connection.checkSync().syncFaces as ApiSyncFaces;
    this.#sync ??= faces.database<K, V, I>(this.target, this.#durability, (collection, options) =>
      this.#resolve(collection, options),
    );
    return this.#sync;
  }

  purgeExpired(options?: SignalOptions): Promise<number> {
    return attempt(() => {
      checkNames('purgeExpired', options, SIGNAL);
      return this.#purge(options?.signal);
    }, options?.signal);
  }

  changes(options?: ChangesOptions): CommitIterator {
    return changes(this.#connection, options);
  }

  snapshot(): Snapshot<K, V> {
    return new KvSnapshot(this.target, (collection, options) => this.#resolve(collection, options));
  }

  flush(options?: SignalOptions): Promise<void> {
    return attempt(() => {
      checkNames('flush', options, SIGNAL);
      return this.#connection.request((writer) => writer.u8(Op.flush), ignore);
    }, options?.signal);
  }

  async stats(): Promise<Stats> {
    const stats = await this.#connection.requestLoading(
      (writer) => writer.u8(Op.stats),
      (reader) => JSON.parse(reader.str()) as Stats,
    );
    const clients = await this.#connection.clients();
    return clients === undefined ? stats : { ...stats, clients };
  }

  async layout(options?: LayoutOptions): Promise<Layout> {
    return (await loadChunk(import('./maintenance/compact.ts'))).layout(this.#connection, options);
  }

  verify(options?: MaintenanceOptions): Promise<VerifyReport> {
    return verify(this.#connection, options);
  }

  async compact(options?: MaintenanceOptions): Promise<{ readonly before: number; readonly after: number }> {
    return (await loadChunk(import('./maintenance/compact.ts'))).compact(this.#connection, options);
  }

  async changeKey(encryption: Encryption): Promise<void> {
    return (await loadChunk(import('./maintenance/compact.ts'))).changeKey(this.#connection, encryption);
  }

  async reencrypt(options?: MaintenanceOptions): Promise<void> {
    return (await loadChunk(import('./maintenance/compact.ts'))).reencrypt(this.#connection, options);
  }

  backup(options?: MaintenanceOptions): ReadableStream<Uint8Array<ArrayBuffer>> {
    return backup(this.#connection, options);
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  addEventListener(...listener: Parameters<EventTarget['addEventListener']>): void {
    this.#listeners.addEventListener(...listener);
  }

  removeEventListener(...listener: Parameters<EventTarget['removeEventListener']>): void {
    this.#listeners.removeEventListener(...listener);
  }

  dispatchEvent(event: Event): boolean {
    return this.#listeners.dispatchEvent(event);
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  #begin(options: CheckedTransactionOptions, isInCallback: boolean): KvTransaction<K, V, I> {
    return new KvTransaction(
      this.target,
      (collection, given) => this.#resolve(collection, given),
      options,
      isInCallback,
    );
  }

  #run<T>(
    call: string,
    fn: (tx: Transaction<K, V, I>) => T | Promise<T>,
    options: TransactionOptions | undefined,
  ): Promise<{ value: T; version: number }> {
    return attempt(() => {
      const checked = checkTransactionOptions(call, options, this.#durability);
      if (checked.mode === 'readwrite') this.#scope.check();
      return runTransaction(this.#connection, () => this.#begin(checked, true), fn, checked);
    }, options?.signal);
  }

  /** Purges in slices, so that other requests run in between. */
  async #purge(signal: AbortSignal | undefined): Promise<number> {
    for (let all = 0; ; ) {
      const purged = await this.#connection.request(
        (writer) => writer.u8(Op.purge).uv(PURGE_SLICE),
        (reader) => reader.uv(),
      );
      all += purged;
      if (purged < PURGE_SLICE) return all;
      checkSignal(signal);
    }
  }

  /** The target of a collection, which is given by name, with or without options, or as an object of this database. */
  #resolve<K2, V2>(collection: CollectionReference, options?: object): Target<K2, V2> {
    if (typeof collection === 'string') {
      checkName(collection);
      checkNames('collection', options, COLLECTION);
      return toTarget(this.#connection, collection, options ?? {}, this.#strictValues);
    }
    if (options !== undefined)
      throw new KvError('KV_INVALID_ARGUMENT', 'the options of a collection belong to its name; a handle has its own');
    if (collection instanceof KvCollection && collection.target.connection === this.#connection) {
      return collection.target as Target<K2, V2>;
    }
    throw new KvError('KV_INVALID_ARGUMENT', 'the collection has to be a name or a collection of this database');
  }
}
