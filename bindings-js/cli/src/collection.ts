// Collections as the tool sees them: a name and its stored codecs.
import { KvError } from 'mangrove-kv';
import type { Collection, Database, Reader, Snapshot } from 'mangrove-kv';
import { Codecs, DEFAULT_CODECS } from './codecs.ts';
import type { RawForm } from './codecs.ts';
import { storedCollections } from 'mangrove-kv/internal/tool';

export interface CollectionChoice {
  readonly collection: string;
  readonly raw?: RawForm;
}

/** The codecs that a collection has, or will have once it is created, and whether it exists. */
export async function codecsOf(
  db: Database,
  { collection, raw }: CollectionChoice,
): Promise<{ readonly codecs: Codecs; readonly exists: boolean }> {
  const stored = (await storedCollections(db)).find(({ name }) => name === collection);
  return { codecs: new Codecs(stored ?? DEFAULT_CODECS, raw), exists: stored !== undefined };
}

export function collectionIn(db: Database, name: string, codecs: Codecs): Collection<unknown, unknown> {
  return db.collection(name, codecs.options);
}

export function readerIn(snapshot: Snapshot, db: Database, name: string, codecs: Codecs): Reader<unknown, unknown> {
  // By handle, as the default collection has no name.
  return snapshot.collection(collectionIn(db, name, codecs));
}

/**
 * A collection to read. The default collection is valid in every database, even if nothing was ever
 * written to it.
 */
export async function readable(
  db: Database,
  choice: CollectionChoice,
): Promise<{ readonly codecs: Codecs; readonly records: Collection<unknown, unknown> }> {
  const { codecs, exists } = await codecsOf(db, choice);
  if (!exists && choice.collection !== '')
    throw new KvError('KV_NOT_FOUND', `there is no collection ${JSON.stringify(choice.collection)}`);
  return { codecs, records: collectionIn(db, choice.collection, codecs) };
}
