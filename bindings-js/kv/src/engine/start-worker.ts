// Starts a page's worker.
import type { WorkerSource } from '../types/sources.ts';
import { NoWorkerError } from '../wire/worker-transport.ts';
import type { WorkerPort } from '../wire/worker-transport.ts';
import { KvError } from '../base/errors.ts';

/**
 * Starts the worker that the caller provides, or else the package's own.
 *
 * @throws NoWorkerError if it cannot be started; KvError KV_INVALID_ARGUMENT if the caller's
 * function does not return a worker.
 */
export function startWorker(
  kind: 'opfs' | 'indexeddb' | 'memory',
  source: WorkerSource | undefined,
  own: () => Worker,
): WorkerPort {
  let worker: Worker;
  try {
    if (typeof source === 'function') worker = source(kind);
    else worker = source === undefined ? own() : new Worker(source, { type: 'module', name: 'mangrove-kv' });
  } catch (error) {
    throw new NoWorkerError(error instanceof Error ? error.message : '', { cause: error });
  }
  if (typeof worker?.postMessage === 'function' && typeof worker.terminate === 'function') return worker as WorkerPort;
  throw new KvError('KV_INVALID_ARGUMENT', 'the function worker has to return a Worker');
}
