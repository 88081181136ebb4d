// The verbs for records: get, set, del, scan and count.
import * as fs from 'node:fs';
import { KvError } from 'mangrove-kv';
import type { Durability, RangeOptions } from 'mangrove-kv';
import { Codecs, DEFAULT_CODECS } from '../codecs.ts';
import { codecsOf, collectionIn, readable } from '../collection.ts';
import type { CollectionChoice } from '../collection.ts';
import { readAllInput } from '../input.ts';
import { Output, print } from '../output.ts';
import { read, write } from '../store.ts';
import type { StoreOptions } from '../store.ts';

/** Records fetched at a time. */
const FETCHED = 64;

export interface RecordOptions extends CollectionChoice, StoreOptions {}

export interface WritingOptions extends RecordOptions {
  readonly durability: Durability;
}

export interface RangeChoice {
  readonly start?: string;
  readonly end?: string;
  readonly prefix?: string;
}

export interface ScanOptions extends RecordOptions, RangeChoice {
  readonly reverse?: boolean;
  readonly limit?: number;
  readonly keysOnly?: boolean;
}

function toRange(codecs: Codecs, { start, end, prefix }: RangeChoice): RangeOptions<unknown> {
  return {
    ...(start !== undefined && { gte: codecs.key(start, '--start') }),
    ...(end !== undefined && { lt: codecs.key(end, '--end') }),
    ...(prefix !== undefined && { prefix: codecs.key(prefix, '--prefix') }),
  };
}

export async function get(path: string, key: string, options: RecordOptions): Promise<void> {
  const shown = await read(path, options, async (db) => {
    const { codecs, records } = await readable(db, options);
    const value = await records.get(codecs.key(key));
    if (value === undefined) throw new KvError('KV_NOT_FOUND', `there is no key ${key}`);
    return codecs.showValue(value);
  });
  print(shown);
}

export async function set(
  path: string,
  key: string,
  given: string | undefined,
  options: WritingOptions,
): Promise<void> {
  const { collection, durability } = options;
  const value = given ?? (await readAllInput());
  if (!fs.existsSync(path)) {
    // Creates no database for a record that cannot be stored in it.
    const codecs = new Codecs(DEFAULT_CODECS, options.raw);
    codecs.check(codecs.key(key), codecs.value(value));
  }
  await write(path, { ...options, create: true }, async (db) => {
    const { codecs } = await codecsOf(db, options);
    await collectionIn(db, collection, codecs).set(codecs.key(key), codecs.value(value), { durability });
  });
}

export async function del(path: string, key: string, options: WritingOptions): Promise<void> {
  const { collection, durability } = options;
  const found = await write(path, options, async (db) => {
    const { codecs } = await codecsOf(db, options);
    return collectionIn(db, collection, codecs).delete(codecs.key(key), { durability });
  });
  print(String(found));
}

export async function scan(path: string, options: ScanOptions): Promise<void> {
  const { reverse = false, limit = Infinity, keysOnly = false } = options;
  await read(path, options, async (db) => {
    const output = new Output();
    await output.during(async () => {
      const { codecs, records } = await readable(db, options);
      const range = { ...toRange(codecs, options), reverse, limit };
      const items = keysOnly
        ? records.keys(range).map((key): [unknown, undefined] => [key, undefined])
        : records.entries(range);
      for (let fetched = await items.nextMany(FETCHED); fetched.length > 0; fetched = await items.nextMany(FETCHED)) {
        for (const [key, value] of fetched)
          output.line(
            keysOnly
              ? `{"key":${codecs.showKey(key)}}`
              : `{"key":${codecs.showKey(key)},"value":${codecs.showValue(value)}}`,
          );
      }
    });
  });
}

export async function count(path: string, options: RecordOptions & RangeChoice): Promise<void> {
  const found = await read(path, options, async (db) => {
    const { codecs, records } = await readable(db, options);
    return records.count(toRange(codecs, options));
  });
  print(String(found));
}
