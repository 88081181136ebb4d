// The options that each call accepts, and what becomes of arguments: checks, expiries and durabilities.
import { KvError } from '../base/errors.ts';
import { checkOneOf } from '../base/async.ts';
import { checkNames } from '../base/names.ts';
import type { Names } from '../base/names.ts';
import type {
  BatchOp,
  Bounds,
  CollectionOptions,
  Durability,
  Expiry,
  MaintenanceOptions,
  Range,
  RangeOptions,
  ReplicationChangesOptions,
  SetOptions,
  SignalOptions,
  StreamOptions,
  TransactionOptions,
  WatchOptions,
  WithMeta,
  WriteOptions,
} from '../types/index.ts';

export const SIGNAL: Names<SignalOptions> = { signal: 1 };
export const EXPIRY: Names<Expiry> = { expireIn: 1, expireAt: 1 };
export const WRITE: Names<WriteOptions> = { durability: 1, ...SIGNAL };
export const SET: Names<SetOptions> = { ...EXPIRY, ...WRITE };
export const STREAM: Names<StreamOptions> = { type: 1, name: 1, lastModified: 1, ...SET };
export const TRANSACTION: Names<TransactionOptions> = { mode: 1, isolation: 1, maxRetries: 1, timeout: 1, ...WRITE };
export const MAINTENANCE: Names<MaintenanceOptions> = { onProgress: 1, ...SIGNAL };
export const CHANGES: Names<ReplicationChangesOptions> = { since: 1, raw: 1, only: 1, ...SIGNAL };
export const COLLECTION: Names<CollectionOptions<unknown, unknown>> = {
  key: 1,
  value: 1,
  strictValues: 1,
  expireIn: 1,
  schema: 1,
  indexes: 1,
};

const EDGES = { gt: 2, gte: 2, lt: 2, lte: 2 } as const;
const WINDOW = { reverse: 1, limit: 1, offset: 1 } as const;
export const BOUNDS: Names<Bounds<unknown>> = { ...EDGES, prefix: 2 };
export const RANGE: Names<Range<unknown>> = { ...BOUNDS, ...WINDOW };
export const META: Names<WithMeta> = { meta: 1 };
/** For calls that take the prefix as an argument of its own. */
export const PREFIXED: Names<Omit<Range<unknown>, 'prefix'> & WithMeta> = { ...EDGES, ...WINDOW, ...META };
export const FOLLOW: Names<Bounds<unknown> & SignalOptions> = { ...BOUNDS, ...SIGNAL };
export const WATCH: Names<WatchOptions<unknown>> = { initial: 1, ...FOLLOW };
export const READ: Names<RangeOptions<unknown>> = { ...RANGE, ...SIGNAL };
/** An undefined `limit` or `offset` is refused: the call would remove more than was meant. */
export const CLEAR: Names<Range<unknown>> = { ...BOUNDS, reverse: 1, limit: 2, offset: 2 };

const OP = { type: 1, key: 1, collection: 1 } as const;
const OPS: { readonly [T in BatchOp['type']]: Names<Extract<BatchOp, { type: T }>> } = {
  set: { ...OP, value: 1, ...EXPIRY },
  delete: OP,
  check: { ...OP, version: 1 },
};

/** Copies the bounds that are not `undefined`. */
export function onlyBounds<K>(range: Bounds<K>): Bounds<K> {
  const bounds: Bounds<K> = {};
  for (const name of Object.keys(BOUNDS) as (keyof Bounds<K>)[]) {
    if (range[name] !== undefined) Object.assign(bounds, { [name]: range[name] });
  }
  return bounds;
}

export function checkOp(op: BatchOp<unknown, unknown>): void {
  const names = OPS[op?.type];
  if (names === undefined)
    throw new KvError('KV_INVALID_ARGUMENT', 'the type of a batch operation has to be "set", "delete" or "check"');
  checkNames(op.type, op, names);
}

/**
 * `clear()` removes everything. `clear(undefined)` is refused: its range is probably missing by
 * mistake.
 */
export function checkClear(args: readonly unknown[]): void {
  if (args.length !== 1 || args[0] !== undefined) return;
  throw new KvError('KV_INVALID_ARGUMENT', 'the range of clear is undefined; clear() removes everything');
}

/** Refuses strings, which would be iterated character by character. */
export function checkIterable<T>(what: string, list: Iterable<T>): Iterable<T> {
  if (typeof list !== 'string' && typeof list?.[Symbol.iterator] === 'function') return list;
  throw new KvError('KV_INVALID_ARGUMENT', `${what} have to be an array or another iterable`);
}

export function checkPair<K, V>(entry: readonly [K, V]): readonly [K, V] {
  if (Array.isArray(entry)) return entry;
  throw new KvError('KV_INVALID_ARGUMENT', 'an entry of setMany has to be an array [key, value]');
}

const DURABILITIES: readonly Durability[] = ['strict', 'relaxed', 'none'];

/** The engine's code for a durability. */
export function durabilityCode(durability: Durability): number {
  return checkOneOf('durability', durability, DURABILITIES);
}

/**
 * Returns milliseconds since 1970, or 0 for never. `expireIn` is the collection's default, for
 * options without an expiry.
 */
export function toExpiry(options: Expiry | undefined, expireIn: number | undefined): number {
  const { expireAt, expireIn: own } = options ?? {};
  if (expireAt === undefined) {
    const wait = checkWait(own === undefined ? (expireIn ?? Infinity) : own);
    return wait === Infinity ? 0 : toTime('expireIn', Date.now() + wait);
  }
  if (own !== undefined)
    throw new KvError('KV_INVALID_ARGUMENT', 'expireIn (a duration) and expireAt (a time) cannot be combined');
  return toTime('expireAt', expireAt instanceof Date ? expireAt.getTime() : expireAt);
}

/** Rounds up to whole milliseconds, so that nothing expires early. */
function toTime(name: string, at: unknown): number {
  // 0 would mean never; 1 is just as past as any earlier time.
  if (typeof at === 'number' && at <= Number.MAX_SAFE_INTEGER && at > -Infinity) return Math.max(Math.ceil(at), 1);
  throw new KvError(
    'KV_INVALID_ARGUMENT',
    name === 'expireIn'
      ? 'expireIn is too long; Infinity is never'
      : 'expireAt has to be a valid Date or milliseconds since 1970',
  );
}

/**
 * Like `toExpiry`, for a new value of an entry: if neither the options nor the collection give an
 * expiry, the entry keeps its own.
 */
export function toNewExpiry(
  options: Expiry | undefined,
  expireIn: number | undefined,
  before: { readonly expiresAt?: number } | undefined,
): number {
  const isGiven = [options?.expireIn, options?.expireAt, expireIn].some((time) => time !== undefined);
  return isGiven ? toExpiry(options, expireIn) : (before?.expiresAt ?? 0);
}

export function checkWait(wait: unknown): number {
  if (typeof wait === 'number' && wait >= 0) return wait;
  throw new KvError(
    'KV_INVALID_ARGUMENT',
    'expireIn has to be a number of milliseconds that is not negative, or Infinity',
  );
}
