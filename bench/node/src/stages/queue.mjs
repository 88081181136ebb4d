import { rate } from '../measure.mjs';
import { batches } from '../records.mjs';

const BATCH = 10_000;

/** Takes half of a queue, then some with a flush each. */
export async function queue({ open, directory, records, scale, values, ...options }) {
  const keys = Array.from({ length: records }, (_, at) => String(at).padStart(12, '0'));
  const url = (at) =>
    `https://www.example.org/site-${at % 997}/section-${at % 31}/page-${at}.html?session=${at * 7919}`;
  const all = batches(keys, url, BATCH);
  const figures = [];
  let db = await open(directory, { ...options, values: 'text', durable: false });
  for (const batch of all) await db.write(batch);
  const takes = async (count, from) => {
    for (let at = 0; at < count; at++) {
      const entry = await db.take();
      if ((entry.key ?? entry[0]) !== keys[from + at])
        throw new Error(`took ${entry.key ?? entry[0]}, not ${keys[from + at]}`);
    }
  };
  const relaxed = Math.floor(records / 2);
  figures.push(['relaxed takes', '/s', await rate(relaxed, () => takes(relaxed, 0))]);
  await db.close();
  db = await open(directory, { ...options, values: 'text', durable: true });
  const durable = Math.round(2000 * scale);
  figures.push(['durable takes', '/s', await rate(durable, () => takes(durable, relaxed))]);
  await db.close();
  return figures;
}
