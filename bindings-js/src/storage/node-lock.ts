// One opening of a directory at a time, for Node, Deno and Bun: by a lock of the system where there is one, by a file that names its holder
// elsewhere.
import * as fs from 'node:fs';
import { join } from 'node:path';
import { KvError } from '../errors.ts';
import { performance } from '../platform.ts';
import { announce, describeHolder, takeByFile } from './lock-file.ts';
import { DATA_FILE, toKvError } from './node-fs.ts';
import { lockFile } from './os-lock.ts';
import type { LockAttempt, Release } from './os-lock.ts';

const FIRST_WAIT_MS = 5;
const MAX_WAIT_MS = 100;
/** On Windows a file that is locked can be opened by nobody, so it is one that nobody needs. */
const WINDOWS_FILE = 'lock.exclusive';

/** Directories that are locked by this thread. */
const heldHere = new Set<string>();

function identityOf(path: string): string | undefined {
  const stat = fs.statSync(path, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? undefined : `${stat.dev}/${stat.ino}`;
}

/** Makes sure that the file is there; true if it was not. */
function ensure(path: string): boolean {
  if (fs.existsSync(path)) return false;
  try {
    fs.closeSync(fs.openSync(path, 'wx'));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Locks the file that has this name, whatever had it before. */
function lockNamed(path: string): LockAttempt {
  for (;;) {
    const isNew = ensure(path);
    const before = identityOf(path);
    let lock: LockAttempt;
    try {
      lock = lockFile(path);
    } catch (error) {
      if (identityOf(path) === before) throw error;
      continue;
    }
    const isSame = identityOf(path) === before && before !== undefined;
    if (typeof lock !== 'function') {
      if (isNew && isSame && lock === 'unavailable') removeEmpty(path);
      return lock;
    }
    const give = lock;
    if (!isSame) {
      give();
      continue;
    }
    if (!isNew) return give;
    return () => {
      // Nothing was made of it.
      if (identityOf(path) === before) removeEmpty(path);
      give();
    };
  }
}

function removeEmpty(path: string): void {
  try {
    if (fs.statSync(path).size === 0) fs.rmSync(path);
  } catch {
    // It is only in the way.
  }
}

function tryLock(directory: string): Release | undefined {
  const lock = lockNamed(join(directory, process.platform === 'win32' ? WINDOWS_FILE : DATA_FILE));
  if (lock === 'held') return undefined;
  if (lock === 'unavailable') return takeByFile(directory);
  const retract = announce(directory);
  if (retract === undefined) {
    lock();
    return undefined;
  }
  return () => {
    retract();
    lock();
  };
}

/** Undefined if somebody else has it. */
function attempt(directory: string): Release | undefined {
  const identity = identityOf(directory) ?? directory;
  if (heldHere.has(identity)) return undefined;
  const release = tryLock(directory);
  if (release === undefined) return undefined;
  heldHere.add(identity);
  let isHeld = true;
  return () => {
    // What was given back may be somebody else's by now.
    if (!isHeld) return;
    isHeld = false;
    heldHere.delete(identity);
    release();
  };
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

/** Locks a directory that exists; gives what releases it. */
export async function lockDirectory(directory: string, timeoutMs: number, signal?: AbortSignal): Promise<Release> {
  const deadline = performance.now() + timeoutMs;
  try {
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)) {
      signal?.throwIfAborted();
      const release = attempt(directory);
      if (release !== undefined) return release;
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) break;
      await wait(Math.min(waitMs, leftMs), signal);
    }
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw toKvError(error, `lock ${directory}`);
  }
  throw lockedError(directory, describeHolder(directory));
}

/** As `lockDirectory`; nothing else runs while it waits, so it does not wait for this thread. */
export function lockDirectorySync(directory: string, timeoutMs: number): Release {
  const deadline = performance.now() + timeoutMs;
  const cell = new Int32Array(new SharedArrayBuffer(4));
  try {
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)) {
      if (heldHere.has(identityOf(directory) ?? directory)) break;
      const release = attempt(directory);
      if (release !== undefined) return release;
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) break;
      Atomics.wait(cell, 0, 0, Math.min(waitMs, leftMs));
    }
  } catch (error) {
    throw toKvError(error, `lock ${directory}`);
  }
  const isHere = heldHere.has(identityOf(directory) ?? directory);
  throw lockedError(directory, isHere ? 'in this thread; close it, or use the handle that has it' : describeHolder(directory));
}

/** Locks a file that is about to be renamed to the data file, so that nobody has it before what follows is done. */
export function lockReplacement(path: string): Release {
  const lock = process.platform === 'win32' ? 'unavailable' : lockFile(path);
  return typeof lock === 'function' ? lock : () => {};
}

function lockedError(directory: string, where: string): KvError {
  return new KvError('KV_LOCKED', `${directory} is open ${where}`, { retryable: true });
}
