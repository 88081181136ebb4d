// Two or more builds of the package in one process, in turn, round after round: processor time per operation, and the median of each
// round's ratio to the first build. Other programs disturb that less than rates of processes that run one after another.
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { batches, chunks, makeValues, randomKeys, sample } from './src/records.mjs';

const { values: options, positionals: builds } = parseArgs({
  allowPositionals: true,
  options: {
    records: { type: 'string', default: '100000' },
    rounds: { type: 'string', default: '7' },
    rows: { type: 'string', default: '' },
  },
});
const RECORDS = Number(options.records);
const READS = 50_000;
const WRITES = 20_000;
const RANGE = 100;

const keys = randomKeys(RECORDS, 1);
const numbers = Array.from({ length: RECORDS }, (_, number) => number);
const value = makeValues('bytes');
const last = [...keys].sort().at(-RANGE);
const ranges = (seed) => sample(keys, READS / RANGE, seed).map((key) => (key > last ? last : key));
let written = RECORDS;

/** How many operations a round has, what it gets, which all builds get in turn, and what it does with that. */
const ROWS = {
  get: [
    READS,
    (seed) => sample(keys, READS, seed),
    ({ bytes }, wanted) => wanted.forEach((key) => bytes.sync.get(key)),
  ],
  has: [
    READS,
    (seed) => sample(keys, READS, seed),
    ({ bytes }, wanted) => wanted.forEach((key) => bytes.sync.has(key)),
  ],
  'get awaited': [
    READS,
    (seed) => sample(keys, READS, seed),
    async ({ bytes }, wanted) => {
      for (const key of wanted) await bytes.get(key);
    },
  ],
  'getMany of 100': [
    READS,
    (seed) => chunks(sample(keys, READS, seed), 100),
    async ({ bytes }, wanted) => {
      for (const group of wanted) await bytes.getMany(group);
    },
  ],
  'range of 100': [
    READS / RANGE,
    ranges,
    ({ bytes }, from) => from.forEach((gte) => [...bytes.sync.entries({ gte, limit: RANGE })]),
  ],
  'range of 100 awaited': [
    READS / RANGE,
    ranges,
    async ({ bytes }, from) => {
      for (const gte of from) await bytes.entries({ gte, limit: RANGE }).toArray();
    },
  ],
  scan: [
    RECORDS,
    () => undefined,
    ({ bytes }) => {
      for (const entry of bytes.sync) void entry;
    },
  ],
  'scan awaited': [
    RECORDS,
    () => undefined,
    async ({ bytes }) => {
      for await (const entry of bytes) void entry;
    },
  ],
  'number get': [
    READS,
    (seed) => sample(numbers, READS, seed),
    ({ ints }, wanted) => wanted.forEach((key) => ints.sync.get(key)),
  ],
  'number get awaited': [
    READS,
    (seed) => sample(numbers, READS, seed),
    async ({ ints }, wanted) => {
      for (const key of wanted) await ints.get(key);
    },
  ],
  'object get': [
    READS,
    (seed) => sample(numbers, READS, seed),
    ({ objects }, wanted) => wanted.forEach((key) => objects.sync.get(['user', key % 10_000])),
  ],
  'insert, batches of 1,000': [
    WRITES,
    (seed) => batches(randomKeys(WRITES, seed), value, 1000),
    async ({ bytes }, all) => {
      for (const batch of all) await bytes.setMany(batch);
    },
  ],
  'number insert, batches of 1,000': [
    WRITES,
    () => {
      written += WRITES;
      return batches(
        Array.from({ length: WRITES }, (_, at) => written + at),
        (at) => at,
        1000,
      );
    },
    async ({ ints }, all) => {
      for (const batch of all) await ints.setMany(batch);
    },
  ],
};

const user = (id) => ({
  id,
  name: `Ada Lovelace ${id}`,
  email: `ada${id}@example.org`,
  tags: ['a', 'b'],
  score: id / 3,
  active: true,
  at: new Date(1.7e12 + id),
});

async function load(build, directory) {
  // A copy of its own: Node would give the same module for the same path.
  cpSync(resolve(build), join(directory, 'package'), { recursive: true });
  const { open, keyCodecs, valueCodecs } = await import(pathToFileURL(join(directory, 'package/node.js')).href);
  const durability = 'relaxed';
  const bytes = await open(join(directory, 'bytes'), { key: keyCodecs.utf8, value: valueCodecs.bytes, durability });
  const ints = await open(join(directory, 'ints'), { key: keyCodecs.uint32, durability });
  const objects = await open(join(directory, 'objects'), { durability });
  for (const batch of batches(keys, value, 1000)) await bytes.setMany(batch);
  for (const batch of batches(numbers, (number) => number, 1000)) await ints.setMany(batch);
  for (const batch of batches(
    Array.from({ length: 10_000 }, (_, id) => ['user', id]),
    user,
    1000,
  ))
    await objects.setMany(batch);
  return { bytes, ints, objects };
}

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const processorMicroseconds = () => Object.values(process.cpuUsage()).reduce((a, b) => a + b);

async function run() {
  if (builds.length === 0)
    throw new Error('give directories with builds of the package, such as bindings-js/kv/dist and a copy of it');
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-builds-'));
  const databases = [];
  try {
    for (const [at, build] of builds.entries()) databases.push(await load(build, join(directory, String(at))));
    const wanted = options.rows === '' ? Object.keys(ROWS) : options.rows.split(',');
    for (const name of wanted) {
      const [count, prepare, work] = ROWS[name];
      const times = builds.map(() => []);
      // The first round is the compiler's.
      for (let round = 0; round <= Number(options.rounds); round++) {
        const input = prepare(100 + round);
        const order = round % 2 === 0 ? [...databases.keys()] : [...databases.keys()].reverse();
        for (const at of order) {
          globalThis.gc?.();
          const start = processorMicroseconds();
          await work(databases[at], input);
          if (round > 0) times[at].push((processorMicroseconds() - start) / count);
        }
      }
      const cells = times.map(
        (own) =>
          `${median(own).toFixed(2)} µs (${median(own.map((time, round) => times[0][round] / time)).toFixed(2)} times as fast)`,
      );
      process.stdout.write(`${name.padEnd(32)} ${cells.join('  ')}\n`);
    }
    for (const { bytes, ints, objects } of databases)
      for (const database of [bytes, ints, objects]) await database.close();
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

await run();
