// Ranges of the caller's options as bytes, and the scan of one as the verbs describe it.
import { encodeBound, prefixRange } from '../codec/keys.ts';
import type { Bound, KeyCodec, KeyPrefix } from '../codec/keys.ts';
import type { Bounds, Range, WithMeta } from '../types/index.ts';
import { checkBoolean, checkCount, checkLimit } from '../base/async.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import { checkBytes, keyPart } from '../wire/codecs.ts';
import { checkNames } from '../base/names.ts';
import { onlyBounds } from './arguments.ts';
import type { Target } from '../wire/collection-target.ts';
import type { Connection } from '../wire/connection.ts';
import { ScanFlag } from '../wire/opcodes.ts';
import type { ByteRange, RequestWriter } from '../wire/protocol.ts';
import type { Call } from './task.ts';

/** A range of keys, and the part of its entries to read. */
export interface Window {
  readonly range: ByteRange;
  readonly reverse: boolean;
  readonly offset: number;
  readonly limit: number;
}

type KeyTarget<K> = Pick<Target<K, unknown>, 'name' | 'key'>;

interface Edge {
  readonly bytes: Uint8Array;
  readonly isExclusive: boolean;
}

export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    const difference = (a[index] as number) - (b[index] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

/** The most restrictive edge; `direction` is 1 for lower edges and -1 for upper ones. */
function tightest(edges: readonly Edge[], direction: 1 | -1): Edge | undefined {
  let best: Edge | undefined;
  for (const edge of edges) {
    const order = best === undefined ? 1 : compareBytes(edge.bytes, best.bytes) * direction;
    if (order > 0 || (order === 0 && edge.isExclusive)) best = edge;
  }
  return best;
}

function toBytes<K>(codec: KeyCodec<K>, bound: Bound<K>): Uint8Array {
  return checkBytes('KV_INVALID_KEY', encodeBound(codec, bound));
}

function toByteRange<K>(codec: KeyCodec<K>, options: Range<K>): ByteRange {
  const lowers: Edge[] = [];
  const uppers: Edge[] = [];
  const add = (edges: Edge[], bound: Bound<K> | undefined, isExclusive: boolean): void => {
    if (bound !== undefined) edges.push({ bytes: toBytes(codec, bound), isExclusive });
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

/** Converts the options of `call`; `names` holds those that it accepts. */
export function toWindow<K>(target: KeyTarget<K>, call: string, options: Range<K> | undefined, names: object): Window {
  if (options === undefined) return EVERYTHING;
  checkNames(call, options, names);
  const { reverse = false, offset = 0, limit = Infinity } = options;
  const { meta = false } = options as Partial<WithMeta>;
  checkBoolean('meta', meta);
  return {
    reverse: checkBoolean('reverse', reverse),
    range: keyPart(target, () => toByteRange(target.key, options)),
    offset: checkCount('offset', offset),
    limit: checkLimit('limit', limit),
  };
}

/** Whether the window leaves out entries within the bounds. */
export function isPart({ offset, limit }: Window): boolean {
  return offset > 0 || limit !== Infinity;
}

/**
 * Narrows the bounds of `range` to the keys from `first` to `last`, both included, in the order of
 * reading. Without `last`, they reach to the end of the range.
 */
export function boundsOf<K>(range: Range<K>, first: Bound<K>, last: Bound<K> | undefined): Bounds<K> {
  const bounds = onlyBounds(range);
  const isReverse = range.reverse === true;
  bounds[isReverse ? 'lte' : 'gte'] = first;
  if (last !== undefined) bounds[isReverse ? 'gte' : 'lte'] = last;
  return bounds;
}

export function encodeSeek<K>(target: KeyTarget<K>, key: KeyPrefix<K>): Uint8Array {
  return keyPart(target, () => toBytes(target.key, key as Bound<K>));
}

/** What an iterator reads, asynchronous or synchronous. */
export interface Scan<T, K> {
  readonly connection: Connection;
  /** Opens the scan. */
  readonly op: number;
  /** Returns a promise if the engine cannot open the scan yet. */
  readonly ready?: () => Promise<void> | undefined;
  /** The entries to read. The iterator fails with whatever this throws. */
  readonly window: () => Window;
  /** Writes view and collection. */
  readonly writeSource: (writer: RequestWriter) => RequestWriter;
  /** One of `Content`. */
  readonly content: number;
  readonly signal: AbortSignal | undefined;
  readonly decode: DecodeItem<T>;
  /** Decoding runs none of the caller's code. */
  readonly isFast: boolean;
  /** Sent after an empty scan: fails if a mistake in the request explains that. */
  readonly misread: () => Call<void> | undefined;
  readonly encodeSeek: (key: KeyPrefix<K>) => Uint8Array;
}

/** The fields between the scan's id and the limits of the chunk. */
export function writeScan(
  { writeSource, content }: Pick<Scan<unknown, never>, 'writeSource' | 'content'>,
  { range, reverse, offset, limit }: Window,
  writer: RequestWriter,
  flags: number,
): void {
  writeSource(writer)
    .range(range)
    .u8((reverse ? ScanFlag.reverse : 0) | content | flags)
    .uv(offset)
    .uv(limit === Infinity ? 0 : limit);
}
