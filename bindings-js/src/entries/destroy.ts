// Removes databases from OPFS. The browser entry loads this module only when it is needed.
import { KvError } from '../base/errors.ts';
import { checkOpfsFile } from '../storage/opfs-files.ts';
import { DATA_FILE, HELD, LOG_FILE, RESTORED_FILE, directoryName, nameOf, rootDirectory, toKvError } from '../storage/opfs.ts';
import { checkForce } from '../storage/ours.ts';
import type { DestroyOptions } from '../types/index.ts';

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
  const root = await rootDirectory(false);
  if (root === undefined) return false;
  try {
    const parent = await root.getDirectoryHandle(directory);
    for (const file of force ? [] : FILES) await checkOpfsFile(parent, name, file);
    let wasThere = false;
    for (const file of [...FILES, ...LEFT_BY_RESTORE]) if (await remove(parent, file)) wasThere = true;
    // Fails if the directory contains other files; it then stays.
    return await root.removeEntry(directory).then(() => true, () => wasThere);
  } catch (error) {
    if (nameOf(error) === 'NotFoundError') return false;
    if (HELD.includes(nameOf(error))) {
      throw new KvError('KV_LOCKED', `${name} is open; close it first`, { cause: error, retryable: true });
    }
    throw toKvError(error, `remove ${name}`);
  }
}
