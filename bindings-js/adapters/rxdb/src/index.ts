/**
 * A storage for RxDB 17.
 *
 * @module @mangrove-kv/rxdb
 */
import { KvError } from 'mangrove-kv';
import type { Durability, OpenOptions } from 'mangrove-kv';
import {
  RXDB_VERSION,
  addRxStorageMultiInstanceSupport,
  ensureRxStorageInstanceParamsAreCorrect,
  randomToken,
} from 'rxdb';
import type { RxStorage, RxStorageInstance, RxStorageInstanceCreationParams } from 'rxdb';
import { misnamed } from 'mangrove-kv/internal';
import type { Names } from 'mangrove-kv/internal';
import { lease } from './databases.ts';
import type { Lease } from './databases.ts';
import { MangroveStorageInstance } from './instance.ts';
import { toLayout } from './layout.ts';
import type { MangroveInternals } from './layout.ts';
import { inOrder } from './order.ts';

export type { MangroveInternals } from './layout.ts';

/**
 * Options of `getRxStorageMangrove`: how databases are opened, as for `open`. All storages that name
 * the same database share one that is open already, with the options of the first.
 */
export interface RxStorageMangroveOptions
  extends Pick<
    OpenOptions,
    | 'storage'
    | 'onUnavailable'
    | 'lockTimeout'
    | 'idleTimeout'
    | 'thread'
    | 'durability'
    | 'cacheBytes'
    | 'compression'
    | 'advanced'
    | 'feed'
    | 'encryption'
    | 'wasm'
    | 'worker'
  > {
  /**
   * Returns the name under which the database of an RxDatabase is opened: a name in browsers, a
   * directory in Node, Deno and Bun. Default: the name of the RxDatabase.
   */
  path?: ((databaseName: string) => string) | undefined;
}

/** What `instanceCreationOptions` of an RxDatabase or a collection may have. */
export interface MangroveInstanceOptions {
  /** When writes to this collection resolve. Default: as the database was opened. */
  readonly durability?: Durability | undefined;
}

const OPTIONS: Names<RxStorageMangroveOptions> = {
  path: 1,
  storage: 1,
  onUnavailable: 1,
  lockTimeout: 1,
  idleTimeout: 1,
  thread: 1,
  durability: 1,
  cacheBytes: 1,
  compression: 1,
  advanced: 1,
  feed: 1,
  encryption: 1,
  wasm: 1,
  worker: 1,
};
const INSTANCE_OPTIONS: Names<MangroveInstanceOptions> = { durability: 1 };

const NAME = 'mangrove';
/**
 * Name of the channel for databases that no other page or process has open: what changes in them is
 * nobody else's business, even if another one in memory has the same name.
 */
const OWN_CHANNEL = `${NAME}-${randomToken(10)}`;

function check(call: string, options: unknown, names: object): void {
  const wrong = misnamed(call, options, names);
  if (wrong !== undefined) throw new KvError('KV_INVALID_ARGUMENT', wrong);
}

/** In OPFS and IndexedDB, tabs share a database unless the engine runs in the thread that opens it. */
function channelOf({ database: { persistence } }: Lease, { thread }: RxStorageMangroveOptions): string {
  const isShared = (persistence === 'opfs' || persistence === 'indexeddb') && thread !== 'same';
  return isShared ? NAME : OWN_CHANNEL;
}

/**
 * Returns a storage for `createRxDatabase({ storage })`. Each RxDatabase is a database of Mangrove;
 * each of its collections is one collection, and another one if it has attachments. A database is
 * open as long as any of its collections is.
 *
 * @throws KvError KV_INVALID_ARGUMENT if an option is unknown.
 */
export function getRxStorageMangrove(
  options: RxStorageMangroveOptions = {},
): RxStorage<MangroveInternals, MangroveInstanceOptions> {
  check('getRxStorageMangrove', options, OPTIONS);
  const { path = String, ...opening } = options;
  if (typeof path !== 'function')
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'path of getRxStorageMangrove has to be a function that returns the name of a database',
    );
  return {
    name: NAME,
    rxdbVersion: RXDB_VERSION,
    async createStorageInstance<D>(
      params: RxStorageInstanceCreationParams<D, MangroveInstanceOptions>,
    ): Promise<RxStorageInstance<D, MangroveInternals, MangroveInstanceOptions>> {
      ensureRxStorageInstanceParamsAreCorrect(params);
      check('instanceCreationOptions', params.options ?? {}, INSTANCE_OPTIONS);
      const held = await lease(path(params.databaseName), opening);
      try {
        const layout = toLayout<D>(held.database, params);
        // Complete, unless an earlier version of this adapter declared fewer indexes.
        await layout.documents.buildIndexes();
        const instance = new MangroveStorageInstance<D>(params, layout, held);
        addRxStorageMultiInstanceSupport(channelOf(held, opening), params, instance);
        if (params.multiInstance) {
          const merged = instance.changeStream;
          instance.changeStream = () => inOrder(merged.call(instance));
        }
        return instance;
      } catch (error) {
        await held.release();
        throw error;
      }
    },
  };
}
