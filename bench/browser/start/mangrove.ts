import { open } from 'mangrove-kv';
import { show } from './page.ts';
import type { Row } from './page.ts';

await show(async () => {
  const db = await open<number, Row>('bench-start');
  return {
    seed: (rows) => db.setMany(rows.map((row, index) => [index, row] as const)),
    first: (limit) => db.values({ limit }).toArray(),
  };
});
