// A value that is stored again and again: the files stay within a few times what is stored, and a
// storage with room for ten times that much refuses nothing.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import { chance } from './support/kit.ts';
import { SizedStorage } from './support/sized-storage.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
/** Log, and what is kept until the next checkpoint, of a database with the default cache. */
const OVERHEAD = 34 * MIB;

/** Incompressible, and different for each save. */
function document(size: number): (save: number) => Uint8Array {
  const random = chance(size);
  const words = Uint32Array.from({ length: Math.ceil(size / 4) }, () => random() * 2 ** 32);
  return (save) => {
    words.fill(save, 0, 1);
    return new Uint8Array(words.buffer, 0, size);
  };
}

/** Saves `count` documents in turn, and compares them in the end. */
async function saveAgain(storage: SizedStorage, size: number, count: number, saves: number): Promise<void> {
  const db = await open<number, Uint8Array>('x', { storage });
  const next = document(size);
  for (let save = 0; save < saves; save++) await db.set(save % count, next(save));
  for (let save = saves - count; save < saves; save++)
    assert.ok(
      Buffer.compare((await db.get(save % count)) ?? new Uint8Array(0), next(save)) === 0,
      `document ${save % count}`,
    );
  assert.deepEqual((await db.verify()).problems, []);
  await db.close();
}

for (const [size, count, saves] of [
  [3 * KIB, 1, 10_000],
  [30 * KIB, 10, 4000],
  [300 * KIB, 1, 1000],
  [3 * MIB, 1, 100],
  [3 * MIB, 10, 60],
  [50 * MIB, 1, 6],
] as const) {
  test(`${saves} saves of ${count === 1 ? 'a document' : `${count} documents`} of ${size / KIB} KiB take a few times the space of the last ones`, async () => {
    const storage = new SizedStorage();
    await saveAgain(storage, size, count, saves);
    assert.ok(storage.largest < 4 * count * size + OVERHEAD, `${storage.largest} bytes for ${count * size}`);
  });
}

for (const [size, count, saves] of [
  [3 * KIB, 100, 2000],
  [30 * KIB, 10, 1000],
  [100 * KIB, 6, 500],
  [300 * KIB, 1, 500],
  [30 * KIB, 100, 2000],
  [3 * MIB, 1, 60],
  [3 * MIB, 4, 60],
] as const) {
  test(`with room for ten times ${count} of ${size / KIB} KiB, ${saves} saves are all made`, () =>
    saveAgain(new SizedStorage(10 * size * count), size, count, saves));
}
