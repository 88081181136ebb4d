import { randomKeys } from '../records.mjs';

export async function opening({ open, directory, ...options }) {
  const [key] = randomKeys(1, 1);
  const start = performance.now();
  const db = await open(directory, { ...options, durable: true });
  const value = await db.get(key);
  const milliseconds = performance.now() - start;
  if (value === undefined) throw new Error(`${key} is not there`);
  await db.close();
  return [['opening, with the first get', 'ms', milliseconds]];
}
