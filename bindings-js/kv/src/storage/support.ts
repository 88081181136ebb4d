// Whether a browser can keep databases, and how long its promises, some of which never settle, are
// waited for.
import { KvError } from '../base/errors.ts';
import type { Support } from '../types/index.ts';

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
        reject(
          new KvError('KV_TIMEOUT', `${what} took longer than ${milliseconds / 1000} s; the browser did not answer`, {
            retryable: true,
          }),
        );
      }, milliseconds);
    });
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** Whether this is a sandboxed frame or a `data:` page. */
export function isOpaque(): boolean {
  return globalThis.origin === 'null';
}

const MESSAGES = {
  'opaque-origin': 'sandboxed frames without allow-same-origin and data: pages have no storage',
  'insecure-context': 'the page has to be served over HTTPS or from localhost',
  'no-worker': 'workers are not available here',
  'no-opfs': 'this browser has no origin private file system',
  'private-mode': 'the browser refuses the origin private file system, as private windows do',
} as const;

/**
 * Returns whether databases can be kept here. Creates nothing.
 *
 * @throws KvError KV_TIMEOUT if the browser does not answer within 30 seconds.
 */
export async function checkSupport(): Promise<Support> {
  const lacking = (found: keyof typeof MESSAGES): Support => {
    const reason = isOpaque() ? 'opaque-origin' : found;
    return { ok: false, reason, message: MESSAGES[reason] };
  };
  if (globalThis.isSecureContext === false) return lacking('insecure-context');
  if (typeof Worker !== 'function') return lacking('no-worker');
  if (typeof globalThis.navigator?.storage?.getDirectory !== 'function') return lacking('no-opfs');
  try {
    await within(navigator.storage.getDirectory(), BROWSER_MS, 'opening the origin private file system');
  } catch (error) {
    // A timeout is not a refusal.
    if (error instanceof KvError) throw error;
    return lacking('private-mode');
  }
  return { ok: true, storage: 'opfs' };
}
