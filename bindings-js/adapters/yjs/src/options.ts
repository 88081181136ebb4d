// The options of a provider, and what they stand for if they are left out.
import { KvError } from 'mangrove-kv';
import type { Database, Durability } from 'mangrove-kv';
import { misnamed } from 'mangrove-kv/internal';
import type { Names } from 'mangrove-kv/internal';
import { UpdateLog } from './log.ts';
import { lease } from './places.ts';
import type { Lease, Place } from './places.ts';

/** Number of stored updates from which on a document is compacted, unless `trimSize` says otherwise. */
export const PREFERRED_TRIM_SIZE = 500;

/** Where documents are kept, and how they are written. */
export interface DocumentOptions {
  /**
   * An open database or a promise of one, which its owner closes after the providers are destroyed;
   * or the name of a database, outside browsers its directory. Providers with the same name share
   * one handle, which is closed with the last of them; in browsers without OPFS it is kept in
   * IndexedDB. Default: `"yjs"`.
   */
  readonly database?: Place | undefined;
  /** Collection of the updates of all documents. Custom values are in `<collection>/custom`. Default: `"yjs"`. */
  readonly collection?: string | undefined;
  /**
   * Durability of updates and custom values. Default: `"relaxed"`, so an update survives the death
   * of the page or process as soon as it is handed over, and a power cut after at most 100 ms.
   * `destroy()` and `flush()` make everything survive a power cut in any case.
   */
  readonly durability?: Durability | undefined;
}

/** Options of a provider. */
export interface MangrovePersistenceOptions extends DocumentOptions {
  /**
   * Number of stored updates of the document, at least 2, from which on they are compacted into one
   * state. Default: {@link PREFERRED_TRIM_SIZE}.
   */
  readonly trimSize?: number | undefined;
}

export const DOCUMENT_NAMES: Names<DocumentOptions> = { database: 1, collection: 1, durability: 1 };
export const NAMES: Names<MangrovePersistenceOptions> = { ...DOCUMENT_NAMES, trimSize: 1 };
const DURABILITIES: readonly unknown[] = ['strict', 'relaxed', 'none'];

export function invalid(message: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', message);
}

/** Checks the arguments of a call about the document `name`. */
export function checkDocument(call: string, name: unknown, options: MangrovePersistenceOptions, names: object): void {
  if (typeof name !== 'string') throw invalid(`the name of a document has to be a string, in ${call}`);
  const wrong = misnamed(call, options, names);
  if (wrong !== undefined) throw invalid(wrong);
  const { collection = 'yjs', durability = 'relaxed', trimSize = PREFERRED_TRIM_SIZE } = options;
  if (typeof collection !== 'string' || collection === '') throw invalid(`collection of ${call} has to be a name`);
  if (!DURABILITIES.includes(durability))
    throw invalid(`durability of ${call} has to be "strict", "relaxed" or "none"`);
  if (!Number.isInteger(trimSize) || trimSize < 2) throw invalid(`trimSize of ${call} has to be an integer from 2 on`);
}

export function logOf(
  db: Database,
  document: string,
  { collection = 'yjs', durability = 'relaxed' }: DocumentOptions,
): UpdateLog {
  return new UpdateLog(db, { collection, document, durability });
}

export function leaseOf({ database = 'yjs' }: DocumentOptions): Lease {
  return lease(database);
}
