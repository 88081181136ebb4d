import { rate } from '../measure.mjs';
import { makeValues, randomKeys } from '../records.mjs';

const IN_FLIGHT = 32;

export async function singles({ open, directory, scale, values, ...options }) {
  const count = Math.round(2000 * scale);
  const keys = randomKeys(2 * count, 2);
  const value = makeValues(values);
  const db = await open(directory, { ...options, values, durable: true });
  const figures = [];
  figures.push([
    'durable commits of 1, one by one',
    '/s',
    await rate(count, async () => {
      for (let at = 0; at < count; at++) await db.put(keys[at], value(at));
    }),
  ]);
  if (db.overlaps) {
    let next = count;
    const writer = async () => {
      for (let at; (at = next++) < 2 * count; ) await db.put(keys[at], value(at));
    };
    const all = () => Promise.all(Array.from({ length: IN_FLIGHT }, writer));
    figures.push([`durable commits of 1, ${IN_FLIGHT} in flight`, '/s', await rate(count, all)]);
  }
  await db.close();
  return figures;
}
