// System locks, which are released when their process ends. They are the same as the native
// engine's: flock on the data file. Node and Bun have no call for flock. But such a lock belongs to
// the open file description, so a child process that inherits the descriptor can take it for its
// parent.
import * as fs from 'node:fs';
import { hostname } from 'node:os';

/** Releases a lock. */
export type Release = () => void;

/**
 * `held`: somebody else holds the lock. `unavailable`: nothing here can lock this file, so it is
 * neither locked by this call nor known to be held.
 */
export type LockAttempt = Release | 'held' | 'unavailable';

/** O_EXLOCK on macOS and the BSDs. */
const O_EXLOCK = 0x20;
/** UV_FS_O_EXLOCK: no other handle may be open. */
const WINDOWS_EXCLUSIVE = 0x1000_0000;
const BSDS = ['darwin', 'freebsd', 'openbsd', 'netbsd'];
/** Errors on opening a file that may only be read; it can be locked all the same. */
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

/**
 * Locks with the program `flock` of util-linux or BusyBox. Both exit with 1 if the lock is held.
 * BusyBox also does so after other failures, but then prints a message.
 */
function lockByProgram(path: string): LockAttempt {
  const handle = openExisting(path);
  const release = (): void => fs.closeSync(handle);
  try {
    // Not imported statically: few databases need it at once, and loading it takes longer than
    // opening a small database.
    const { spawnSync } = process.getBuiltinModule('node:child_process');
    const { status, stderr } = spawnSync('flock', ['-x', '-n', '3'], {
      stdio: ['ignore', 'ignore', 'pipe', handle],
      windowsHide: true,
    });
    if (status === 0) return release;
    release();
    return status === 1 && stderr.length === 0 ? 'held' : 'unavailable';
  } catch {
    // This process may not start others.
    release();
    return 'unavailable';
  }
}

/** Locks by an open flag, if the runtime passes the flag on. */
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
  // A second handle could be opened too, so the flag has no effect.
  fs.closeSync(handle);
  return 'unavailable';
}

/** Locks an existing file exclusively, without waiting. */
export function lockFile(path: string): LockAttempt {
  const { O_RDWR, O_NONBLOCK } = fs.constants;
  if (process.platform === 'win32') return lockByFlag(path, O_RDWR | WINDOWS_EXCLUSIVE, ['EBUSY', 'EACCES', 'EPERM']);
  const file = denoFile(path);
  if (file !== undefined) return lockInDeno(file);
  if (BSDS.includes(process.platform))
    return lockByFlag(path, O_RDWR | O_NONBLOCK | O_EXLOCK, ['EAGAIN', 'EWOULDBLOCK']);
  return lockByProgram(path);
}

function readLine(path: string): string {
  try {
    return fs.readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

/**
 * The scope in which a process id is unique: a host since it was started, and a namespace in it.
 */
export interface Realm {
  readonly host: string;
  /** '' if the system does not report it; the same holds for the other fields. */
  readonly boot: string;
  readonly namespace: string;
}

let realm: Realm | undefined;

function findRealm(): Realm {
  // Without this permission, Deno would ask its user.
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
  return (realm ??= findRealm());
}

/**
 * Start time of a process; '' if the system does not report it, `undefined` if there is no such
 * process.
 */
export function startOf(pid: number): string | undefined {
  try {
    // The ids in /proc are those of the namespace it was mounted in.
    if (fs.readlinkSync('/proc/self') !== String(process.pid)) return '';
  } catch {
    return '';
  }
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in parentheses may contain anything; the start time is the 20th field after it.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // A zombie has ended, but its parent has not asked for its status yet.
    return fields[0] === 'Z' ? undefined : fields[19];
  } catch (error) {
    return ['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '') ? undefined : '';
  }
}

/** Whether a process of this realm runs that started then. */
export function isRunning({ pid, started }: { readonly pid: number; readonly started: string }): boolean {
  const now = startOf(pid);
  if (now === undefined || (now !== '' && started !== '' && now !== started)) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Any other error, such as EPERM for another user's process, means that the process exists.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
