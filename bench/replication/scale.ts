// What replication costs and how far it goes, of one database on one nats-server: `npm run bench:replication:scale`.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { parseArgs } from 'node:util';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MemorySnapshotStore, replicate } from '@mangrove-kv/replication';
import type { Replication } from '@mangrove-kv/replication';
import { natsLog } from '@mangrove-kv/replication-nats';
import { createStreams } from '@mangrove-kv/replication-nats/admin';
import { Cluster } from '../../bindings-js/replication/test-servers/support/nats.ts';

const { values } = parseArgs({
  options: {
    commits: { type: 'string', default: '300' },
    records: { type: 'string', default: '100000' },
    entries: { type: 'string', default: '1000000' },
    clients: { type: 'string', default: '1000' },
  },
});
const [commits, records, entries, clients] = [values.commits, values.records, values.entries, values.clients].map(
  Number,
) as [number, number, number, number];

const directory = mkdtempSync(join(tmpdir(), 'mangrove-bench-scale-'));
const cluster = await Cluster.start({ nodes: 1 });
await createStreams({ servers: cluster.servers, replicas: 1, timeout: 2000 });
const snapshots = new MemorySnapshotStore();
const document = (number: number): object => ({ title: `note ${number}`, text: 'x'.repeat(50), done: false, number });
const median = (numbers: readonly number[]): number =>
  [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] as number;
const row = (what: string, figure: string): void => void process.stdout.write(`| ${what} | ${figure} |\n`);
const perSecond = (count: number, milliseconds: number): string =>
  `${Math.round((count / milliseconds) * 1000).toLocaleString('en')} /s`;

interface Device {
  readonly db: Database;
  readonly replication: Replication;
}

async function start(name: string, database: string): Promise<Device> {
  const db = await open(join(directory, name), { feed: true, durability: 'relaxed' });
  return {
    db,
    replication: await replicate(db, {
      log: natsLog({ servers: cluster.servers, database, device: name }),
      snapshots,
      collections: { notes: {} },
    }),
  };
}

async function stop({ db, replication }: Device): Promise<void> {
  await replication.close();
  await db.close();
}

/** Milliseconds until a new device has everything. */
async function catchUp(name: string, database: string, count: number): Promise<number> {
  const begin = performance.now();
  const device = await start(name, database);
  while ((await device.db.collection('notes').size) < count) await new Promise((resolve) => setTimeout(resolve, 5));
  const milliseconds = performance.now() - begin;
  await stop(device);
  return milliseconds;
}

/** Milliseconds of each commit, and the longest time in which the thread did nothing else. */
async function commitTimes(
  db: Database,
  durability: 'strict' | 'relaxed',
  prefix: string,
): Promise<{ times: number[]; longestTurn: number }> {
  const notes = db.collection<string, object>('notes');
  const times: number[] = [];
  let [longestTurn, last] = [0, performance.now()];
  const turn = (): void => {
    const now = performance.now();
    longestTurn = Math.max(longestTurn, now - last);
    last = now;
    ticking = setImmediate(turn);
  };
  let ticking = setImmediate(turn);
  for (let number = 0; number < commits; number++) {
    const begin = performance.now();
    await notes.set(`${prefix}${number}`, document(number), { durability });
    times.push(performance.now() - begin);
  }
  clearImmediate(ticking);
  return { times, longestTurn };
}

process.stdout.write('| | |\n|---|--:|\n');

const off = await open(join(directory, 'off'), { feed: true });
const on = await start('on', 'commits');
for (const durability of ['strict', 'relaxed'] as const) {
  const times: [number[], number[]] = [[], []];
  const turns: [number[], number[]] = [[], []];
  for (let round = 0; round < 6; round++) {
    const found = [
      await commitTimes(off, durability, `${durability}${round}/`),
      await commitTimes(on.db, durability, `${durability}${round}/`),
    ] as const;
    for (const at of [0, 1] as const) {
      // The first one warms up.
      if (round > 0) times[at].push(...found[at].times);
      turns[at].push(found[at].longestTurn);
    }
    await on.replication.flush();
  }
  const [without, withSync] = times.map(median) as [number, number];
  const both = (what: string, of: (at: 0 | 1) => number): void =>
    row(`${what} without replication, and with it`, `${of(0).toFixed(1)} ms, ${of(1).toFixed(1)} ms`);
  row(
    `a ${durability} commit without replication, and with it; ratio of rates`,
    `${without.toFixed(3)} ms, ${withSync.toFixed(3)} ms; ${(without / withSync).toFixed(2)}`,
  );
  both(`the longest ${durability} commit`, (at) => Math.max(...times[at]));
  // Relaxed commits wait for nothing: the package lets others have their turn every 8 ms.
  if (durability === 'relaxed') continue;
  both('the longest turn of the event loop in the first round of them', (at) => turns[at][0] as number);
  both('the longest turn of the event loop in a later round, median,', (at) => median(turns[at].slice(1)));
}
await off.close();
await stop(on);

const writer = await start('writer', 'log');
const notes = writer.db.collection<number, object>('notes');
let begin = performance.now();
for (let number = 0; number < records; number += 100)
  await Promise.all(Array.from({ length: 100 }, (_, at) => notes.set(number + at, document(number + at))));
await writer.replication.flush();
row(
  `${records.toLocaleString('en')} commits of one entry, made and sent`,
  perSecond(records, performance.now() - begin),
);
row('a new device reads them from the log', perSecond(records, await catchUp('from-log', 'log', records)));
await stop(writer);

const filler = await start('filler', 'snapshot');
const many = filler.db.collection<number, object>('notes');
begin = performance.now();
for (let number = 0; number < entries; number += 10_000)
  await many.setMany(
    Array.from(
      { length: Math.min(10_000, entries - number) },
      (_, at) => [number + at, document(number + at)] as const,
    ),
  );
await filler.replication.flush();
row(
  `${entries.toLocaleString('en')} entries in commits of 10,000, made and sent`,
  perSecond(entries, performance.now() - begin),
);
for (let round = 0; round < 2; round++) {
  await many.set(-1 - round, document(0));
  begin = performance.now();
  await filler.replication.compact();
}
row('a snapshot of them', perSecond(entries, performance.now() - begin));
row('a new device reads the snapshot', perSecond(entries, await catchUp('from-snapshot', 'snapshot', entries + 2)));
await stop(filler);

const idle = Array.from({ length: clients }, (_, at) =>
  natsLog({ servers: cluster.servers, database: 'idle', device: `idle${at}`, timeout: 60_000 }),
);
let woken = 0;
const awake = new Set<number>();
const ends = idle.map((log, at) => log.wake(() => awake.add(at)));
await Promise.all(idle.map((log) => log.manifest()));
await new Promise((resolve) => setTimeout(resolve, 2000));
awake.clear();
begin = performance.now();
const writing = natsLog({ servers: cluster.servers, database: 'idle', device: 'writing' });
await writing.append(new Uint8Array(100), { idempotencyKey: 'writing:1' });
while (awake.size < clients && performance.now() - begin < 30_000)
  await new Promise((resolve) => setTimeout(resolve, 5));
woken = awake.size;
row(
  `${clients.toLocaleString('en')} idle clients, of which a record wakes`,
  `${woken.toLocaleString('en')} in ${Math.round(performance.now() - begin)} ms`,
);
for (const end of ends) end();
await Promise.all([...idle, writing].map((log) => log.close()));

await cluster.stop();
rmSync(directory, { recursive: true, force: true });
process.exit(0);
