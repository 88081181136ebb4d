// Records what this process does to the database's files. Loaded before the package, of which it knows
// only the names of its files. What it does not record is found when the power is cut.
import { Buffer } from 'node:buffer';
import * as module from 'node:module';
import { join, resolve } from 'node:path';
import process from 'node:process';
import { FILES, encode, endOfSector, startOfSector } from './journal.ts';
import type { Change, Entry, FileName } from './journal.ts';

type FileSystem = typeof import('node:fs');
type Done = (error: NodeJS.ErrnoException | null) => void;

const { CHAOS_DATABASE: database = '', CHAOS_JOURNAL: journalPath = '', CHAOS_FLUSH_MS: flushMs = '0' } = process.env;
/** The disk is as slow as this, so that more is written while it flushes. */
const FLUSH_MS = Number(flushMs);

// The object behind the module, which can be changed.
const fs = module.createRequire(import.meta.url)('node:fs') as FileSystem;
const original = { ...fs };
const journal = original.openSync(journalPath, 'a');
const paths = new Map<string, FileName>(FILES.map((file) => [join(database, file), file]));
const handles = new Map<number, FileName>();
let flushes = 0;

function append(entry: Entry): void {
  const bytes = encode(entry);
  // In one call, or the entries of several processes would mix.
  if (original.writeSync(journal, bytes) !== bytes.length) throw new Error('the journal cannot be written');
}

function appendChange(handle: number, file: FileName, change: Pick<Change, 'kind' | 'at' | 'written'>): void {
  const { kind, at, written } = change;
  const { size } = original.fstatSync(handle);
  const end = kind === 'write' ? endOfSector(at + written.length) : size;
  const old = Buffer.alloc(Math.max(0, Math.min(size, end) - startOfSector(at)));
  for (let done = 0; done < old.length; ) {
    const count = original.readSync(handle, old, done, old.length - done, startOfSector(at) + done);
    if (count === 0) throw new Error(`${file} was cut by another process`);
    done += count;
  }
  append({ kind, pid: process.pid, file, size, at, old, written });
}

function beginFlush(file: FileName): () => void {
  const flush = ++flushes;
  append({ kind: 'begun', pid: process.pid, file, flush });
  return () => append({ kind: 'flushed', pid: process.pid, file, flush });
}

function flushingSync(flush: (handle: number) => void): (handle: number) => void {
  return (handle) => {
    const file = handles.get(handle);
    const end = file === undefined ? undefined : beginFlush(file);
    flush(handle);
    if (end === undefined) return;
    if (FLUSH_MS > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, FLUSH_MS);
    end();
  };
}

function flushing(flush: (handle: number, done: Done) => void): (handle: number, done: Done) => void {
  return (handle, done) => {
    const file = handles.get(handle);
    const end = file === undefined ? undefined : beginFlush(file);
    flush(handle, (error) => {
      const finish = (): void => {
        if (error === null) end?.();
        done(error);
      };
      if (end !== undefined && FLUSH_MS > 0) setTimeout(finish, FLUSH_MS);
      else finish();
    });
  };
}

Object.assign(fs, {
  openSync(...args: Parameters<FileSystem['openSync']>): number {
    const handle = original.openSync(...args);
    const file = paths.get(resolve(String(args[0])));
    if (file !== undefined) handles.set(handle, file);
    return handle;
  },
  closeSync(handle: number): void {
    handles.delete(handle);
    original.closeSync(handle);
  },
  writeSync(handle: number, ...args: readonly unknown[]): number {
    const file = handles.get(handle);
    if (file !== undefined) {
      const [from, offset, length, at] = args;
      if (!(from instanceof Uint8Array && [offset, length, at].every(Number.isInteger)))
        throw new Error(`this way of writing ${file} is not recorded`);
      const begin = from.byteOffset + (offset as number);
      const written = Buffer.from(from.buffer, begin, length as number);
      appendChange(handle, file, { kind: 'write', at: at as number, written });
    }
    return (original.writeSync as (handle: number, ...args: readonly unknown[]) => number)(handle, ...args);
  },
  ftruncateSync(handle: number, size = 0): void {
    const file = handles.get(handle);
    if (file !== undefined) appendChange(handle, file, { kind: 'resize', at: size, written: Buffer.alloc(0) });
    original.ftruncateSync(handle, size);
  },
  fdatasyncSync: flushingSync(original.fdatasyncSync),
  fsyncSync: flushingSync(original.fsyncSync),
  fdatasync: flushing(original.fdatasync),
  fsync: flushing(original.fsync),
} satisfies Partial<Record<keyof FileSystem, unknown>>);
module.syncBuiltinESMExports();

// The package imports it like this.
const imported = await import('node:fs');
if (imported.writeSync !== fs.writeSync || imported.fdatasync !== fs.fdatasync)
  throw new Error('what this runtime writes cannot be recorded');
append({ kind: 'started', pid: process.pid });
