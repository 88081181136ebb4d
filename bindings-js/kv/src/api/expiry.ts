// Converts an expiry from the caller's options to the engine's time.
import { KvError } from '../base/errors.ts';
import type { Expiry } from '../types/index.ts';

/**
 * Returns milliseconds since 1970, or 0 for never. `expireIn` is the collection's default, for
 * options without an expiry.
 */
export function toExpiry(options: Expiry | undefined, expireIn: number | undefined): number {
  const { expireAt, expireIn: own } = options ?? {};
  if (expireAt === undefined) {
    const wait = checkWait(own === undefined ? expireIn ?? Infinity : own);
    return wait === Infinity ? 0 : toTime('expireIn', Date.now() + wait);
  }
  if (own !== undefined) throw new KvError('KV_INVALID_ARGUMENT', 'expireIn (a duration) and expireAt (a time) cannot be combined');
  return toTime('expireAt', expireAt instanceof Date ? expireAt.getTime() : expireAt);
}

/** Rounds up to whole milliseconds, so that nothing expires early. */
function toTime(name: string, at: unknown): number {
  // 0 would mean never; 1 is just as past as any earlier time.
  if (typeof at === 'number' && at <= Number.MAX_SAFE_INTEGER && at > -Infinity) return Math.max(Math.ceil(at), 1);
  throw new KvError('KV_INVALID_ARGUMENT', name === 'expireIn' ? 'expireIn is too long; Infinity is never' : 'expireAt has to be a valid Date or milliseconds since 1970');
}

/**
 * Like `toExpiry`, for a new value of an entry: if neither the options nor the collection give an
 * expiry, the entry keeps its own.
 */
export function toNewExpiry(options: Expiry | undefined, expireIn: number | undefined, before: { readonly expiresAt?: number } | undefined): number {
  const isGiven = [options?.expireIn, options?.expireAt, expireIn].some((time) => time !== undefined);
  return isGiven ? toExpiry(options, expireIn) : before?.expiresAt ?? 0;
}

export function checkWait(wait: unknown): number {
  if (typeof wait === 'number' && wait >= 0) return wait;
  throw new KvError('KV_INVALID_ARGUMENT', 'expireIn has to be a number of milliseconds that is not negative, or Infinity');
}
