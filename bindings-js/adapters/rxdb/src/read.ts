// Runs queries: reads a range of an index, in batches, up to what the query wants.
import type { Collection, Database } from 'mangrove-kv';
import { getQueryMatcher, getSortComparator } from 'rxdb';
import type { FilledMangoQuery, QueryMatcher, RxDocumentData, RxJsonSchema } from 'rxdb';
import type { Scan } from './plan.ts';

const BATCH = 256;
/** Documents of the first part of a range that may not be needed to its end, and of the largest. */
const FIRST_PART = 16;
const LARGEST_PART = 2048;

/** Where queries of a storage instance are run. */
export interface Source<D> {
  readonly database: Database;
  readonly documents: Collection<string, RxDocumentData<D>>;
  readonly schema: RxJsonSchema<RxDocumentData<D>>;
}

function matcher<D>(
  { schema }: Source<D>,
  { isExact }: Scan,
  query: FilledMangoQuery<D>,
): QueryMatcher<RxDocumentData<D>> | undefined {
  return isExact ? undefined : getQueryMatcher(schema, query);
}

/** Whether documents differ in what they are sorted by, the primary key apart. */
function groupBoundary<D>(
  { schema }: Source<D>,
  query: FilledMangoQuery<D>,
): (one: RxDocumentData<D>, other: RxDocumentData<D>) => boolean {
  const compare = getSortComparator<D>(schema as never, { ...query, sort: query.sort.slice(0, -1) });
  // Documents that are equal compare as undefined.
  return (one, other) => Boolean(compare(one, other));
}

/**
 * Reads the range of a scan in growing parts of one state, each of which is exactly what is read: an
 * iterator would read ahead. Without an end in sight, an iterator is what reads best.
 */
async function* readParts<D>(
  { database, documents }: Source<D>,
  { index, range, order }: Scan,
  first: number,
): AsyncGenerator<RxDocumentData<D>[], void> {
  if (order === 'none') {
    const all = documents.index(index).values(range);
    try {
      for (let batch = await all.nextMany(BATCH); batch.length > 0; batch = await all.nextMany(BATCH)) yield batch;
    } finally {
      await all.return();
    }
    return;
  }
  const snapshot = database.snapshot();
  try {
    const reader = snapshot.collection(documents).index(index);
    const reverse = order !== 'forward';
    let limit = Math.min(Math.max(first, FIRST_PART), LARGEST_PART);
    for (let offset = 0; ; limit = Math.min(4 * limit, LARGEST_PART)) {
      const part = await reader.values({ ...range, reverse, offset, limit }).toArray();
      yield part;
      if (part.length < limit) return;
      offset += part.length;
    }
  } finally {
    await snapshot.close();
  }
}

async function readMatching<D>(
  source: Source<D>,
  scan: Scan,
  query: FilledMangoQuery<D>,
  end: number,
): Promise<RxDocumentData<D>[]> {
  const matches = matcher(source, scan, query);
  const { order } = scan;
  const isOrdered = order === 'forward' || order === 'reverse';
  const differ = groupBoundary(source, query);
  const compare = getSortComparator<D>(source.schema as never, query);
  // Documents that are certainly not among the first `end` are dropped now and then.
  const most = 2 * end + 1000;
  let found: RxDocumentData<D>[] = [];
  reading: for await (const part of readParts(source, scan, end + 1)) {
    for (const document of part) {
      if (found.length >= end && (isOrdered || (order === 'groups' && differ(found.at(-1)!, document)))) break reading;
      if (matches === undefined || matches(document)) found.push(document);
    }
    if (isOrdered && found.length >= end) break;
    if (order === 'none' && found.length > most) found = found.sort(compare).slice(0, end);
  }
  return isOrdered ? found : found.sort(compare);
}

/** Returns the documents of a query. */
export async function readDocuments<D>(
  source: Source<D>,
  scan: Scan,
  query: FilledMangoQuery<D>,
): Promise<RxDocumentData<D>[]> {
  const { skip = 0, limit = Infinity } = query;
  if (limit === 0) return [];
  const { isExact, order, range } = scan;
  if (isExact && (order === 'forward' || order === 'reverse')) {
    return source.documents
      .index(scan.index)
      .values({ ...range, reverse: order === 'reverse', offset: skip, limit })
      .toArray();
  }
  return (await readMatching(source, scan, query, skip + limit)).slice(skip, skip + limit);
}

/** Returns the number of documents that match a query, whatever its `skip` and `limit`. */
export async function countDocuments<D>(source: Source<D>, scan: Scan, query: FilledMangoQuery<D>): Promise<number> {
  const matches = matcher(source, scan, query);
  const index = source.documents.index(scan.index);
  if (matches === undefined) return index.count(scan.range);
  let count = 0;
  await index.values(scan.range).forEach((document) => {
    if (matches(document)) count++;
  });
  return count;
}
