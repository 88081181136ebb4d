// Bytes that tell where they belong, and chance that is the same in every run.
import type { StorageFile } from 'mangrove-kv';

/** Bytes that differ from place to place and, with another seed, from each other. */
export function bytes(length: number, seed: number): Uint8Array {
  const filled = new Uint8Array(length);
  let state = Math.imul(seed + 1, 0x9e37_79b9);
  for (let at = 0; at < length; at++) {
    state = Math.imul(state, 1_664_525) + 1_013_904_223;
    filled[at] = (state >>> 24) || 1;
  }
  return filled;
}

/** Numbers from 0 up to 1. */
export function chance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

export function readAt(file: StorageFile, at: number, length: number): Uint8Array {
  // Not zeros: those have to come from the storage.
  const into = new Uint8Array(length).fill(0xa5);
  file.read(at, into);
  return into;
}

/** The first place where two byte strings differ; undefined if they are the same. */
export function difference(actual: Uint8Array, expected: Uint8Array): number | undefined {
  const length = Math.max(actual.length, expected.length);
  for (let at = 0; at < length; at++) if (actual[at] !== expected[at]) return at;
  return undefined;
}
