// What a power cut leaves of the database's files: of everything that was not flushed, any part.
import { Buffer } from 'node:buffer';
import { existsSync, readFileSync, readdirSync, rmSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Random } from '../random.ts';
import { FILES, SECTOR_BYTES, decode, endOfSector, startOfSector } from './journal.ts';
import type { Change, Entry, FileName } from './journal.ts';

/** How long a machine takes to start again. */
const RESTART_MS = 30_000;

/** Whether a change has reached the disk, in one sector or, without a sector, as the file's length. */
type Fate = (change: number, sector?: number) => boolean;

export interface Cut {
  readonly style: string;
  /** Changes that were not covered by a flush. */
  readonly unflushed: number;
  /** Sectors and lengths that differ from what the processes had written. */
  readonly lost: number;
}

/** The choice is made once for each change and sector. */
function remembered(choose: Fate): Fate {
  const made = new Map<string, boolean>();
  return (change, sector) => {
    const key = `${change}:${sector}`;
    const is = made.get(key) ?? choose(change, sector);
    made.set(key, is);
    return is;
  };
}

/** Ways in which a disk may have treated `count` changes. */
const STYLES: Readonly<Record<string, (random: Random, count: number) => Fate>> = {
  nothing: () => () => false,
  everything: () => () => true,
  prefix: (random, count) => {
    const end = random.below(count + 1);
    return (change) => change < end;
  },
  changes: (random) => {
    const part = random.of([0.1, 0.5, 0.9]);
    const whole = remembered(() => random.next() < part);
    return (change) => whole(change);
  },
  sectors: (random) => {
    const part = random.of([0.1, 0.5, 0.9]);
    return remembered(() => random.next() < part);
  },
  torn: (random) => {
    const kinds = new Map<number, 'kept' | 'lost' | 'torn'>();
    const part = remembered(() => random.below(2) === 0);
    return (change, sector) => {
      const kind = kinds.get(change) ?? random.of(['kept', 'lost', 'torn'] as const);
      kinds.set(change, kind);
      return kind === 'torn' ? part(change, sector) : kind === 'kept';
    };
  },
};

function isChange(entry: Entry): entry is Change {
  return entry.kind === 'write' || entry.kind === 'resize';
}

function sectorOf(bytes: Buffer, at: number): Buffer {
  const sector = Buffer.alloc(SECTOR_BYTES);
  sector.set(bytes.subarray(at, at + SECTOR_BYTES));
  return sector;
}

/** The sectors that a change concerns, as they were before it. */
function* sectorsBefore({ kind, at, size, old, written }: Change): Generator<readonly [number, Buffer]> {
  const begin = startOfSector(at);
  const end = endOfSector(kind === 'write' ? at + written.length : Math.max(at, size));
  for (let sector = begin; sector < end; sector += SECTOR_BYTES) yield [sector, sectorOf(old, sector - begin)];
}

function sizeAfter({ kind, at, size, written }: Change): number {
  return kind === 'resize' ? at : Math.max(size, at + written.length);
}

/** For each file, how many entries a completed flush covers: those from before it began. */
function flushedOf(entries: readonly Entry[]): Record<FileName, number> {
  const flushed = { data: 0, log: 0 };
  const begun = new Map<string, number>();
  for (const [index, entry] of entries.entries()) {
    if (entry.kind === 'begun') begun.set(`${entry.pid}:${entry.flush}`, index);
    if (entry.kind === 'flushed')
      flushed[entry.file] = Math.max(flushed[entry.file], begun.get(`${entry.pid}:${entry.flush}`)!);
  }
  return flushed;
}

/**
 * Checks that the journal explains the file: each change found what the changes before it left. Otherwise
 * somebody writes without recording it, and a cut would lose less than it may.
 */
