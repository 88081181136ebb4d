// The storage of one collection of RxDB.
import { KvError } from 'mangrove-kv';
import type { Reader, Transaction, WriteOptions, Writer } from 'mangrove-kv';
import { categorizeBulkWriteRows, now } from 'rxdb';
import type {
  BulkWriteRow,
  CategorizeBulkWriteRowsOutput,
  PreparedQuery,
  RxDocumentData,
  RxJsonSchema,
  RxStorageBulkWriteResponse,
  RxStorageCountResult,
  RxStorageDefaultCheckpoint,
  RxStorageInstance,
  RxStorageInstanceCreationParams,
  RxStorageQueryResult,
  RxStorageWriteError,
  StringKeys,
} from 'rxdb';
import { Subject } from 'rxjs';
import type { Observable } from 'rxjs';
import type { MangroveInstanceOptions } from './index.ts';
import { untilWhole } from 'mangrove-kv/internal';
import type { Lease } from './databases.ts';
import { DELETED, indexName } from './layout.ts';
import type { AttachmentKey, Layout, MangroveInternals, StoredAttachment } from './layout.ts';
import type { Changes } from './order.ts';
import { planScan } from './plan.ts';
import { countDocuments, readDocuments } from './read.ts';
import type { Source } from './read.ts';
import { Timeline } from './timeline.ts';

/** Status of the error for an attachment without data. */
const NO_DATA = 510;
/** Documents that a call of `cleanup` removes. */
const CLEANUP_BATCH = 1000;

type Attachments<D> = CategorizeBulkWriteRowsOutput<D>['attachmentsAdd'];

async function toEntry({
  documentId,
  attachmentId,
  attachmentData,
}: Attachments<unknown>[number]): Promise<[AttachmentKey, StoredAttachment]> {
  const { type, digest, data } = attachmentData;
  return [[documentId, attachmentId], { type, digest, data: new Uint8Array(await data.arrayBuffer()) }];
}

/** A write to a document, checked before it is stored. */
function idOf<D>({ document, previous }: BulkWriteRow<D>, primary: string): string {
  const id = (document as Record<string, unknown>)[primary];
  if (typeof id === 'string' && document._rev && (previous === undefined || previous._rev)) return id;
  throw new KvError(
    'KV_INVALID_ARGUMENT',
    `a document needs the primary key ${JSON.stringify(primary)} and a revision`,
  );
}

/** Documents refused because the data of an attachment are missing. RxDB's helper still lists their events and other attachments. */
function refusedIds<D>(errors: readonly RxStorageWriteError<D>[]): Set<string> {
  return new Set(errors.filter(({ status }) => status === NO_DATA).map(({ documentId }) => documentId));
}

/** Whether RxDB repeats this insert at once, with the same timestamp, because the document had been deleted. */
function isInsertedAnew<D>(error: RxStorageWriteError<D>): boolean {
  const { previous, document } = error.writeRow;
  return error.status === 409 && previous === undefined && !document._deleted && error.documentInDb._deleted;
}

