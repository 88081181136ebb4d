// Ranges of keys, and keys as names of maps.
import { keyCodecs } from 'mangrove-kv';
import { encodeBound, prefixRange } from 'mangrove-kv/internal';
import type { Bounds } from 'mangrove-kv';
import { compareBytes } from './bytes.ts';
import type { KeyBound } from './record.ts';

type Bytes = Uint8Array;

/** Bounds of bytes, as the feed has them. */
export function toBounds(range: Bounds<Bytes>): { readonly lower: KeyBound; readonly upper: KeyBound } {
  const bound = (value: unknown, isExclusive: boolean): KeyBound =>
    value === undefined ? undefined : { bytes: encodeBound(keyCodecs.bytes, value as Bytes), isExclusive };
  if (range.prefix !== undefined) {
    const { lower, upper } = prefixRange(keyCodecs.bytes, range.prefix as Bytes);
    return { lower: bound(lower, false), upper: bound(upper, true) };
  }
  return {
    lower: bound(range.gt ?? range.gte, range.gt !== undefined),
    upper: bound(range.lt ?? range.lte, range.lt !== undefined),
  };
}

/** Bounds in the form that ranges take. */
export function toRange(lower: KeyBound, upper: KeyBound): { gt?: Bytes; gte?: Bytes; lt?: Bytes; lte?: Bytes } {
  return {
    ...(lower && { [lower.isExclusive ? 'gt' : 'gte']: lower.bytes }),
    ...(upper && { [upper.isExclusive ? 'lt' : 'lte']: upper.bytes }),
  };
}

export function isWithin(key: Bytes, lower: KeyBound, upper: KeyBound): boolean {
  const fromLower = lower === undefined ? 1 : compareBytes(key, lower.bytes);
  const toUpper = upper === undefined ? 1 : compareBytes(upper.bytes, key);
  return (
    (fromLower > 0 || (fromLower === 0 && lower?.isExclusive === false)) &&
    (toUpper > 0 || (toUpper === 0 && upper?.isExclusive === false))
  );
}

/** A stable text for a key, for maps. */
export function keyId(key: Bytes): string {
  let id = '';
  for (let at = 0; at < key.length; at += 4096) id += String.fromCharCode(...key.subarray(at, at + 4096));
  return id;
}
