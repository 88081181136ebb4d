// Time limits for the browser's promises, some of which never settle.
import { KvError } from '../base/errors.ts';

/** Time limit for browser calls that have no limit of their own. */
export const BROWSER_MS = 30_000;

/** Whether the browser has loaded the page before its user wants it. */
export function isPrerendered(): boolean {
  return (globalThis.document as { readonly prerendering?: boolean } | undefined)?.prerendering === true;
}

/**
 * Calls `run` at once, or when a prerendered page is shown: until then the browser holds back what
 * would be waited for.
 */
export function whenShown(run: () => void): void {
  if (isPrerendered()) document.addEventListener('prerenderingchange', run, { once: true });
  else run();
}

/** Settles with `promise`, or rejects with KV_TIMEOUT, which names what was waited for. */
export function within<T>(promise: Promise<T>, milliseconds: number, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    whenShown(() => {
      timer = setTimeout(() => {
        reject(new KvError('KV_TIMEOUT', `${what} took longer than ${milliseconds / 1000} s; the browser did not answer`, { retryable: true }));
      }, milliseconds);
    });
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
