/**
 * A persistence provider for Yjs with the interface of y-indexeddb 9.
 *
 * @module @mangrove-kv/yjs
 */
import type { Emitter } from './emitter.ts';
import type { UpdateCollection, UpdateKey } from './log.ts';
import { DOCUMENT_NAMES, PREFERRED_TRIM_SIZE, checkDocument, invalid, leaseOf, logOf } from './options.ts';
import type { DocumentOptions, MangrovePersistenceOptions } from './options.ts';
import type { Place } from './places.ts';
import { MangrovePersistence } from './provider.ts';
import type { PersistenceEvents } from './provider.ts';

export { MangrovePersistence, MangrovePersistence as IndexeddbPersistence, PREFERRED_TRIM_SIZE };
export type {
  DocumentOptions,
  Emitter,
  MangrovePersistenceOptions,
  PersistenceEvents,
  Place,
  UpdateCollection,
  UpdateKey,
};

function nothing(): void {}

function checkProvider(provider: unknown, call: string): asserts provider is MangrovePersistence {
  if (typeof (provider as Partial<MangrovePersistence> | undefined)?._fetch !== 'function')
    throw invalid(`${call} needs a provider of @mangrove-kv/yjs`);
}

/**
 * Applies what other providers have stored to the provider's document; resolves to the collection of
 * the updates. `before` and `after` are called with the collection, synchronously around that.
 */
export async function fetchUpdates(
  provider: MangrovePersistence,
  before: (updates: UpdateCollection) => unknown = nothing,
  after: (updates: UpdateCollection) => unknown = nothing,
): Promise<UpdateCollection> {
  checkProvider(provider, 'fetchUpdates');
  return provider._fetch(before, after);
}

/**
 * Does the same as `fetchUpdates`, and compacts the document into one state; with
 * `forceStore: false`, only if it has at least `PREFERRED_TRIM_SIZE` updates.
 */
export async function storeState(provider: MangrovePersistence, forceStore = true): Promise<void> {
  checkProvider(provider, 'storeState');
  await provider._compact(forceStore ? 0 : PREFERRED_TRIM_SIZE);
}

/**
 * Removes a document and its custom values. A provider that has the document open, in any tab,
 * stores all of it again with its next update: destroy it first.
 */
export async function clearDocument(name: string, options: DocumentOptions = {}): Promise<void> {
  checkDocument('clearDocument', name, options, DOCUMENT_NAMES);
  const used = leaseOf(options);
  try {
    await logOf(await used.opening, name, options).clear();
  } finally {
    await used.release();
  }
}
