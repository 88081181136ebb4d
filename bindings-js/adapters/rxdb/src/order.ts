// The order of events. A database's own events come with the answers to its commits, those of others
// over a channel: two commits of a document can be told in either order. RxDB applies them to its
// queries as they come.
import { getHeightOfRevision } from 'rxdb';
import type { EventBulk, RxDocumentData, RxStorageChangeEvent, RxStorageDefaultCheckpoint } from 'rxdb';
import { filter, map } from 'rxjs';
import type { Observable } from 'rxjs';

/** What one commit changed. */
export type Changes<D> = EventBulk<RxStorageChangeEvent<RxDocumentData<D>>, RxStorageDefaultCheckpoint>;

/** Documents whose last state is remembered: more than change while an event is under way. */
const MAX_REMEMBERED = 1000;

/** A document that is stored again after `cleanup` removed it begins with the first revision. */
function isNewer<D>(state: RxDocumentData<D>, known: RxDocumentData<D>): boolean {
  if (known._deleted && !state._deleted && state._meta.lwt > known._meta.lwt) return true;
  return getHeightOfRevision(state._rev) > getHeightOfRevision(known._rev);
}

/** The event that leads to a state from the one that was told last: those between are passed over. */
function eventFrom<D>(
  known: RxDocumentData<D>,
  event: RxStorageChangeEvent<RxDocumentData<D>>,
): RxStorageChangeEvent<RxDocumentData<D>> {
  const documentData = event.documentData as RxDocumentData<D>;
  const operation = documentData._deleted ? 'DELETE' : known._deleted ? 'INSERT' : 'UPDATE';
  return { documentId: event.documentId, operation, documentData, previousDocumentData: known } as RxStorageChangeEvent<
    RxDocumentData<D>
  >;
}

/** Passes over what is older than what was told of the same document before. */
export function inOrder<D>(changes: Observable<Changes<D>>): Observable<Changes<D>> {
  const last = new Map<string, RxDocumentData<D>>();

  function next(event: RxStorageChangeEvent<RxDocumentData<D>>): RxStorageChangeEvent<RxDocumentData<D>> | undefined {
    const known = last.get(event.documentId);
    if (known === undefined || event.previousDocumentData?._rev === known._rev) return event;
    return isNewer(event.documentData as RxDocumentData<D>, known) ? eventFrom(known, event) : undefined;
  }

  function remember({ documentId, documentData }: RxStorageChangeEvent<RxDocumentData<D>>): void {
    // The map is in the order of the changes.
    last.delete(documentId);
    last.set(documentId, documentData as RxDocumentData<D>);
  }

  return changes.pipe(
    map((bulk) => {
      const events = bulk.events.map(next).filter((event) => event !== undefined);
      events.forEach(remember);
      for (const id of last.keys()) {
        if (last.size <= MAX_REMEMBERED) break;
        last.delete(id);
      }
      return { ...bulk, events };
    }),
    filter(({ events }) => events.length > 0),
  );
}
