// Reads database files in OPFS from any page, even while a worker has them open.
import { nameOf } from './opfs.ts';
import { FRONT_BYTES, isOurs, notOurs } from './recognize.ts';

/**
 * @throws KvError KV_CORRUPT if the file exists and is not a database file; the browser's errors.
 */
export async function checkOpfsFile(parent: FileSystemDirectoryHandle, database: string, name: string): Promise<void> {
  let file: File;
  try {
    file = await (await parent.getFileHandle(name)).getFile();
  } catch (error) {
    if (nameOf(error) === 'NotFoundError') return;
    // A directory has that name.
    throw nameOf(error) === 'TypeMismatchError' ? notOurs(database, name) : error;
  }
  const front = new Uint8Array(await file.slice(0, FRONT_BYTES).arrayBuffer());
  if (!isOurs(name, front, file.size)) throw notOurs(database, name);
}
