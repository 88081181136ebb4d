// Test data whose bytes identify their position, and reproducible random numbers.
import type { StorageFile } from 'mangrove-kv';

/** Nonzero bytes that differ by position and by seed. */
export function bytes(length: number, seed: number): Uint8Array {
  const filled = new Uint8Array(length);
  let state = Math.imul(seed + 1, 0x9e37_79b9);
  for (let at = 0; at < length; at++) {
    state = Math.imul(state, 1_664_525) + 1_013_904_223;
    filled[at] = state >>> 24 || 1;
  }
  return filled;
}

/** Returns a generator of pseudorandom numbers from 0 (inclusive) to 1 (exclusive). */
export function chance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

export function readAt(file: StorageFile, at: number, length: number): Uint8Array {
  // Filled with something else than zeros: those must come from the storage.
  const into = new Uint8Array(length).fill(0xa5);
  file.read(at, into);
  return into;
}

/** The first position at which two byte strings differ; `undefined` if they are equal. */
export function difference(actual: Uint8Array, expected: Uint8Array): number | undefined {
  const length = Math.max(actual.length, expected.length);
  for (let at = 0; at < length; at++) if (actual[at] !== expected[at]) return at;
  return undefined;
}
