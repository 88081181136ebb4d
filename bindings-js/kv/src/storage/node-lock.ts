// Lets only one opener at a time have a directory, in Node, Deno and Bun: by a system lock where
// there is one, elsewhere by a file that names its holder.
import * as fs from 'node:fs';
import { join } from 'node:path';
import { KvError } from '../base/errors.ts';
import { performance } from '../base/platform.ts';
import { announce, describeHolder, isSilent, takeByFile } from './lock-file.ts';
import { DATA_FILE, attemptTo, statIfAny, toKvError } from './node-fs.ts';
import { lockFile } from './os-lock.ts';
import type { LockAttempt, Release } from './os-lock.ts';

const FIRST_WAIT_MS = 5;
const MAX_WAIT_MS = 100;
/** `open` reports the holder of the lock after it has waited this long. */
const TELL_MS = 1000;
/**
 * On Windows nobody else can open a locked file, so the lock is on a file that is otherwise unused.
 */
const WINDOWS_FILE = 'lock.exclusive';

/** Directories that this thread has locked. */
const heldHere = new Set<string>();

function identityOf(path: string): string | undefined {
  const stat = statIfAny(path);
  return stat === undefined ? undefined : `${stat.dev}/${stat.ino}`;
}

/** Creates the file if it is missing; returns whether it did. */
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

/** Locks the file currently at `path`; retries if another file took its place meanwhile. */
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
      // Nothing was written to the file that was created for the lock.
      if (identityOf(path) === before) removeEmpty(path);
      give();
    };
  }
}

function removeEmpty(path: string): void {
  try {
    if (fs.statSync(path).size === 0) fs.rmSync(path);
  } catch {
    // A leftover empty file does no harm.
  }
}

function tryLock(directory: string, takeOver: boolean): Release | undefined {
  const lock = lockNamed(join(directory, process.platform === 'win32' ? WINDOWS_FILE : DATA_FILE));
  if (lock === 'held') return undefined;
  if (lock === 'unavailable') return takeByFile(directory, takeOver);
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

/** Locks an existing directory if nobody holds its lock; `undefined` if somebody does. */
export function tryLockDirectory(directory: string, takeOver: boolean): Release | undefined {
  const identity = identityOf(directory) ?? directory;
  if (heldHere.has(identity)) return undefined;
  const release = tryLock(directory, takeOver);
  if (release === undefined) return undefined;
  heldHere.add(identity);
  let isHeld = true;
  return () => {
    // After the first call, the lock may be somebody else's.
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

/** Locks an existing directory; returns a function that releases it. Options as in `OpenOptions`. */
export async function lockDirectory(
  directory: string,
  {
    lockTimeoutMs,
    signal,
    takeOver = false,
    onBlocked,
  }: {
    readonly lockTimeoutMs: number;
    readonly signal?: AbortSignal | undefined;
    readonly takeOver?: boolean;
    readonly onBlocked?: ((error: KvError) => void) | undefined;
  },
): Promise<Release> {
  const begin = performance.now();
  let isTold = false;
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)) {
    signal?.throwIfAborted();
    const release = attemptTo(`lock ${directory}`, () => tryLockDirectory(directory, takeOver));
    if (release !== undefined) return release;
    const waitedMs = performance.now() - begin;
    const leftMs = lockTimeoutMs - waitedMs;
    if (leftMs <= 0) throw lockedError(directory, describeHolder(directory));
    if (!isTold && waitedMs >= TELL_MS) {
      isTold = true;
      onBlocked?.(lockedError(directory, describeHolder(directory)));
    }
    await wait(Math.min(waitMs, leftMs), signal);
  }
}

/**
 * Same as `lockDirectory`, but blocks the thread. As nothing else runs meanwhile, it does not wait
 * for a lock that this thread itself holds.
 */
export function lockDirectorySync(directory: string, timeoutMs: number, takeOver = false): Release {
  const deadline = performance.now() + timeoutMs;
  const cell = new Int32Array(new SharedArrayBuffer(4));
  try {
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)) {
      if (heldHere.has(identityOf(directory) ?? directory)) break;
      const release = tryLockDirectory(directory, takeOver);
      if (release !== undefined) return release;
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) break;
      Atomics.wait(cell, 0, 0, Math.min(waitMs, leftMs));
    }
  } catch (error) {
    throw toKvError(error, `lock ${directory}`);
  }
  const isHere = heldHere.has(identityOf(directory) ?? directory);
  throw lockedError(
    directory,
    isHere ? 'in this thread; close it, or use the handle that has it' : describeHolder(directory),
  );
}

/**
 * Locks a file that is about to be renamed to the data file, so that nobody opens the new database
 * before its installation is finished.
 */
export function lockReplacement(path: string): Release {
  const lock = process.platform === 'win32' ? 'unavailable' : lockFile(path);
  return typeof lock === 'function' ? lock : () => {};
}

function lockedError(directory: string, where: string): KvError {
  // Of a silent holder nothing more will be heard.
  return new KvError('KV_LOCKED', `${directory} is open ${where}`, { retryable: !isSilent(directory) });
}
