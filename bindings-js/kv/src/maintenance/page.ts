// The page's side of restoring and recovering. Each run has its own worker, which is terminated
// with it.
import { abortable } from '../base/async.ts';
import { toBytes } from '../codec/key-bytes.ts';
import { fromPlain } from '../base/plain-error.ts';
import { startWorker } from '../engine/start-worker.ts';
import { storageBuckets } from '../storage/bucket.ts';
import { checkSupport } from '../storage/support.ts';
import { KvError } from '../base/errors.ts';
import { directoryName, rootDirectory } from '../storage/opfs.ts';
import type { LoadModule } from '../engine/wasm.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/maintenance.ts';
import type { Maker } from './job.ts';
import { MADE_FILES } from './opfs.ts';
import { Watcher, checkPiece, checkMaintenanceOptions, isBlob, readerOf, toMaker, watchRestore } from './options.ts';
import { toRecoverReport } from './report.ts';
import type { FullRecoverReport } from './report.ts';
import type { MaintenanceJob, MaintenanceMessage, MaintenancePiece, MaintenanceRequest } from './worker-protocol.ts';

type NextPiece = () => Promise<MaintenancePiece>;

/** A terminated worker releases its files a moment later. */
const CLEAN_ATTEMPTS = 10;
const CLEAN_PAUSE_MS = 50;
/** As of `open`. */
const LOCK_MS = 10_000;

async function prepare(name: string, options: RecoverOptions, load: LoadModule): Promise<Maker> {
  const { storage, bucket } = options;
  directoryName(name);
  if (bucket !== undefined) storageBuckets();
  if (storage === undefined) {
    const support = await checkSupport();
    if (!support.ok) throw new KvError('KV_UNSUPPORTED', `${support.message} (${support.reason})`);
  } else if (typeof Worker !== 'function') {
    throw new KvError('KV_UNSUPPORTED', 'workers are not available here (no-worker)');
  }
  return toMaker(load, options);
}

function runInWorker(worker: Worker, request: MaintenanceRequest, watcher: Watcher, next: NextPiece): Promise<unknown> {
  const { signal } = watcher;
  let abort = (): void => {};
  const report = new Promise((resolve, reject) => {
    const pull = async (): Promise<void> => {
      const piece = await next();
      worker.postMessage(piece);
    };
    abort = () => reject(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    worker.onmessage = ({ data }: MessageEvent<MaintenanceMessage>) => {
      if (data.type === 'pull') pull().catch(reject);
      else if (data.type === 'failed') reject(fromPlain(data.error));
      else if (data.type === 'done') resolve(data.report);
      else if (!watcher.watch(data.phase, data.done, data.total)) reject(watcher.reason());
    };
    worker.onerror = (event) => {
      event.preventDefault();
      reject(
        new KvError('KV_UNSUPPORTED', `the worker could not be started or failed (no-worker): ${event.message ?? ''}`),
      );
    };
    worker.onmessageerror = () => reject(new KvError('KV_IO', 'a message of the worker could not be read'));
    if (signal?.aborted) abort();
    else worker.postMessage(request);
  });
  return report.finally(() => {
    signal?.removeEventListener('abort', abort);
    worker.terminate();
  });
}

/** Removes the files that a terminated worker left behind. */
async function clean(name: string, bucket: string | undefined): Promise<void> {
  const root = await rootDirectory(false, bucket);
  const parent = await root?.getDirectoryHandle(directoryName(name));
  for (const file of MADE_FILES) {
    for (let attempt = 0; attempt < CLEAN_ATTEMPTS; attempt++) {
      const isLeft = await parent?.removeEntry(file).then(
        () => false,
        (error: DOMException) => error.name !== 'NotFoundError',
      );
      if (!isLeft) break;
      await new Promise((resolve) => setTimeout(resolve, CLEAN_PAUSE_MS));
    }
  }
}

async function maintenance(
  load: LoadModule,
  name: string,
  job: MaintenanceJob,
  options: RecoverOptions,
  watcher: Watcher,
  next: NextPiece,
): Promise<unknown> {
  const maker = await abortable(prepare(name, options, load), watcher.signal);
  // In a browser it is a real `Worker`.
  const worker = startWorker(
    options.storage ?? 'opfs',
    options.worker,
    () =>
      new Worker(new URL('./worker-maintenance.js', import.meta.url), {
        type: 'module',
        name: 'mangrove-kv-maintenance',
      }),
  ) as unknown as Worker;
  try {
    return await runInWorker(
      worker,
      {
        maker,
        storage: options.storage ?? 'opfs',
        bucket: options.bucket,
        lockTimeoutMs: options.lockTimeout ?? LOCK_MS,
        job,
      },
      watcher,
      next,
    );
  } catch (error) {
    // A worker that failed by itself has cleaned up.
    const isEnded = watcher.signal?.aborted || error === watcher.reason();
    if (isEnded && options.storage === undefined) await clean(name, options.bucket).catch(() => undefined);
    throw error;
  }
}

export async function restoreIn(
  load: LoadModule,
  name: string | URL,
  backup: BackupSource,
  options: RestoreOptions,
): Promise<void> {
  const watcher = watchRestore(options, backup);
  const path = String(name);
  const bytes = toBytes(backup);
  // The caller may change the bytes after this call.
  const whole = bytes === undefined ? backup : new Blob([bytes.slice()]);
  const [blob, reader] = isBlob(whole) ? [whole, undefined] : [undefined, readerOf(whole)];
  const next = async (): Promise<MaintenancePiece> => {
    const result = await reader?.read();
    return result === undefined || result.done ? 'end' : checkPiece(result.value);
  };
  const job: MaintenanceJob = {
    kind: 'restore',
    name: path,
    overwrite: options.overwrite ?? false,
    force: options.force ?? false,
    backup: blob,
  };
  try {
    await maintenance(load, path, job, options, watcher, next);
  } catch (error) {
    reader?.cancel(error).catch(() => undefined);
    throw error;
  }
}

export async function recoverIn(
  load: LoadModule,
  name: string | URL,
  into: string | URL,
  options: RecoverOptions,
): Promise<RecoverReport> {
  checkMaintenanceOptions('recover', options);
  const watcher = new Watcher(options);
  directoryName(String(name));
  const job: MaintenanceJob = { kind: 'recover', name: String(name), into: String(into) };
  const none = async (): Promise<MaintenancePiece> => 'end';
  const report = toRecoverReport(
    (await maintenance(load, String(into), job, options, watcher, none)) as FullRecoverReport,
  );
  watcher.done(report.entries);
  return report;
}
