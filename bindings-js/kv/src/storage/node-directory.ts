// A database's directory: its path, its creation, and whether the files in it are ours.
import * as fs from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KvError } from '../base/errors.ts';
import { DATA_FILE, NodeStorage, attemptTo, isMissing, syncDirectory, toKvError } from './node-fs.ts';
import { checkOurs, notOurs } from './recognize.ts';

/** The start of a URL. A scheme has at least two letters; a single one is a Windows drive. */
const URL_START = /^(?:file:|[a-z][a-z\d+.-]+:\/\/)/i;

/**
 * Returns the path of a database's directory.
 *
 * @throws KvError KV_INVALID_ARGUMENT.
 */
export function toPath(name: string | URL): string {
  if (typeof name === 'string') {
    if (URL_START.test(name)) {
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `"${name}" is a URL in a string, not a path; pass a path, or new URL("file:///…")`,
      );
    }
    // Asks for the working directory.
    if (name !== '' && !name.includes('\0')) return attemptTo(`resolve ${name}`, () => resolve(name));
  }
  // Not `instanceof`: another realm or a test environment has its own URL class.
  const { href } = (name ?? {}) as Partial<URL>;
  if (typeof href !== 'string') throw new KvError('KV_INVALID_ARGUMENT', 'the name has to be a path or a file: URL');
  try {
    return fileURLToPath(href);
  } catch (cause) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `the URL ${href} is not a path on this machine; pass a path or a file: URL`,
      { cause },
    );
  }
}

/** Returns the file at the path or above it that stands where a directory has to be. */
function fileInTheWay(path: string): string | undefined {
  for (let at = path; ; at = dirname(at)) {
    try {
      return fs.statSync(at).isDirectory() ? undefined : at;
    } catch (error) {
      if (!isMissing(error) || at === dirname(at)) return undefined;
    }
  }
}

/** Whether there is a database. */
export function hasDatabase(path: string): boolean {
  return attemptTo(`look for ${path}`, () => fs.existsSync(join(path, DATA_FILE)));
}

export function prepareDirectory(path: string, create: boolean): void {
  try {
    if (hasDatabase(path)) return;
    const file = fileInTheWay(path);
    if (file !== undefined)
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `${file} is a file; the name has to be that of a directory, which holds the database`,
      );
    if (!create) throw new KvError('KV_NOT_FOUND', `the database ${path} does not exist`);
    const first = fs.mkdirSync(path, { recursive: true });
    // The name of each new directory is synced in its parent.
    for (let made = path; first !== undefined && made.length >= first.length; made = resolve(made, '..')) {
      syncDirectory(resolve(made, '..'));
    }
  } catch (error) {
    throw toKvError(error, `create ${path}`);
  }
}

/**
 * Checks that the existing ones of these files are ours.
 *
 * @throws KvError KV_CORRUPT if a file belongs to another program, or is too damaged to tell.
 */
export function checkFilesOurs(path: string, files: readonly string[]): void {
  const storage = new NodeStorage(path, true);
  for (const name of files) {
    const stat = attemptTo(`look at ${path}`, () => fs.statSync(join(path, name), { throwIfNoEntry: false }));
    if (stat === undefined) continue;
    if (!stat.isFile()) throw notOurs(path, name);
    const file = storage.open(name);
    try {
      checkOurs(path, name, file);
    } finally {
      file.close();
    }
  }
}
