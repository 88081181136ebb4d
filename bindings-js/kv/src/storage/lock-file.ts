// The file `lock` names the holder of a database. Next to a system lock it is only informative;
// where there is no system lock, it is the lock.
import * as fs from 'node:fs';
import { join } from 'node:path';
import { isMissing } from './node-fs.ts';
import { isRunning, ownRealm, startOf } from './os-lock.ts';
import type { Realm, Release } from './os-lock.ts';

const LOCK_FILE = 'lock';
/** Held while a stale lock is being taken over. */
const TAKEOVER_FILE = 'lock.takeover';
/**
 * Age after which a lock without valid content counts as abandoned: younger ones were just created,
 * older ones have a writer that died right then.
 */
const EMPTY_LOCK_AGE_MS = 5000;
/**
 * A holder without a system lock touches its file this often, and may be gone after this much
 * silence.
 */
const SIGN_MS = 10_000;
const SILENCE_MS = 120_000;

interface Holder extends Realm {
  readonly pid: number;
  /** When the process started, since process ids are reused. */
  readonly started: string;
  /** The directory's inode number: a copy of the file locks nothing. */
  readonly directory: string;
  readonly runtime: string;
  /** Whether it holds a system lock, which is then the one that counts. */
  readonly system: boolean;
}

/**
 * `gone`: certainly gone, or never here. `silent`: in another realm, with a system lock or without
 * a sign of life for long.
 */
type State = 'alive' | 'silent' | 'gone';

function read(path: string): string | undefined {
  try {
    return fs.readFileSync(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

function parse(content: string | undefined): Holder | undefined {
  try {
    const holder = JSON.parse(content ?? '') as Holder;
    return typeof holder.pid === 'number' ? holder : undefined;
  } catch {
    return undefined;
  }
}

/** The inode number of a directory: a file that names another one came here with a copy. */
export function numberOf(directory: string): string {
  return String(fs.statSync(directory, { bigint: true }).ino);
}

function runtimeName(): string {
  const { deno, bun } = process.versions;
  return deno !== undefined ? 'Deno' : bun !== undefined ? 'Bun' : 'Node';
}

function describeUs(directory: string, system: boolean): string {
  const { pid } = process;
  const us: Holder = {
    pid,
    started: startOf(pid) ?? '',
    ...ownRealm(),
    directory: numberOf(directory),
    runtime: runtimeName(),
    system,
  };
  return JSON.stringify(us);
}

function isOurRealm(holder: Holder): boolean {
  const { host, boot, namespace } = ownRealm();
  return host !== '' && holder.host === host && holder.boot === boot && holder.namespace === namespace;
}

function stateOf(directory: string, file: string): State {
  const path = join(directory, file);
  const content = read(path);
  if (content === undefined) return 'gone';
  const age = Date.now() - (fs.statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
  const holder = parse(content);
  if (holder === undefined) return age > EMPTY_LOCK_AGE_MS ? 'gone' : 'alive';
  if (holder.directory !== numberOf(directory)) return 'gone';
  if (isOurRealm(holder)) return isRunning(holder) ? 'alive' : 'gone';
  if (holder.system) return 'silent';
  if (age <= SILENCE_MS) return 'alive';
  // The same host after a restart, or a container, whose kernel is ours whatever name it has.
  const { host, boot } = ownRealm();
  return holder.host === host || (boot !== '' && holder.boot === boot) ? 'gone' : 'silent';
}

function isFree(directory: string, takeOver: boolean): boolean {
  const state = stateOf(directory, LOCK_FILE);
  return state === 'gone' || (takeOver && state === 'silent');
}

/** Whether the directory is locked by a holder of whom nothing can be known here. */
export function isSilent(directory: string): boolean {
  return stateOf(directory, LOCK_FILE) === 'silent';
}

/** Creates the file; false if it already exists. */
function create(path: string, content: string): boolean {
  try {
    fs.writeFileSync(path, content, { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/**
 * Removes a stale lock. Only one of several processes that find it stale does so, and none removes
 * the lock that follows it.
 */
function removeStale(directory: string, takeOver: boolean): void {
  const takeover = join(directory, TAKEOVER_FILE);
  if (!create(takeover, describeUs(directory, false))) {
    if (stateOf(directory, TAKEOVER_FILE) === 'gone') fs.rmSync(takeover, { force: true });
    return;
  }
  try {
    if (isFree(directory, takeOver)) fs.rmSync(join(directory, LOCK_FILE), { force: true });
  } finally {
    fs.rmSync(takeover, { force: true });
  }
}

/**
 * Locks by the file alone; `undefined` if somebody else holds it. With `takeOver`, a silent holder
 * counts as gone.
 */
export function takeByFile(directory: string, takeOver: boolean): Release | undefined {
  const path = join(directory, LOCK_FILE);
  const content = describeUs(directory, false);
  if (!create(path, content)) {
    if (!isFree(directory, takeOver)) return undefined;
    removeStale(directory, takeOver);
    if (!create(path, content)) return undefined;
  }
  const isOurs = (): boolean => read(path) === content;
  const sign = setInterval(() => {
    try {
      const now = new Date();
      if (isOurs()) fs.utimesSync(path, now, now);
      else clearInterval(sign);
    } catch {
      // Others notice the missing sign of life.
    }
  }, SIGN_MS);
  (sign as { unref?: () => void }).unref?.();
  return () => {
    clearInterval(sign);
    if (isOurs()) fs.rmSync(path, { force: true });
  };
}

/**
 * Records in the file that this process holds the system lock. Returns `undefined` if the file
 * shows a live holder who could not take the system lock. Any other content is ignored, and the
 * file need not be writable.
 */
export function announce(directory: string): Release | undefined {
  const path = join(directory, LOCK_FILE);
  let content: string;
  try {
    // A recent file with incomplete content is still being written.
    if (parse(read(path))?.system !== true && stateOf(directory, LOCK_FILE) === 'alive') return undefined;
    content = describeUs(directory, true);
    fs.writeFileSync(path, content);
  } catch {
    return () => {};
  }
  return () => {
    try {
      // If the directory was replaced meanwhile, the file may be another holder's.
      if (read(path) === content) fs.rmSync(path, { force: true });
    } catch {
      // The file is only informative here.
    }
  };
}

/** Describes who holds the directory, and what to do about it. */
export function describeHolder(directory: string): string {
  const close = 'close it there first';
  const holder = parse(read(join(directory, LOCK_FILE)));
  if (holder === undefined || holder.directory !== numberOf(directory)) return `in another process; ${close}`;
  const { pid, host, runtime } = holder;
  if (isOurRealm(holder))
    return pid === process.pid ? `in this process; ${close}` : `in process ${pid} (${runtime}); ${close}`;
  if (host === '') return `in process ${pid} (${runtime}); ${close}`;
  const where = `in process ${pid} (${runtime}) of ${host === ownRealm().host ? 'another container' : `the host ${host}`}`;
  return isSilent(directory)
    ? `${where}, which gives no sign of life; ${close}, or, if it is gone for sure, open with takeOver, or run mangrove-kv unlock ${directory}`
    : `${where}; ${close}`;
}
