// Code that is loaded when it is first needed.
import { KvError } from './errors.ts';

/**
 * Waits for `import()`. Nothing was done when it fails.
 *
 * @throws KvError KV_IO, retryable: a file that was removed by a deployment, or no network.
 */
export function loadChunk<T>(loading: Promise<T>): Promise<T> {
  return loading.catch((cause: unknown) => {
    throw new KvError('KV_IO', `a part of mangrove-kv cannot be loaded: ${String(cause)}`, { cause, retryable: true });
  });
}
