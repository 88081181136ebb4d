// Web Locks: shared by all tabs and workers of an origin, and released when their holder is gone.
import { KvError } from '../base/errors.ts';
import { placeOf } from '../base/names.ts';
import { AbortController } from '../base/platform.ts';

/** Maximum delay of a timer; a longer one would wrap around. */
const MAX_TIMER_MS = 2 ** 31 - 1;

function isLocked(name: string, cause?: unknown): KvError {
  return new KvError('KV_LOCKED', `${name} is open in another tab or handle; close it there first`, {
    cause,
    retryable: true,
  });
}

/**
 * Takes a lock; waits up to `timeoutMs`, or until the signal is aborted. Returns a function that
 * releases it. Locks are of the whole origin, so those of a bucket have names of their own.
 */
export async function lockByName(
  name: string,
  timeoutMs: number,
  signal?: AbortSignal,
  bucket?: string,
): Promise<() => void> {
  const locks = globalThis.navigator?.locks;
  if (locks === undefined)
    throw new KvError('KV_UNSUPPORTED', 'this browser has no Web Locks, or the page is not served over HTTPS');
  const controller = new AbortController();
  signal?.throwIfAborted();
  const abort = (): void => controller.abort();
  signal?.addEventListener('abort', abort, { once: true });
  const isWaiting = timeoutMs > 0;
  const timer = isWaiting && timeoutMs <= MAX_TIMER_MS ? setTimeout(abort, timeoutMs) : undefined;
  const options = isWaiting ? { signal: controller.signal } : { ifAvailable: true };
  try {
    return await new Promise<() => void>((resolve, reject) => {
      const held = (lock: Lock | null): Promise<void> | undefined => {
        if (lock === null) return void reject(isLocked(name));
        if (controller.signal.aborted) return undefined;
        return new Promise((release) => resolve(release));
      };
      // Chromium drops an abort that precedes the registration of a page's first request, and may
      // grant that lock later.
      controller.signal.addEventListener('abort', () => reject(controller.signal.reason));
      locks.request(placeOf('mangrove-kv', name, bucket), options, held).catch(reject);
    });
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof KvError) throw error;
    if (controller.signal.aborted) throw isLocked(name, error);
    throw new KvError('KV_UNSUPPORTED', `the browser refuses a lock for ${name}`, { cause: error });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}
