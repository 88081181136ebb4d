// Time limits for the browser's promises, some of which never settle.
import { KvError } from '../base/errors.ts';

/** Time limit for browser calls that have no limit of their own. */
export const BROWSER_MS = 30_000;

/** Settles with `promise`, or rejects with KV_TIMEOUT, which names what was waited for. */
export function within<T>(promise: Promise<T>, milliseconds: number, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new KvError('KV_TIMEOUT', `${what} took longer than ${milliseconds / 1000} s; the browser did not answer`, { retryable: true }));
    }, milliseconds);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
