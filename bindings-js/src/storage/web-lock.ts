// Locks of the browser: of one origin, over all tabs and workers, released when their holder is gone.
import { KvError } from '../errors.ts';

/** Takes a lock, waiting up to `timeoutMs`; gives what releases it. */
export async function lockByName(name: string, timeoutMs: number): Promise<() => void> {
  const locks = globalThis.navigator?.locks;
  if (locks === undefined) throw new KvError('KV_UNSUPPORTED', 'this browser has no Web Locks, or the page is not served over HTTPS');
  const controller = new AbortController();
  const timer = timeoutMs === Infinity ? undefined : setTimeout(() => controller.abort(), timeoutMs);
  try {
    return await new Promise<() => void>((resolve, reject) => {
      const held = (): Promise<void> => new Promise((release) => resolve(release));
      locks.request(`mangrove-kv:${name}`, { signal: controller.signal }, held).catch(reject);
    });
  } catch (error) {
    if (!controller.signal.aborted) throw new KvError('KV_UNSUPPORTED', `the browser refuses a lock for ${name}`, { cause: error });
    throw new KvError('KV_LOCKED', `${name} is open in another tab or handle; close it there first`, { cause: error, retryable: true });
  } finally {
    clearTimeout(timer);
  }
}