export class MangroveStorageInstance<D>
  implements RxStorageInstance<D, MangroveInternals, MangroveInstanceOptions, RxStorageDefaultCheckpoint>
{
  readonly databaseName: string;
  readonly collectionName: string;
  readonly schema: Readonly<RxJsonSchema<RxDocumentData<D>>>;
  readonly options: Readonly<MangroveInstanceOptions>;
  readonly internals: MangroveInternals;
  readonly #layout: Layout<D>;
  readonly #lease: Lease;
  readonly #changes = new Subject<Changes<D>>();
  readonly #timeline = new Timeline();
  /** Calls that have not ended. */
  readonly #calls = new Set<Promise<unknown>>();
  #closed: Promise<void> | undefined;

  constructor(params: RxStorageInstanceCreationParams<D, MangroveInstanceOptions>, layout: Layout<D>, lease: Lease) {
    this.databaseName = params.databaseName;
    this.collectionName = params.collectionName;
    this.schema = params.schema;
    this.options = params.options ?? {};
    this.internals = { database: layout.database };
    this.#layout = layout;
    this.#lease = lease;
  }

  bulkWrite(rows: BulkWriteRow<D>[], context: string): Promise<RxStorageBulkWriteResponse<D>> {
    return this.#call(async () => {
      const { primary } = this.#layout;
      const ids = rows.map((row) => idOf(row, primary));
      const lwt = rows.reduce((first, { document: { _meta } }) => (_meta.lwt < first ? _meta.lwt : first), Infinity);
      return this.#timeline.add(lwt, this.#write(rows, ids, context), (categorized) => {
        if (categorized.errors.some(isInsertedAnew)) this.#timeline.expect(lwt);
        this.#report(categorized);
        return { error: categorized.errors };
      });
    });
  }

  async #write(
    rows: BulkWriteRow<D>[],
    ids: readonly string[],
    context: string,
  ): Promise<CategorizeBulkWriteRowsOutput<D>> {
    const inserted = await this.#insert(rows, ids, context);
    if (inserted !== undefined) return inserted;
    return this.#transact(async (tx) => {
      const documents = tx.collection(this.#layout.documents);
      const stored = new Map<string, RxDocumentData<D>>();
      for (const [at, document] of (await documents.getMany(ids)).entries())
        if (document !== undefined) stored.set(ids[at]!, document);
      const { primary } = this.#layout;
      const categorized = categorizeBulkWriteRows<D>(this, primary as StringKeys<D>, stored, rows, context);
      await this.#store(documents, categorized);
      await this.#storeAttachments(tx, categorized);
      return categorized;
    });
  }

  /**
   * Stores new documents by one message. Returns `undefined`, with nothing stored, if a document exists: the outcome of
   * that write depends on its stored state, which has to be read.
   */
  async #insert(
    rows: BulkWriteRow<D>[],
    ids: readonly string[],
    context: string,
  ): Promise<CategorizeBulkWriteRowsOutput<D> | undefined> {
    const { primary, database, documents, attachments } = this.#layout;
    if (attachments !== undefined || rows.some(({ previous }) => previous !== undefined)) return undefined;
    if (new Set(ids).size < ids.length) return undefined;
    const categorized = categorizeBulkWriteRows<D>(this, primary as StringKeys<D>, new Map(), rows, context);
    if (categorized.bulkInsertDocs.length < rows.length) return undefined;
    const batch = database.batch().collection(documents);
    for (const [at, { document }] of categorized.bulkInsertDocs.entries())
      batch.check(ids[at]!, null).set(ids[at]!, document);
    const committed = await batch.tryCommit(this.#writeOptions);
    return committed.ok ? categorized : undefined;
  }

  findDocumentsById(ids: string[], withDeleted: boolean): Promise<RxDocumentData<D>[]> {
    return this.#read(async () => {
      const documents = await this.#layout.documents.getMany(ids);
      return documents.filter(
        (document) => document !== undefined && (withDeleted || !document._deleted),
      ) as RxDocumentData<D>[];
    });
  }

  query(prepared: PreparedQuery<D>): Promise<RxStorageQueryResult<D>> {
    return this.#read(async () => {
      const scan = planScan(this.#layout, this.schema, prepared);
      return { documents: await readDocuments(this.#source(), scan, prepared.query) };
    });
  }

  count(prepared: PreparedQuery<D>): Promise<RxStorageCountResult> {
    return this.#read(async () => {
      const scan = planScan(this.#layout, this.schema, prepared);
      const count = await countDocuments(this.#source(), scan, prepared.query);
      return { count, mode: scan.isExact ? 'fast' : 'slow' };
    });
  }

  getChangedDocumentsSince(
    limit: number,
    checkpoint?: RxStorageDefaultCheckpoint,
  ): Promise<{ documents: RxDocumentData<D>[]; checkpoint: RxStorageDefaultCheckpoint }> {
    return this.#read(async () => {
      const { documents, primary } = this.#layout;
      const { lwt, id } = checkpoint ?? { lwt: 0, id: '' };
      const index = documents.index(indexName(['_meta.lwt', primary]));
      const changed = await this.#timeline.read(() => index.values({ gt: [lwt, id], limit }).toArray());
      const last = changed.at(-1);
      return {
        documents: changed,
        checkpoint:
          last === undefined
            ? { lwt, id }
            : { lwt: last._meta.lwt, id: (last as Record<string, unknown>)[primary] as string },
      };
    });
  }

  changeStream(): Observable<Changes<D>> {
    this.#checkOpen();
    return this.#changes.asObservable();
  }

  getAttachmentData(documentId: string, attachmentId: string, digest: string): Promise<Blob> {
    return this.#call(async () => {
      const stored = await this.#layout.attachments?.get([documentId, attachmentId]);
      if (stored?.digest !== digest) {
        throw new KvError(
          'KV_NOT_FOUND',
          `the document ${JSON.stringify(documentId)} has no attachment ${JSON.stringify(attachmentId)} with the digest ${digest}`,
        );
      }
      return new Blob([stored.data as Uint8Array<ArrayBuffer>], { type: stored.type });
    });
  }

  cleanup(minimumDeletedTime: number): Promise<boolean> {
    return this.#call(async () => {
      const deletedUntil = now() - minimumDeletedTime;
      const removed = await this.#transact(async (tx) => {
        const documents = tx.collection(this.#layout.documents);
        const ids = await untilWhole(() =>
          documents.index(DELETED).keys({ lte: deletedUntil, limit: CLEANUP_BATCH }).toArray(),
        );
        await documents.deleteMany(ids);
        const { attachments } = this.#layout;
        if (attachments !== undefined)
          await Promise.all(ids.map((id) => tx.collection(attachments).clear({ prefix: [id] })));
        return ids.length;
      });
      return removed < CLEANUP_BATCH;
    });
  }

  close(): Promise<void> {
    return (this.#closed ??= this.#release());
  }

  async remove(): Promise<void> {
    this.#checkOpen();
    this.#closed = this.#release(async () => {
      const { documents, attachments } = this.#layout;
      await this.#transact(async (tx) => {
        await tx.dropCollection(documents.name);
        if (attachments !== undefined) await tx.dropCollection(attachments.name);
      });
    });
    return this.#closed;
  }

  #source(): Source<D> {
    const { database, documents } = this.#layout;
    return { database, documents, schema: this.schema };
  }

  async #store(
    documents: Writer<string, RxDocumentData<D>>,
    { bulkInsertDocs, bulkUpdateDocs }: CategorizeBulkWriteRowsOutput<D>,
  ): Promise<void> {
    const { primary } = this.#layout;
    const entries = [...bulkInsertDocs, ...bulkUpdateDocs].map(
      ({ document }) => [(document as Record<string, unknown>)[primary] as string, document] as const,
    );
    if (entries.length > 0) await documents.setMany(entries);
  }

  async #storeAttachments(
    tx: Transaction,
    { attachmentsAdd, attachmentsUpdate, attachmentsRemove, errors }: CategorizeBulkWriteRowsOutput<D>,
  ): Promise<void> {
    if (this.#layout.attachments === undefined) return;
    const attachments: Reader<AttachmentKey, StoredAttachment> & Writer<AttachmentKey, StoredAttachment> =
      tx.collection(this.#layout.attachments);
    const refused = refusedIds(errors);
    const changed = [...attachmentsAdd, ...attachmentsUpdate].filter(({ documentId }) => !refused.has(documentId));
    if (changed.length > 0) await attachments.setMany(await Promise.all(changed.map(toEntry)));
    if (attachmentsRemove.length > 0)
      await attachments.deleteMany(
        attachmentsRemove.map(({ documentId, attachmentId }) => [documentId, attachmentId] as const),
      );
  }

  /** Emits the event of a commit. */
  #report({ eventBulk, errors, newestRow }: CategorizeBulkWriteRowsOutput<D>): void {
    const refused = refusedIds(errors);
    const events =
      refused.size === 0 ? eventBulk.events : eventBulk.events.filter(({ documentId }) => !refused.has(documentId));
    if (events.length === 0 || newestRow === undefined) return;
    const { document } = newestRow;
    const id = (document as Record<string, unknown>)[this.#layout.primary] as string;
    const { lwt } = document._meta;
    const oldest = this.#timeline.oldest();
    const checkpoint = oldest < lwt ? { id: '', lwt: oldest } : { id, lwt };
    this.#changes.next({ ...eventBulk, events, checkpoint });
  }

  /** One commit, which runs again after a conflict; each conflict is another's commit that succeeded. */
  #transact<T>(run: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#layout.database.transaction(run, { ...this.#writeOptions, maxRetries: Infinity, timeout: Infinity });
  }

  get #writeOptions(): WriteOptions {
    const { durability } = this.options;
    return durability === undefined ? {} : { durability };
  }

  #checkOpen(): void {
    if (this.#closed === undefined) return;
    // RxDB's tests of storages require this error to be of the class `Error` itself.
    const message = `the storage of the collection ${JSON.stringify(this.collectionName)} of ${JSON.stringify(this.databaseName)} is closed`;
    throw Object.assign(new Error(message), { code: 'KV_CLOSED', retryable: false });
  }

  async #call<T>(run: () => Promise<T>): Promise<T> {
    this.#checkOpen();
    const call = run();
    this.#calls.add(call);
    try {
      return await call;
    } finally {
      this.#calls.delete(call);
    }
  }

  /**
   * Retries a read whose snapshot was lost. Resolves after the events of earlier writes: RxDB applies every later event to
   * the result.
   */
  #read<T>(run: () => Promise<T>): Promise<T> {
    return this.#call(() =>
      untilWhole(async () => {
        const emitted = this.#timeline.emitted();
        const result = await run();
        await emitted;
        return result;
      }),
    );
  }

  async #release(last?: () => Promise<void>): Promise<void> {
    await Promise.allSettled(this.#calls);
    try {
      await last?.();
    } finally {
      this.#changes.complete();
      await this.#lease.release();
    }
  }
}
