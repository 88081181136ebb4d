// The journal of all changes to the database's files. Each process appends to it before it changes a file,
// so that it is complete after any kill; one file for all, because their clocks have different origins.
import { Buffer } from 'node:buffer';

export const FILES = ['data', 'log'] as const;
export type FileName = (typeof FILES)[number];

/** What a disk writes as a whole. */
export const SECTOR_BYTES = 512;

/** A process that records has begun. */
export interface Started {
  readonly kind: 'started';
  readonly pid: number;
}

/** A file is about to be changed; the change is made unless the process is killed at once. */
export interface Change {
  readonly kind: 'write' | 'resize';
  readonly pid: number;
  readonly file: FileName;
  /** Length of the file before. */
  readonly size: number;
  /** Where it is written; the new length. */
  readonly at: number;
  /** Bytes from the sector of `at` on, as far as the file had them and the change concerns them. */
  readonly old: Buffer;
  readonly written: Buffer;
}

/** `begun` and `flushed` have the same number. */
export interface Flush {
  readonly kind: 'begun' | 'flushed';
  readonly pid: number;
  readonly file: FileName;
  readonly flush: number;
}

export type Entry = Started | Change | Flush;

type Head<T> = T extends Change ? Omit<T, 'old' | 'written'> & { readonly bytes: readonly [number, number] } : T;

const BEGIN = Buffer.from('\u0000begin of an entry\u0000');
const END = Buffer.from('\u0000end of an entry\u0000');
const NONE = Buffer.alloc(0);

export function startOfSector(at: number): number {
  return at - (at % SECTOR_BYTES);
}

export function endOfSector(at: number): number {
  return startOfSector(at + SECTOR_BYTES - 1);
}

export function encode(entry: Entry): Buffer {
  const [old, written] = 'old' in entry ? [entry.old, entry.written] : [NONE, NONE];
  const head = Buffer.from(
    JSON.stringify(
      'old' in entry ? { ...entry, old: undefined, written: undefined, bytes: [old.length, written.length] } : entry,
    ),
  );
  const length = Buffer.alloc(4);
  length.writeUInt32LE(head.length);
  return Buffer.concat([BEGIN, length, head, old, written, END]);
}

/** The entry at a place and where it ends; `undefined` if its process was killed while it wrote it. */
function decodeAt(journal: Buffer, at: number): { readonly entry: Entry; readonly end: number } | undefined {
  const begin = at + BEGIN.length + 4;
  if (begin > journal.length) return undefined;
  const beginOfBytes = begin + journal.readUInt32LE(begin - 4);
  if (beginOfBytes > journal.length) return undefined;
  let head: Head<Entry>;
  try {
    head = JSON.parse(journal.toString('utf8', begin, beginOfBytes)) as Head<Entry>;
  } catch {
    return undefined;
  }
  const [old, written] = 'bytes' in head ? head.bytes : [0, 0];
  const beginOfWritten = beginOfBytes + old;
  const endOfBytes = beginOfWritten + written;
  const end = endOfBytes + END.length;
  if (!journal.subarray(endOfBytes, end).equals(END)) return undefined;
  if (!('bytes' in head)) return { entry: head, end };
  const { bytes: _, ...rest } = head;
  const entry = {
    ...rest,
    old: journal.subarray(beginOfBytes, beginOfWritten),
    written: journal.subarray(beginOfWritten, endOfBytes),
  };
  return { entry, end };
}

export function decode(journal: Buffer): Entry[] {
  const entries: Entry[] = [];
  for (let at = journal.indexOf(BEGIN); at >= 0; ) {
    const found = decodeAt(journal, at);
    if (found !== undefined) entries.push(found.entry);
    at = journal.indexOf(BEGIN, found?.end ?? at + BEGIN.length);
  }
  return entries;
}
