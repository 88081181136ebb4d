// Tells whether a browser can keep databases.
import { KvError } from '../base/errors.ts';
import type { Support } from '../types/index.ts';
import { isOpaque } from './origin.ts';
import { BROWSER_MS, within } from './deadline.ts';

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
