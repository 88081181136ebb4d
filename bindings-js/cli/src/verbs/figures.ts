// The verbs about a database as a whole: stat, list, rename and bench.
import * as fs from 'node:fs';
import { KvError, keyCodecs, openSync, valueCodecs } from 'mangrove-kv';
import type { Database, Durability, SyncDatabase } from 'mangrove-kv';
import { invalid } from '../failure.ts';
import { storedCollections } from 'mangrove-kv/internal/tool';
import { Output, print } from '../output.ts';
import { hasName, read, write } from '../store.ts';
import type { StoreOptions } from '../store.ts';

/** Collections, with their indexes. The number of entries of an index is known when it is complete. */
async function collectionsOf(db: Database): Promise<object[]> {
  const { indexes: all } = await db.stats();
  return (await storedCollections(db)).map((stored) => {
    const indexes = all
      .filter(({ collection }) => collection === stored.name)
      .map(({ name, version, unique, complete, count }) => ({
        name,
        version,
        unique,
        complete,
        ...(complete && { count }),
      }));
    return { ...stored, ...(indexes.length > 0 && { indexes }) };
  });
}

export async function stat(path: string, options: StoreOptions): Promise<void> {
  const figures = await read(path, options, async (db) => {
    const stats = await db.stats();
    const {
      version,
      durableVersion,
      entries,
      fileSize,
      freeSize,
      keptSize,
      unitSize,
      depth,
      maxKeySize,
      cacheHits,
      cacheMisses,
      cacheSize,
      dirtySize,
    } = stats;
    const {
      openSnapshots,
      oldestSnapshot = null,
      checkpoints,
      logSize,
      logBytesWritten,
      logRecords,
      logFlushes,
      recoveredFromOlder,
      bytesRead,
      bytesWritten,
    } = stats;
    return {
      version,
      durableVersion,
      collections: await collectionsOf(db),
      entries,
      fileSize,
      freeSize,
      keptSize,
      unitSize,
      depth,
      maxKeySize,
      cacheHits,
      cacheMisses,
      cacheSize,
      dirtySize,
      openSnapshots,
      oldestSnapshot,
      checkpoints,
      logFileSize: logSize,
      logBytesWritten,
      logRecords,
      logFlushes,
      recoveredFromOlder,
      bytesRead,
      bytesWritten,
    };
  });
  print(JSON.stringify(figures));
}

export async function list(path: string, options: StoreOptions): Promise<void> {
  const collections = await read(path, options, collectionsOf);
  const output = new Output();
  for (const collection of collections) output.line(JSON.stringify(collection));
  output.flush();
}

export interface RenameOptions extends StoreOptions {
  readonly durability: Durability;
}

export async function rename(path: string, from: string, to: string, options: RenameOptions): Promise<void> {
  if (from === '' || to === '') throw invalid('the database\'s own collection, named "", cannot be renamed');
  const found = await write(path, options, (db) =>
    db.transaction((tx) => tx.renameCollection(from, to), { durability: options.durability }),
  );
  print(String(found));
}

export interface BenchOptions extends StoreOptions {
  readonly count: number;
  readonly valueBytes: number;
  readonly durability: Durability;
}

/** Records per transaction. */
const BATCH = 1000;

/** The key of a number, a bijection of 32-bit numbers: keys are in no order. */
const keyOf = (index: number): number => (Math.imul(index, 0x9e37_79b1) ^ 0x55aa_55aa) >>> 0;

function fillValue(index: number, value: Uint8Array): void {
  let state = index + 1;
  for (let at = 0; at < value.length; at++) {
    state = (Math.imul(state, 0x0019_660d) + 0x3c6e_f35f) | 0;
    value[at] = state >>> 24;
  }
}

const perSecond = (count: number, start: number): number => Math.round((count * 1000) / (performance.now() - start));

function wrong(what: string): KvError {
  return new KvError('KV_CORRUPT', `the self-test failed: ${what}`);
}

function measure(
  db: SyncDatabase<number, Uint8Array>,
  { count, valueBytes, durability }: BenchOptions,
): { readonly [figure: string]: number } {
  let start = performance.now();
  for (let from = 0; from < count; from += BATCH) {
    const entries = Array.from({ length: Math.min(BATCH, count - from) }, (_, at): [number, Uint8Array] => {
      const value = new Uint8Array(valueBytes);
      fillValue(from + at, value);
      return [keyOf(from + at), value];
    });
    db.setMany(entries, { durability });
  }
  const setsPerSecond = perSecond(count, start);
  const expected = new Uint8Array(valueBytes);
  start = performance.now();
  for (let index = 0; index < count; index++) {
    fillValue(index, expected);
    const found = db.get(keyOf(index));
    if (found === undefined || found.length !== valueBytes || found.some((byte, at) => byte !== expected[at]))
      throw wrong('a value differs from what was written');
  }
  const getsPerSecond = perSecond(count, start);
  start = performance.now();
  let scanned = 0;
  for (const _ of db.entries()) scanned++;
  const scannedPerSecond = perSecond(count, start);
  if (scanned !== count) throw wrong('a scan does not see every record');
  return { setsPerSecond, getsPerSecond, scannedPerSecond };
}

export async function bench(path: string, options: BenchOptions): Promise<void> {
  if (hasName(path)) throw new KvError('KV_EXISTS', `${path} already exists`);
  try {
    const db = openSync(path, {
      exclusive: true,
      encryption: options.encryption,
      key: keyCodecs.uint32,
      value: valueCodecs.bytes,
      lockTimeout: 0,
    });
    let figures;
    try {
      figures = measure(db, options);
    } finally {
      db.close();
    }
    const { count, valueBytes } = options;
    print(JSON.stringify({ count, valueBytes, ...figures, fileSize: fs.statSync(`${path}/data`).size }));
  } finally {
    fs.rmSync(path, { recursive: true, force: true });
  }
}
