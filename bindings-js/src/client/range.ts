// What a caller says about a range, as bytes.
import { encodeBound, prefixRange } from '../codec/keys.ts';
import type { Bound, KeyCodec, KeyPrefix } from '../codec/keys.ts';
import { KvError } from '../errors.ts';
import type { Bounds, Range } from '../types.ts';
import { checkCount } from './async.ts';
import { checkLimit } from './iterator.ts';
import type { ByteRange } from './protocol.ts';

/** A range of keys and which part of its entries. */
export interface Window {
  readonly range: ByteRange;
  readonly reverse: boolean;
  readonly offset: number;
  readonly limit: number;
}

interface Edge {
  readonly bytes: Uint8Array;
  readonly isExclusive: boolean;
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    const difference = (a[index] as number) - (b[index] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

/** Of several edges the one that leaves least; `direction` is 1 for lower edges and -1 for upper ones. */
function tightest(edges: readonly Edge[], direction: 1 | -1): Edge | undefined {
  let best: Edge | undefined;
  for (const edge of edges) {
    const order = best === undefined ? 1 : compareBytes(edge.bytes, best.bytes) * direction;
    if (order > 0 || (order === 0 && edge.isExclusive)) best = edge;
  }
  return best;
}

function toByteRange<K>(codec: KeyCodec<K>, options: Range<K>): ByteRange {
  const lowers: Edge[] = [];
  const uppers: Edge[] = [];
  const add = (edges: Edge[], bound: Bound<K> | undefined, isExclusive: boolean): void => {
    if (bound !== undefined) edges.push({ bytes: encodeBound(codec, bound), isExclusive });
  };
  add(lowers, options.gt, true);
  add(lowers, options.gte, false);
  add(uppers, options.lt, true);
  add(uppers, options.lte, false);
  if (options.prefix !== undefined) {
    const { lower, upper } = prefixRange(codec, options.prefix);
    lowers.push({ bytes: lower, isExclusive: false });
    if (upper !== undefined) uppers.push({ bytes: upper, isExclusive: true });
  }
  const lower = tightest(lowers, 1);
  const upper = tightest(uppers, -1);
  return {
    lower: lower?.bytes,
    lowerExclusive: lower?.isExclusive === true,
    upper: upper?.bytes,
    upperExclusive: upper?.isExclusive === true,
  };
}

const EVERYTHING: Window = { range: {}, reverse: false, offset: 0, limit: Infinity };

export function toWindow<K>(codec: KeyCodec<K>, options: Range<K> | undefined): Window {
  if (options === undefined) return EVERYTHING;
  if (typeof options !== 'object' || options === null) {
    throw new KvError('KV_INVALID_ARGUMENT', 'a range has to be an object');
  }
  const { reverse = false, offset = 0, limit = Infinity } = options;
  if (typeof reverse !== 'boolean') throw new KvError('KV_INVALID_ARGUMENT', 'reverse has to be a boolean');
  return {
    range: toByteRange(codec, options),
    reverse,
    offset: checkCount('offset', offset),
    limit: checkLimit('limit', limit),
  };
}

/** Whether the window leaves out entries within the bounds. */
export function isPart({ offset, limit }: Window): boolean {
  return offset > 0 || limit !== Infinity;
}

/** The bounds of a window from the entry that it gives first to the one that it gives last; without one to the end of the bounds. */
export function boundsOf<K>({ gt, gte, lt, lte, prefix, reverse }: Range<K>, first: Bound<K>, last: Bound<K> | undefined): Bounds<K> {
  if (reverse) return { prefix, lte: first, ...(last === undefined ? { gt, gte } : { gte: last }) };
  return { prefix, gte: first, ...(last === undefined ? { lt, lte } : { lte: last }) };
}

/** For calls that mean keys, not a part of a list. */
export function refuseWindow(options: object | undefined): void {
  const { limit, offset, reverse } = (options ?? {}) as Partial<Window>;
  if (limit === undefined && offset === undefined && reverse === undefined) return;
  throw new KvError('KV_INVALID_ARGUMENT', 'limit, offset and reverse have no meaning here');
}

export function encodeSeek<K>(codec: KeyCodec<K>, key: KeyPrefix<K>): Uint8Array {
  return encodeBound(codec, key as Bound<K>);
}
