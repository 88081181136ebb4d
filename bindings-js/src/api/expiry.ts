// When an entry expires, as the caller says it and as the engine takes it.
import { KvError } from '../base/errors.ts';
import type { Expiry } from '../types/index.ts';

/** Milliseconds since 1970, or 0 for never. `expireIn` is the collection's, for calls that say nothing. */
export function toExpiry(options: Expiry | undefined, expireIn: number | undefined): number {
  const { expireAt, expireIn: own } = options ?? {};
  if (expireAt === undefined) {
    const wait = checkWait(own === undefined ? expireIn ?? Infinity : own);
    return wait === Infinity ? 0 : toTime('expireIn', Date.now() + wait);
  }
  if (own !== undefined) throw new KvError('KV_INVALID_ARGUMENT', 'an entry expires either in some time, expireIn, or at one, expireAt');
  return toTime('expireAt', expireAt instanceof Date ? expireAt.getTime() : expireAt);
}

/** Whole milliseconds; nothing expires before its time. */
function toTime(name: string, at: unknown): number {
  // 0 would be never, and what is past is past.
  if (typeof at === 'number' && at <= Number.MAX_SAFE_INTEGER && at > -Infinity) return Math.max(Math.ceil(at), 1);
  throw new KvError('KV_INVALID_ARGUMENT', name === 'expireIn' ? 'expireIn is too long; Infinity is never' : 'expireAt has to be a valid Date or milliseconds since 1970');
}

/** As `toExpiry`, for an entry that takes the place of another: unless a time is given it keeps that one's. */
export function toNewExpiry(options: Expiry | undefined, expireIn: number | undefined, before: { readonly expiresAt?: number } | undefined): number {
  const isGiven = [options?.expireIn, options?.expireAt, expireIn].some((time) => time !== undefined);
  return isGiven ? toExpiry(options, expireIn) : before?.expiresAt ?? 0;
}

export function checkWait(wait: unknown): number {
  if (typeof wait === 'number' && wait >= 0) return wait;
  throw new KvError('KV_INVALID_ARGUMENT', 'expireIn has to be a number of milliseconds that is not negative, or Infinity');
}
