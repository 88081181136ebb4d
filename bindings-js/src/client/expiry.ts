// When an entry expires, as the caller says it and as the engine takes it.
import { KvError } from '../errors.ts';
import type { Expiry } from '../types.ts';

/** Milliseconds since 1970, or 0 for never. `expireIn` is the collection's, for calls that say nothing. */
export function toExpiry(options: Expiry | undefined, expireIn: number | undefined): number {
  const { expireAt } = options ?? {};
  const wait = options?.expireIn ?? (expireAt === undefined ? expireIn : undefined);
  if (wait !== undefined && expireAt !== undefined) {
    throw new KvError('KV_INVALID_ARGUMENT', 'an entry expires either in some time, expireIn, or at one, expireAt');
  }
  if (wait === undefined && expireAt === undefined) return 0;
  if (wait === Infinity) return 0;
  const at = wait === undefined ? Number(expireAt) : Date.now() + checkWait(wait);
  if (!Number.isFinite(at) || at > Number.MAX_SAFE_INTEGER) {
    throw new KvError('KV_INVALID_ARGUMENT', 'expireAt has to be a valid Date or milliseconds since 1970');
  }
  // 0 would be never, and what is past is past.
  return Math.max(Math.ceil(at), 1);
}

export function checkWait(wait: unknown): number {
  if (typeof wait === 'number' && wait >= 0) return wait;
  throw new KvError('KV_INVALID_ARGUMENT', 'expireIn has to be a number of milliseconds that is not negative');
}
