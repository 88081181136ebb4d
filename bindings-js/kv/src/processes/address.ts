// Where the leader of a database listens. The file `leader` in the database's directory tells that to
// processes that can read it: those of the same user.
import { Buffer } from 'node:buffer';
import * as fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KvError } from '../base/errors.ts';
import { crypto } from '../base/platform.ts';
import { numberOf } from '../storage/lock-file.ts';
import type { Address } from './machine.ts';

const FILE = 'leader';
const SOCKET = 'socket';
/** What the address of a Unix socket holds on every system. */
const MAX_SOCKET_PATH_BYTES = 100;
const TOKEN_BYTES = 16;

/** What the file has. */
interface Published extends Address {
  readonly directory: string;
}

export function newToken(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(TOKEN_BYTES))).toString('hex');
}

/** A directory for sockets that only this user can enter. */
function ownDirectory(): string {
  const user = process.getuid?.() ?? '';
  const path = join(tmpdir(), `mangrove-kv-${user}`);
  fs.mkdirSync(path, { mode: 0o700, recursive: true });
  const found = fs.lstatSync(path);
  if (!found.isDirectory() || (found.mode & 0o077) !== 0 || (user !== '' && found.uid !== user))
    throw new KvError('KV_IO', `${path} can be entered by other users; remove it, so that sockets can be kept there`);
  return path;
}

/** Where to listen: in the database's directory if the path fits, else in the user's. */
export function socketPath(directory: string): string {
  const path = join(directory, SOCKET);
  const isPipe = process.platform === 'win32';
  if (!isPipe && Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return path;
  // Loaded where it is needed: that takes longer than all else that an opening does here.
  const { createHash } = process.getBuiltinModule('node:crypto');
  const name = createHash('sha256').update(fs.realpathSync(directory)).digest('hex').slice(0, 32);
  // The name of a pipe is no file, and nobody else's: it has a part of its own.
  return isPipe ? `\\\\.\\pipe\\mangrove-kv-${name}-${newToken()}` : join(ownDirectory(), name);
}

/** Removes what a leader that died left at the path. Called by the holder of the lock only. */
export function removeSocket(path: string): void {
  if (process.platform === 'win32') return;
  if (fs.lstatSync(path, { throwIfNoEntry: false })?.isSocket() === true) fs.rmSync(path, { force: true });
}

export function readAddress(directory: string): Address | undefined {
  try {
    const address = JSON.parse(fs.readFileSync(join(directory, FILE), 'utf8')) as Published;
    const isOurs = address.directory === numberOf(directory);
    return isOurs && typeof address.token === 'string' && typeof address.pid === 'number' ? address : undefined;
  } catch {
    // Missing, or not readable for this user.
    return undefined;
  }
}

/** Publishes the address, in one step; returns a function that retracts it. */
export function publishAddress(directory: string, address: Address): () => void {
  const path = join(directory, FILE);
  const fresh = `${path}.${address.token}`;
  const published: Published = { ...address, directory: numberOf(directory) };
  fs.writeFileSync(fresh, JSON.stringify(published), { mode: 0o600, flag: 'wx' });
  fs.renameSync(fresh, path);
  return () => {
    try {
      if (readAddress(directory)?.token === address.token) fs.rmSync(path, { force: true });
    } catch {
      // The file names a leader that nobody reaches any more.
    }
  };
}

/** Removes the files of a leader that is gone. Called by the holder of the lock only. */
export function removeAddress(directory: string): void {
  const { socket } = readAddress(directory) ?? {};
  removeSocket(join(directory, SOCKET));
  if (socket !== undefined) removeSocket(socket);
  fs.rmSync(join(directory, FILE), { force: true });
}
