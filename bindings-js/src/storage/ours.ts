// Whose a file is, by how it begins, so that nothing of another program is removed.
import { KvError } from '../errors.ts';
import type { StorageFile } from '../types.ts';

/** Both superblocks: as much of a file as tells. */
export const FRONT_BYTES = 8192;
const SLOT_BYTES = 4096;
/** Where each file has its magic: the data's superblocks in two copies each, the log's header in two. */
const MAGICS: readonly (readonly [files: RegExp, magic: string, copies: readonly number[]])[] = [
  [/^data/, 'MANGROVE', [0, 2048, SLOT_BYTES, 6144]],
  [/^log/, 'MANGRLOG', [0, 512]],
];

export function hasMagic(file: string, front: Uint8Array): boolean {
  return MAGICS.some(([files, magic, copies]) => files.test(file)
    && copies.some((at) => String.fromCharCode(...front.subarray(at, at + magic.length)) === magic));
}

/**
 * Whether a file of `size` bytes, which begins with `front`, is one that the engine made or would make a database of: it has our magic in one of
 * its places, or a creation was cut off there. The first half of a log may not have been used yet.
 */
export function isOurs(file: string, front: Uint8Array, size: number): boolean {
  return hasMagic(file, front) || ((size <= FRONT_BYTES || file === 'log') && front.subarray(0, SLOT_BYTES).every((byte) => byte === 0));
}

export function frontOf(file: StorageFile): Uint8Array {
  const front = new Uint8Array(Math.min(FRONT_BYTES, file.size()));
  file.read(0, front);
  return front;
}

/** Whether files that are not ours may go too. */
export function checkForce({ force = false }: { readonly force?: boolean | undefined }): boolean {
  if (typeof force !== 'boolean') throw new KvError('KV_INVALID_ARGUMENT', 'force has to be a boolean');
  return force;
}

/** What becomes of a file that is not ours. */
export function notOurs(place: string, file: string): KvError {
  return new KvError('KV_CORRUPT', `the file ${file} of ${place} is no database's, or its beginning is damaged, so nothing was removed; force: true removes it`);
}

/** @throws KvError KV_CORRUPT if the file is not ours. */
export function checkOurs(place: string, name: string, file: StorageFile): void {
  if (!isOurs(name, frontOf(file), file.size())) throw notOurs(place, name);
}