function checkComplete(file: FileName, entries: readonly Entry[], current: Buffer): void {
  const last = new Map(entries.map((entry, index) => [entry.pid, index]));
  const known = new Map<number, Buffer>();
  let size: number | undefined;
  const compare = (what: string, sector: number, found: Buffer): void => {
    if (known.get(sector)?.equals(found) === false)
      throw new Error(`the journal does not explain ${file} at ${sector}, ${what}`);
  };
  for (const [index, entry] of entries.entries()) {
    if (!isChange(entry) || entry.file !== file) continue;
    const what = `before entry ${index}, of process ${entry.pid}`;
    if (size !== undefined && entry.size !== size)
      throw new Error(`the journal has ${size} bytes of ${file}, and there were ${entry.size}, ${what}`);
    const isKilled = last.get(entry.pid) === index;
    size = isKilled ? undefined : sizeAfter(entry);
    for (const [sector, before] of sectorsBefore(entry)) {
      compare(what, sector, before);
      if (entry.kind === 'write')
        entry.written.copy(before, Math.max(0, entry.at - sector), Math.max(0, sector - entry.at));
      else before.fill(0, Math.min(SECTOR_BYTES, Math.max(0, entry.at - sector)));
      if (isKilled) known.delete(sector);
      else known.set(sector, before);
    }
  }
  for (const sector of known.keys()) compare('at the cut', sector, sectorOf(current, sector));
  if (size !== undefined && current.length !== size)
    throw new Error(`the journal has ${size} bytes of ${file}, and there are ${current.length}`);
}

/** Chooses one of the states that each sector, and the length, had since the last flush began. */
function imageOf(
  changes: readonly { readonly number: number; readonly change: Change }[],
  current: Buffer,
  fate: Fate,
): { readonly image: Buffer; readonly lost: number } {
  /** What sectors were before the first change that is lost with all later ones; the length likewise. */
  const sectors = new Map<number, Buffer>();
  let size: number | undefined;
  let end = current.length;
  for (const { number, change } of changes) {
    for (const [sector, before] of sectorsBefore(change)) {
      end = Math.max(end, sector + SECTOR_BYTES);
      if (fate(number, sector)) sectors.delete(sector);
      else if (!sectors.has(sector)) sectors.set(sector, before);
    }
    if (sizeAfter(change) === change.size) continue;
    end = Math.max(end, change.size);
    size = fate(number) ? undefined : (size ?? change.size);
  }
  const finalSize = size ?? current.length;
  const image = Buffer.alloc(end);
  current.copy(image);
  let lost = finalSize === current.length ? 0 : 1;
  for (const [sector, bytes] of sectors) {
    if (!sectorOf(current, sector).equals(bytes)) lost++;
    bytes.copy(image, sector);
  }
  return { image: image.subarray(0, finalSize), lost };
}

/** Files that are never flushed may be there, empty or gone. */
function cutOthers(database: string, random: Random): void {
  const before = new Date(Date.now() - RESTART_MS);
  for (const entry of readdirSync(database, { withFileTypes: true })) {
    if ((FILES as readonly string[]).includes(entry.name)) continue;
    const path = join(database, entry.name);
    switch (random.of(['kept', 'empty', 'gone'] as const)) {
      case 'gone':
        rmSync(path);
        break;
      case 'empty':
        if (!entry.isFile()) break;
        truncateSync(path);
        utimesSync(path, before, before);
        break;
      case 'kept':
    }
  }
}

/** Cuts the power of a machine on which no process runs any more, and begins a new journal. */
export function cutPower(options: {
  readonly database: string;
  readonly journal: string;
  readonly random: Random;
  /** The processes that have opened the database. */
  readonly pids: Iterable<number>;
}): Cut {
  const { database, journal, random, pids } = options;
  const entries = existsSync(journal) ? decode(readFileSync(journal)) : [];
  const started = new Set(entries.filter(({ kind }) => kind === 'started').map(({ pid }) => pid));
  for (const pid of pids) if (!started.has(pid)) throw new Error(`process ${pid} has recorded nothing`);
  const flushed = flushedOf(entries);
  const unflushed = entries.flatMap((change, index) =>
    isChange(change) && index > flushed[change.file] ? [change] : [],
  );
  const numbered = unflushed.map((change, number) => ({ number, change }));
  const style = random.of(Object.keys(STYLES));
  const fate = STYLES[style]!(random, unflushed.length);
  let lost = 0;
  for (const file of FILES) {
    const path = join(database, file);
    if (!existsSync(path)) continue;
    const current = readFileSync(path);
    checkComplete(file, entries, current);
    const left = imageOf(
      numbered.filter(({ change }) => change.file === file),
      current,
      fate,
    );
    lost += left.lost;
    writeFileSync(path, left.image);
  }
  cutOthers(database, random);
  rmSync(journal, { force: true });
  return { style, unflushed: unflushed.length, lost };
}
