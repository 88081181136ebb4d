// A lock file that names its holder. Node has no file locks that end with their process, so that a lock may outlive
// its holder; it is taken over when that process is gone. Processes that share a directory have to see each other's
// process ids: one machine, one container.
import * as fs from 'node:fs';
import { join } from 'node:path';
import { KvError } from '../errors.ts';
import { performance } from '../platform.ts';
import { isMissing, toKvError } from './node-fs.ts';

const LOCK_FILE = 'lock';
/** Held for the moment in which a lock is taken over. */
const TAKEOVER_FILE = 'lock.takeover';
/** A lock without content was created a moment ago, or its writer died right then. */
const EMPTY_LOCK_AGE_MS = 5000;
const FIRST_WAIT_MS = 5;
const MAX_WAIT_MS = 100;

interface Holder {
  readonly pid: number;
  /** When the process was started, where the system tells: process ids are used again. */
  readonly started: string;
}

function read(path: string): string | undefined {
  try {
    return fs.readFileSync(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Boot and start time of a process, '' where the system does not tell, undefined if there is no such process. */
function startOf(pid: number): string | undefined {
  try {
    const boot = fs.readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    const stat = read(`/proc/${pid}/stat`);
    // The name in parentheses may contain anything; the start time is the 20th field after it.
    return stat === undefined ? undefined : `${boot}/${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`;
  } catch {
    return '';
  }
}

function isAlive({ pid, started }: Holder): boolean {
  const now = startOf(pid);
  if (now === undefined) return false;
  if (now !== '' && started !== '' && now !== started) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Anything else, such as a process of another user, is somebody.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

function isStale(path: string): boolean {
  const content = read(path);
  if (content === undefined) return false;
  try {
    const holder = JSON.parse(content) as Partial<Holder>;
    if (typeof holder.pid === 'number') return !isAlive({ pid: holder.pid, started: String(holder.started ?? '') });
  } catch {
    // Judged by its age.
  }
  const age = Date.now() - (fs.statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
  return age > EMPTY_LOCK_AGE_MS;
}

/** Creates the file; false if it is there already. */
function create(path: string): boolean {
  const holder: Holder = { pid: process.pid, started: startOf(process.pid) ?? '' };
  try {
    fs.writeFileSync(path, JSON.stringify(holder), { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Removes a stale lock. Of several processes that find it stale one does so, and none removes the lock that follows. */
function removeStale(directory: string): void {
  const takeover = join(directory, TAKEOVER_FILE);
  const lock = join(directory, LOCK_FILE);
  if (!create(takeover)) {
    if (isStale(takeover)) fs.rmSync(takeover, { force: true });
    return;
  }
  try {
    if (isStale(lock)) fs.rmSync(lock, { force: true });
  } finally {
    fs.rmSync(takeover, { force: true });
  }
}

function tryLock(directory: string): boolean {
  const lock = join(directory, LOCK_FILE);
  if (create(lock)) return true;
  if (!isStale(lock)) return false;
  removeStale(directory);
  return create(lock);
}

function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}

function describeHolder(directory: string): string {
  const content = read(join(directory, LOCK_FILE));
  try {
    const { pid } = JSON.parse(content ?? '') as Holder;
    return pid === process.pid ? 'this process' : `process ${pid}`;
  } catch {
    return 'another process';
  }
}

/** Locks a directory that exists; gives what releases it. */
export async function lockDirectory(
  directory: string,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<() => void> {
  const deadline = performance.now() + timeoutMs;
  try {
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)) {
      signal?.throwIfAborted();
      if (tryLock(directory)) return () => fs.rmSync(join(directory, LOCK_FILE), { force: true });
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) break;
      await wait(Math.min(waitMs, leftMs), signal);
    }
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw toKvError(error, `lock ${directory}`);
  }
  throw lockedError(directory);
}

/** As `lockDirectory`; nothing else runs while it waits. */
export function lockDirectorySync(directory: string, timeoutMs: number): () => void {
  const deadline = performance.now() + timeoutMs;
  const cell = new Int32Array(new SharedArrayBuffer(4));
  try {
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)) {
      if (tryLock(directory)) return () => fs.rmSync(join(directory, LOCK_FILE), { force: true });
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) break;
      Atomics.wait(cell, 0, 0, Math.min(waitMs, leftMs));
    }
  } catch (error) {
    throw toKvError(error, `lock ${directory}`);
  }
  throw lockedError(directory);
}

function lockedError(directory: string): KvError {
  return new KvError('KV_LOCKED', `${directory} is open in ${describeHolder(directory)}; close it there first`, {
    retryable: true,
  });
}
