// What a mirror costs: loading it beside reading the same entries, a synchronous get beside that of a Map, and memory.
import { open } from 'mangrove-kv';
import { mirror } from 'mangrove-kv/live';

export interface MirrorFigures {
  /** Milliseconds until a mirror of all entries can be read. */
  readonly loadMs: number;
  /** Milliseconds to read all entries with an iterator. */
  readonly iterateMs: number;
  /** Microseconds of a get of a random key. */
  readonly getUs: number;
  readonly mapGetUs: number;
  /** Bytes of the heap for each entry, without its value. */
  readonly bytes: number;
}

declare global {
  var measureMirror: (entries: number) => Promise<MirrorFigures>;
  // Chromium has it, and `gc`, with the flags that the driver passes.
  interface Performance {
    readonly memory: { readonly usedJSHeapSize: number };
  }
}

const GETS = 20_000;
const keyOf = (n: number): string => `user:${String(n).padStart(8, '0')}`;
const valueOf = (n: number): object => ({ id: n, name: `name ${n}`, population: n * 7, country: 'DE' });

async function heap(): Promise<number> {
  for (let turns = 0; turns < 3; turns++) {
    await globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return performance.memory.usedJSHeapSize;
}

async function milliseconds(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

function microsecondsEach(keys: readonly string[], get: (key: string) => unknown): number {
  const start = performance.now();
  let found = 0;
  for (const key of keys) if (get(key) !== undefined) found++;
  if (found !== keys.length) throw new Error(`${found} of ${keys.length} keys are there`);
  return ((performance.now() - start) / keys.length) * 1000;
}

globalThis.measureMirror = async (entries) => {
  const db = await open<string, object>(`mirrors-${entries}`);
  if ((await db.size) === 0) await db.setMany(Array.from({ length: entries }, (_, n) => [keyOf(n), valueOf(n)]));
  const options = { maxBytes: 1 << 30 };
  const iterateMs = await milliseconds(() => db.entries().toArray());
  let held = mirror(db, {}, options);
  const loadMs = await milliseconds(() => held.ready);
  const keys = Array.from({ length: GETS }, () => keyOf(Math.floor(Math.random() * entries)));
  const map = new Map(held.range());
  microsecondsEach(keys, (key) => held.get(key));
  microsecondsEach(keys, (key) => map.get(key));
  const getUs = microsecondsEach(keys, (key) => held.get(key));
  const mapGetUs = microsecondsEach(keys, (key) => map.get(key));
  map.clear();
  held.close();
  const empty = await heap();
  held = mirror(db, {}, options);
  await held.ready;
  const whole = (await heap()) - empty;
  const values = held.values();
  held.close();
  const onlyValues = (await heap()) - empty - values.length * 4;
  const bytes = (whole - onlyValues) / values.length;
  await db.close();
  return { loadMs, iterateMs, getUs, mapGetUs, bytes };
};
