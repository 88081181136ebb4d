// Backs up a database in use to a file. The file gets its name only once it is completely on disk.
import { createWriteStream } from 'node:fs';
import { open as openFile, rename, rm, stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';

async function backup(db: Database, path: string): Promise<void> {
  const unfinished = `${path}.unfinished`;
  try {
    await pipeline(Readable.from(db.backup()), createWriteStream(unfinished));
    const file = await openFile(unfinished, 'r+');
    await file.sync().finally(() => file.close());
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}

const path = process.argv[2] ?? 'example-backup';
const db = await open(path);
await db.setMany(Array.from({ length: 10_000 }, (_, index) => [index, `entry ${index}`] as const));

const done = backup(db, `${path}.bak`);
await db.set('written meanwhile', 'and not in the backup');
await done;
console.log((await stat(`${path}.bak`)).size > 10_000);
await db.close();

// To restore: `await restore('copy', await openAsBlob('example-backup.bak'))`, or in a shell
// `npx @mangrove-kv/cli restore example-backup.bak copy`.
