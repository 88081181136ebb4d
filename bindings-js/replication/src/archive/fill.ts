// Fills an archive. Everything in it is created once and under the name that its content has
// anyway, so that it may be done by several at once, and again after it was interrupted.
import { KvError } from 'mangrove-kv';
import { isTruncated, logUnavailable } from '../remote-log.ts';
import type { Position, RemoteLog, SnapshotStore } from '../remote-log.ts';
import { copyBlocks, readManifest, streamOf } from '../snapshot.ts';
import type { SnapshotHeader } from '../snapshot.ts';
import { Wire } from '../wire.ts';
import type { Seal } from '../wire.ts';
import type { ArchivedSnapshot, LogArchive } from './plan.ts';

/** Options of {@link archiveSnapshot} and {@link archiveLog}. */
export interface ArchiveOptions {
  /** The log of the database. It stays open. */
  readonly log: RemoteLog;
  readonly archive: LogArchive;
  /** The object store of the database. */
  readonly snapshots: SnapshotStore;
  /** What devices seal with. Records are copied without it, snapshots are not. */
  readonly seal?: Seal | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link archiveLog}. */
export interface ArchiveLogOptions extends ArchiveOptions {
  /**
   * Whether to copy the newest snapshot even if no record is missing, so that restoring takes less
   * time. Default: false.
   */
  readonly snapshot?: boolean | undefined;
}

/** What the archive has now. */
export interface ArchiveLogReport {
  /** The position of the last record that was archived before. */
  readonly from: Position;
  /** The position of the last record that is archived. */
  readonly position: Position;
  /** The snapshot that the archive has a copy of now, if one was asked for or needed. */
  readonly snapshot: ArchivedSnapshot | undefined;
  /**
   * Records after the one position, up to the other, were removed from the log before they were
   * archived: times in between cannot be restored.
   */
  readonly gap: { readonly after: Position; readonly upTo: Position } | undefined;
}

function check(name: string, options: ArchiveOptions): void {
  const { log, archive, snapshots } = (options ?? {}) as Partial<ArchiveOptions>;
  const wanted = { log: log?.read, archive: archive?.addSnapshot, snapshots: snapshots?.get };
  for (const [option, method] of Object.entries(wanted)) {
    if (typeof method !== 'function')
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `${name} needs the option \`${option}\`: the log of a database, its archive, and its object store`,
      );
  }
}

/** How often a snapshot may be replaced while it is copied, or records be purged before they are read. */
const MAX_TRIES = 3;

/**
 * Copies the snapshot that the log's manifest names into the archive, and notes it there. Resolves
 * to it, or to undefined if the log has none. Compaction does not delete the copy.
 *
 * @throws KvError KV_LOG_UNAVAILABLE and KV_LOG_REFUSED as the servers answer; KV_CORRUPT if the
 * snapshot is damaged or sealed with another key; KV_NOT_FOUND if it is missing.
 */
export async function archiveSnapshot(options: ArchiveOptions): Promise<ArchivedSnapshot | undefined> {
  check('archiveSnapshot', options);
  const { log, archive, snapshots, seal, signal } = options;
  const wire = new Wire(seal);
  for (let tries = 1; ; tries++) {
    signal?.throwIfAborted();
    const manifest = (await readManifest(log, wire))?.content;
    if (manifest === undefined) return undefined;
    const {
      key,
      cursor: { position },
    } = manifest;
    try {
      const known = await archive.snapshotAt(position);
      const isCopied = (await archive.snapshots.list(key)).includes(key);
      if (isCopied && known?.key === key) return known;
      // Killed between the two, or another archiver has copied it meanwhile.
      const header = isCopied
        ? await headerOf(archive.snapshots, key, wire)
        : await copy(snapshots, archive.snapshots, key, wire, signal);
      if (header.cursor.position !== position)
        throw new KvError(
          'KV_CORRUPT',
          `the log's manifest says that ${key} has everything up to position ${position}, but that is ${header.cursor.position}`,
        );
      const snapshot = { position, serverTime: header.cursor.serverTime, key };
      await archive.addSnapshot(snapshot);
      return snapshot;
    } catch (error) {
      signal?.throwIfAborted();
      // A compaction deletes older snapshots, maybe while they are copied.
      if (tries === MAX_TRIES || (await readManifest(log, wire))?.content.key === key) throw error;
    }
  }
}

async function open(store: SnapshotStore, key: string, signal?: AbortSignal): Promise<ReadableStream<Uint8Array>> {
  const stream = await store.get(key, signal);
  if (stream === undefined)
    throw new KvError('KV_NOT_FOUND', `the object store has no ${key}, which the log's manifest names`);
  return stream;
}

async function copy(
  from: SnapshotStore,
  to: SnapshotStore,
  key: string,
  wire: Wire,
  signal: AbortSignal | undefined,
): Promise<SnapshotHeader> {
  let header: SnapshotHeader | undefined;
  const blocks = copyBlocks(await open(from, key, signal), wire, key, (found) => {
    header = found;
  });
  await to.put(key, streamOf(blocks), signal).catch((error: unknown) => {
    // Another archiver was faster: keys are random, so it is the same snapshot.
    if ((error as Partial<KvError>).code !== 'KV_LOG_CONFLICT') throw error;
  });
  return header ?? headerOf(to, key, wire);
}

async function headerOf(store: SnapshotStore, key: string, wire: Wire): Promise<SnapshotHeader> {
  let header: SnapshotHeader | undefined;
  const blocks = copyBlocks(await open(store, key), wire, key, (found) => {
    header = found;
  });
  await blocks.next();
  await blocks.return(undefined);
  if (header === undefined) throw logUnavailable(`${key} was deleted while it was read`);
  return header;
}

/**
 * Archives what the log has after the last archived record; to be called again and again. If
 * records in between were removed by compactions, it copies the newest snapshot and goes on after
 * that, and `gap` says what is missing: call it more often than databases are compacted twice.
 *
 * @throws KvError KV_LOG_CONFLICT if the log is not the one that the archive has; and what
 * {@link archiveSnapshot} throws.
 */
export async function archiveLog(options: ArchiveLogOptions): Promise<ArchiveLogReport> {
  check('archiveLog', options);
  const { log, archive, signal } = options;
  const from = await archive.position();
  let snapshot: ArchivedSnapshot | undefined;
  const copySnapshot = async (): Promise<ArchivedSnapshot | undefined> => {
    snapshot = await archiveSnapshot(options);
    return snapshot;
  };
  let position = from;
  let gap = undefined as ArchiveLogReport['gap'];
  for (let tries = 1; ; tries++) {
    try {
      position = await archive.archive(log, {
        ...(snapshot && { after: snapshot.position }),
        ...(signal && { signal }),
      });
      break;
    } catch (error) {
      if (!isTruncated(error) || tries > MAX_TRIES) throw error;
      // What was archived before the records were missing.
      const after = await archive.position();
      const found = await copySnapshot();
      if (found === undefined) throw error;
      gap = { after: gap?.after ?? after, upTo: found.position };
    }
  }
  if (options.snapshot === true && gap === undefined) await copySnapshot();
  return { from, position, snapshot, gap };
}
