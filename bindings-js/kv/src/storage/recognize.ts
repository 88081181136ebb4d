// Tells by a file's first bytes whether it is a database file, so that no other program's file is
// removed.
import { checkBoolean } from '../base/async.ts';
import { KvError } from '../base/errors.ts';
import type { StorageFile } from '../types/index.ts';

/** Both superblocks: the part of a file that is checked. */
export const FRONT_BYTES = 8192;
const SLOT_BYTES = 4096;
/**
 * Where each file has its magic: the data file in two copies of each superblock, the log in two
 * copies of its header.
 */
const MAGICS: readonly (readonly [files: RegExp, magic: string, copies: readonly number[]])[] = [
  [/^data/, 'MANGROVE', [0, 2048, SLOT_BYTES, 6144]],
  [/^log/, 'MANGRLOG', [0, 512]],
];

export function hasMagic(file: string, front: Uint8Array): boolean {
  return MAGICS.some(
    ([files, magic, copies]) =>
      files.test(file) && copies.some((at) => String.fromCharCode(...front.subarray(at, at + magic.length)) === magic),
  );
}

/**
 * Whether a file of `size` bytes that starts with `front` was made by the engine, or is one that
 * the engine would turn into a database. Either a copy of the magic is in place, or the creation
 * was interrupted before it was. The first half of a log may be unused so far.
 */
export function isOurs(file: string, front: Uint8Array, size: number): boolean {
  return (
    hasMagic(file, front) ||
    ((size <= FRONT_BYTES || file === 'log') && front.subarray(0, SLOT_BYTES).every((byte) => byte === 0))
  );
}

export function frontOf(file: StorageFile): Uint8Array {
  const front = new Uint8Array(Math.min(FRONT_BYTES, file.size()));
  file.read(0, front);
  return front;
}

/** Returns whether foreign files may be removed too. */
export function checkForce({ force = false }: { readonly force?: boolean | undefined }): boolean {
  return checkBoolean('force', force);
}

/** The error for a foreign file. */
export function notOurs(place: string, file: string): KvError {
  return new KvError(
    'KV_CORRUPT',
    `the file ${file} of ${place} is not a database file, or its beginning is damaged, so nothing was removed; force: true removes it`,
  );
}

/** @throws KvError KV_CORRUPT if the file is not a database file. */
export function checkOurs(place: string, name: string, file: StorageFile): void {
  if (!isOurs(name, frontOf(file), file.size())) throw notOurs(place, name);
}
