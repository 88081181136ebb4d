// Removes and lists databases in OPFS. The browser entry loads this module only when it is needed.
import { KvError } from '../base/errors.ts';
import { checkOpfsFile } from '../storage/opfs-files.ts';
import {
  DATA_FILE,
  HELD,
  LOG_FILE,
  RESTORED_FILE,
  directoryName,
  nameOf,
  rootDirectory,
  toKvError,
} from '../storage/opfs.ts';
import { checkBucketName } from '../api/bucket.ts';
import { checkForce } from '../storage/recognize.ts';
import type { DestroyOptions, PlaceOptions } from '../types/index.ts';

/** Returns whether it existed. */
async function remove(parent: FileSystemDirectoryHandle, name: string): Promise<boolean> {
  try {
    await parent.removeEntry(name, { recursive: true });
    return true;
  } catch (error) {
    if (nameOf(error) === 'NotFoundError') return false;
    throw error;
  }
}

/**
 * In order of removal: a restored file would become the data if that were removed first, and the
 * data file cannot be removed while it is open.
 */
const FILES = [RESTORED_FILE, DATA_FILE, LOG_FILE];
const LEFT_BY_RESTORE = ['data.restoring', 'log.restoring', 'backup.restoring'];

export async function destroy(name: string, options: DestroyOptions): Promise<boolean> {
  const force = checkForce(options);
  const directory = directoryName(name);
  const root = await rootDirectory(false, checkBucketName(options.bucket));
  if (root === undefined) return false;
  try {
    const parent = await root.getDirectoryHandle(directory);
    for (const file of force ? [] : FILES) await checkOpfsFile(parent, name, file);
    let wasThere = false;
    for (const file of [...FILES, ...LEFT_BY_RESTORE]) if (await remove(parent, file)) wasThere = true;
    // Fails if the directory contains other files; it then stays.
    return await root.removeEntry(directory).then(
      () => true,
      () => wasThere,
    );
  } catch (error) {
    if (nameOf(error) === 'NotFoundError') return false;
    if (HELD.includes(nameOf(error))) {
      throw new KvError('KV_LOCKED', `${name} is open; close it first`, { cause: error, retryable: true });
    }
    throw toKvError(error, `remove ${name}`);
  }
}

function ignoreMissing(error: unknown): undefined {
  if (!(error instanceof DOMException && error.name === 'NotFoundError')) throw error;
}

export async function list({ bucket }: PlaceOptions = {}): Promise<{ name: string; size: number }[]> {
  const root = await rootDirectory(false, checkBucketName(bucket));
  if (root === undefined) return [];
  const found: { name: string; size: number }[] = [];
  // The DOM types lack async iteration.
  const directories = root as unknown as AsyncIterable<[string, FileSystemDirectoryHandle]>;
  try {
    for await (const [name, directory] of directories) {
      const size = await sizeOf(directory);
      if (size !== undefined) found.push({ name: decodeURIComponent(name), size });
    }
  } catch (error) {
    throw toKvError(error, 'list databases');
  }
  return found;
}

async function sizeOf(directory: FileSystemDirectoryHandle): Promise<number | undefined> {
  // After a restore that was interrupted at its last step, the restored file is the data.
  const size =
    (await fileSize(directory, DATA_FILE).catch(ignoreMissing)) ||
    (await fileSize(directory, RESTORED_FILE).catch(ignoreMissing));
  return size === undefined ? undefined : size + (await fileSize(directory, LOG_FILE).catch(() => 0));
}

async function fileSize(directory: FileSystemDirectoryHandle, name: string): Promise<number> {
  const file = await directory.getFileHandle(name);
  return (await file.getFile()).size;
}
