// `bench`: a self-test that prints figures.
import * as fs from 'node:fs';
import { Op } from '../client/opcodes.ts';
import { ChangeList } from '../client/changes.ts';
import { newTarget } from '../client/target.ts';
import { DatabaseScope } from '../client/scope.ts';
import { KvCollection } from '../client/collection.ts';
import { keyCodecs } from '../codec/keys.ts';
import { valueCodecs } from '../codec/values.ts';
import { KvError } from '../errors.ts';
import type { Durability, Stats } from '../types.ts';
import type { Options, Parsed } from './arguments.ts';
import { durabilityOf } from './records.ts';
import { write } from './store.ts';
import type { Store } from './store.ts';
import { print } from './streams.ts';

/** Records of one transaction. */
const BATCH = 1000;
export const BENCH: Options = { count: 'COUNT', 'value-bytes': 'BYTES', durability: 'WHEN' };

/** A bijection of 32-bit numbers: keys in no order. */
function keyOf(index: number): number {
  return (Math.imul(index, 0x9e37_79b1) ^ 0x55aa_55aa) >>> 0;
}

function valueOf(index: number, length: number): Uint8Array {
  const value = new Uint8Array(length);
  let state = index + 1;
  for (let at = 0; at < length; at++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    value[at] = state >>> 24;
  }
  return value;
}

function perSecond(count: number, start: number): number {
  return Math.round(count * 1000 / (performance.now() - start));
}

function wrong(what: string): KvError {
  return new KvError('KV_CORRUPT', `the self-test failed: ${what}`);
}

async function measure(store: Store, count: number, length: number, durability: Durability): Promise<object> {
  const { connection } = store;
  const target = newTarget(connection, '', keyCodecs.uint32, valueCodecs.bytes);
  const scope = new DatabaseScope(connection, durability);
  const collection = new KvCollection(target, scope);
  let start = performance.now();
  for (let batch = 0; batch < count; batch += BATCH) {
    const changes = new ChangeList();
    for (let index = batch; index < Math.min(count, batch + BATCH); index++) changes.set(target, keyOf(index), valueOf(index, length), 0);
    await scope.write(Op.batch, undefined, (writer) => writer.uv(changes.length).raw(changes.bytes), (reader) => reader.uv());
  }
  const setsPerSecond = perSecond(count, start);
  start = performance.now();
  for (let batch = 0; batch < count; batch += BATCH) {
    const indexes = Array.from({ length: Math.min(BATCH, count - batch) }, (_, at) => batch + at);
    const found = await Promise.all(indexes.map((index) => collection.get(keyOf(index))));
    for (const [at, bytes] of found.entries()) {
      const expected = valueOf(batch + at, length);
      if (bytes?.length !== length || !expected.every((byte, index) => byte === bytes[index])) throw wrong('a value is not what was written');
    }
  }
  const getsPerSecond = perSecond(count, start);
  start = performance.now();
  let scanned = 0;
  for await (const _ of collection.entries()) scanned++;
  const scannedPerSecond = perSecond(count, start);
  if (scanned !== count) throw wrong('a scan does not see every record');
  const { fileSize } = await store.json<Stats>(Op.stats);
  return { count, valueBytes: length, setsPerSecond, getsPerSecond, scannedPerSecond, fileSize };
}

export async function bench(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  const count = parsed.count('count', 100_000, 1, 0xffff_ffff);
  const length = parsed.count('value-bytes', 100, 4, 1 << 20);
  const durability = durabilityOf(parsed);
  if (fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined) throw new KvError('KV_EXISTS', `${path} already exists`);
  let figures;
  try {
    figures = await write(path, { create: true, exclusive: true, durability }, (store) => measure(store, count, length, durability));
  } finally {
    fs.rmSync(path, { recursive: true, force: true });
  }
  print(JSON.stringify(figures));
}
