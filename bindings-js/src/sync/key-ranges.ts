// Ranges of keys, and keys as names of maps.
import { compareBytes } from './bytes.ts';
import type { KeyBound } from './record.ts';

type Bytes = Uint8Array;

export function isWithin(key: Bytes, lower: KeyBound, upper: KeyBound): boolean {
  const fromLower = lower === undefined ? 1 : compareBytes(key, lower.bytes);
  const toUpper = upper === undefined ? 1 : compareBytes(upper.bytes, key);
  return (fromLower > 0 || (fromLower === 0 && lower?.isExclusive === false)) && (toUpper > 0 || (toUpper === 0 && upper?.isExclusive === false));
}

/** A stable text for a key, for maps. */
export function keyId(key: Bytes): string {
  let id = '';
  for (let at = 0; at < key.length; at += 4096) id += String.fromCharCode(...key.subarray(at, at + 4096));
  return id;
}
