// The dedicated worker that restores or recovers one database.
import { toPlain } from '../base/plain-error.ts';
import { KvError } from '../base/errors.ts';
import { placeOf } from '../base/names.ts';
import { names } from '../tabs/messages.ts';
import type { Announcement } from '../tabs/messages.ts';
import type { StorageFile } from '../types/index.ts';
import { IdbTarget, openIdbSource } from '../maintenance/idb.ts';
import type { Watch } from '../maintenance/report.ts';
import { OpfsTarget, openOpfsSource } from '../maintenance/opfs.ts';
import { appendTo } from '../maintenance/options.ts';
import { recoverInto, restoreInto } from '../maintenance/run.ts';
import type { Target } from '../maintenance/run.ts';
import type { MaintenanceMessage, MaintenancePiece, MaintenanceRequest } from '../maintenance/worker-protocol.ts';

/** Exists only in workers, so the DOM types lack it. */
declare const FileReaderSync: new () => { readAsArrayBuffer(blob: Blob): ArrayBuffer };

interface Scope {
  onmessage: ((event: { readonly data: MaintenanceRequest | MaintenancePiece }) => void) | null;
  postMessage(message: MaintenanceMessage): void;
}

const scope = globalThis as unknown as Scope;

const watch: Watch = (phase, done, total) => {
  scope.postMessage({ type: 'progress', phase, done, total });
  // To end the work, the page terminates the worker.
  return true;
};

const neverEnded = (): KvError => new KvError('KV_IO', 'the job was cancelled');

/** Reads a Blob in place. */
function blobFile(blob: Blob): StorageFile {
  const reader = new FileReaderSync();
  const refuse = (): never => {
    throw new KvError('KV_READ_ONLY', 'a backup is not written to');
  };
  return {
    read(at, into) {
      const bytes = new Uint8Array(reader.readAsArrayBuffer(blob.slice(at, at + into.length)));
      if (bytes.length !== into.length) throw new KvError('KV_IO', `read at ${at}: the backup ends before`);
      into.set(bytes);
    },
    size: () => blob.size,
    close: () => {},
    write: refuse,
    flush: refuse,
    truncate: refuse,
  };
}

/** Copies a backup to a file, piece by piece as the page sends them on request. */
async function spool(target: Target): Promise<StorageFile> {
  const file = await target.spool();
  const append = appendTo(file);
  for (;;) {
    const piece = await new Promise<MaintenancePiece>((resolve) => {
      scope.onmessage = ({ data }) => resolve(data as MaintenancePiece);
      scope.postMessage({ type: 'pull' });
    });
    if (piece === 'end') return file;
    append(piece);
  }
}

/** Opens the files. While tabs hold them, asks these to close the database. */
async function acquire<T>(database: string, timeoutMs: number, open: () => Promise<T>): Promise<T> {
  const end = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await open();
    } catch (error) {
      if ((error as Partial<KvError>).code !== 'KV_LOCKED') throw error;
      const channel = new BroadcastChannel(names.all(database));
      channel.postMessage({ type: 'wanted' } satisfies Announcement);
      channel.close();
      if (performance.now() >= end) throw error;
    }
  }
}

async function work({ maker, storage, bucket, lockTimeoutMs, job }: MaintenanceRequest): Promise<void> {
  const [Place, openSource] = storage === 'opfs' ? [OpfsTarget, openOpfsSource] : [IdbTarget, openIdbSource];
  let report;
  if (job.kind === 'restore') {
    const { name, backup } = job;
    const open = async (target: Target): Promise<StorageFile> =>
      backup === undefined ? spool(target) : blobFile(backup);
    report = await restoreInto(
      maker,
      await acquire(
        placeOf(storage, name, bucket),
        lockTimeoutMs,
        (): Promise<Target> => Place.open(name, job, true, bucket),
      ),
      open,
      watch,
      neverEnded,
    );
  } else {
    const { name, into } = job;
    report = await recoverInto(
      maker,
      await acquire(placeOf(storage, name, bucket), lockTimeoutMs, () => openSource(name, bucket)),
      () => Place.open(into, {}, false, bucket),
      watch,
      neverEnded,
    );
  }
  scope.postMessage({ type: 'done', report });
}

scope.onmessage = ({ data }) => {
  work(data as MaintenanceRequest).catch((error: unknown) =>
    scope.postMessage({ type: 'failed', error: toPlain(error) }),
  );
};
