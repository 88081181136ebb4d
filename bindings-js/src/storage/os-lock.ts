// Locks that the system gives back with their process. They are those of the native engine: flock on the data file. Node and Bun have
// no call for it, but such a lock belongs to the open file, and a program that inherits the file takes it for us.
import * as fs from 'node:fs';
import { hostname } from 'node:os';

/** Gives a lock back. */
export type Release = () => void;

/** `held`: by somebody else. `unavailable`: neither by us nor known to be held, as nothing here can lock this file. */
export type LockAttempt = Release | 'held' | 'unavailable';

/** O_EXLOCK of macOS and the BSDs. */
const O_EXLOCK = 0x20;
/** UV_FS_O_EXLOCK: no other handle may be open. */
const WINDOWS_EXCLUSIVE = 0x1000_0000;
const BSDS = ['darwin', 'freebsd', 'openbsd', 'netbsd'];
/** Where the file may only be read, it can be locked all the same. */
const UNWRITABLE = ['EACCES', 'EPERM', 'EROFS'];

interface DenoFile {
  tryLockSync?(exclusive: boolean): boolean;
  close(): void;
}

const { Deno } = globalThis as {
  Deno?: {
    openSync(path: string, options: object): DenoFile;
    permissions: { querySync(what: object): { state: string } };
  };
};

function denoFile(path: string): DenoFile | undefined {
  if (Deno === undefined) return undefined;
  try {
    return Deno.openSync(path, { read: true, write: true });
  } catch {
    return Deno.openSync(path, { read: true });
  }
}

function openExisting(path: string): number {
  try {
    return fs.openSync(path, 'r+');
  } catch (error) {
    if (!UNWRITABLE.includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    return fs.openSync(path, 'r');
  }
}

function lockInDeno(file: DenoFile): LockAttempt {
  try {
    const isLocked = file.tryLockSync?.(true);
    if (isLocked === true) return () => file.close();
    file.close();
    return isLocked === false ? 'held' : 'unavailable';
  } catch {
    file.close();
    return 'unavailable';
  }
}

/** util-linux and BusyBox have the program. Both end with 1 where the lock is held; BusyBox does so after other failures too, but says why. */
function lockByProgram(path: string): LockAttempt {
  const handle = openExisting(path);
  const release = (): void => fs.closeSync(handle);
  try {
    // Not imported: few databases need it at once, and loading it takes longer than opening a small one.
    const { spawnSync } = process.getBuiltinModule('node:child_process');
    const { status, stderr } = spawnSync('flock', ['-x', '-n', '3'], { stdio: ['ignore', 'ignore', 'pipe', handle], windowsHide: true });
    if (status === 0) return release;
    release();
    return status === 1 && stderr.length === 0 ? 'held' : 'unavailable';
  } catch {
    // The process may start no others.
    release();
    return 'unavailable';
  }
}

/** Locks with the handle, if the runtime passes the flag on. */
function lockByFlag(path: string, flags: number, busy: readonly string[]): LockAttempt {
  const isBusy = (error: unknown): boolean => busy.includes((error as NodeJS.ErrnoException).code ?? '');
  let handle: number;
  try {
    handle = fs.openSync(path, flags);
  } catch (error) {
    return isBusy(error) ? 'held' : 'unavailable';
  }
  try {
    fs.closeSync(fs.openSync(path, flags));
  } catch (error) {
    if (isBusy(error)) return () => fs.closeSync(handle);
  }
  // A second one got it as well.
  fs.closeSync(handle);
  return 'unavailable';
}

/** Locks a file that exists for this handle alone, without waiting. */
export function lockFile(path: string): LockAttempt {
  const { O_RDWR, O_NONBLOCK } = fs.constants;
  if (process.platform === 'win32') return lockByFlag(path, O_RDWR | WINDOWS_EXCLUSIVE, ['EBUSY', 'EACCES', 'EPERM']);
  const file = denoFile(path);
  if (file !== undefined) return lockInDeno(file);
  if (BSDS.includes(process.platform)) return lockByFlag(path, O_RDWR | O_NONBLOCK | O_EXLOCK, ['EAGAIN', 'EWOULDBLOCK']);
  return lockByProgram(path);
}

function readLine(path: string): string {
  try {
    return fs.readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

/** Where process ids mean the same: a host, since it was started, and in it a namespace. */
export interface Realm {
  readonly host: string;
  /** '' where the system does not tell, as the others. */
  readonly boot: string;
  readonly namespace: string;
}

let realm: Realm | undefined;

function findRealm(): Realm {
  // Deno would ask its user.
  if (Deno !== undefined && Deno.permissions.querySync({ name: 'sys', kind: 'hostname' }).state !== 'granted') {
    return { host: '', boot: '', namespace: '' };
  }
  let namespace = '';
  try {
    namespace = fs.readlinkSync('/proc/self/ns/pid');
  } catch {
    // Not Linux.
  }
  return { host: hostname(), boot: readLine('/proc/sys/kernel/random/boot_id'), namespace };
}

export function ownRealm(): Realm {
  return realm ??= findRealm();
}

/** Start time of a process, '' where the system does not tell, undefined if there is no such process. */
export function startOf(pid: number): string | undefined {
  try {
    // A process sees others by the ids of the namespace that /proc was mounted in.
    if (fs.readlinkSync('/proc/self') !== String(process.pid)) return '';
  } catch {
    return '';
  }
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in parentheses may contain anything; the start time is the 20th field after it.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  } catch (error) {
    return ['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '') ? undefined : '';
  }
}
