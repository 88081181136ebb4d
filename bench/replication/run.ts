// Two devices and a server on loopback, Mangrove beside PouchDB and RxDB: `npm run bench:replication`.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { parseArgs } from 'node:util';
import { startMangrove } from './mangrove.ts';
import type { Device, Peer } from './peer.ts';
import { startPouchDB } from './pouchdb.ts';
import { startRxDB, startRxDBWebSocket } from './rxdb.ts';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    commits: { type: 'string', default: '300' },
    entries: { type: 'string', default: '20000' },
  },
});
const [rounds, commits, entries] = [options.rounds, options.commits, options.entries].map(Number) as [
  number,
  number,
  number,
];

const PEERS = {
  'Mangrove': (directory: string) => startMangrove(directory, 'fs'),
  'PouchDB': startPouchDB,
  'Mangrove in memory': (directory: string) => startMangrove(directory, 'memory'),
  'RxDB over NATS, in memory': startRxDB,
  'RxDB over WebSocket, in memory': startRxDBWebSocket,
};
/** What is compared with what. */
const GROUPS = [
  ['Mangrove', 'PouchDB'],
  ['Mangrove in memory', 'RxDB over NATS, in memory', 'RxDB over WebSocket, in memory'],
] as const;
/** Unit of each row, and whether more is better. */
const ROWS = {
  'local puts, one by one, replication off': ['/s', true],
  'local puts, one by one, replication on': ['/s', true],
  'from a commit to an event on another device: median': ['ms', false],
  'from a commit to an event on another device: 99th percentile': ['ms', false],
  'bytes on the wire per small commit, both ways, with two devices': ['', false],
  'entries stored and sent': ['/s', true],
  'entries that a new device catches up with': ['/s', true],
} as const;
type Row = keyof typeof ROWS;
type Figures = Map<Row, number[]>;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const document = (number: number): object => ({ title: `note ${number}`, text: 'x'.repeat(100), done: false, number });
const at = (sorted: readonly number[], share: number): number =>
  sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)] as number;
const median = (numbers: readonly number[]): number =>
  numbers.length === 0
    ? NaN
    : at(
        [...numbers].sort((a, b) => a - b),
        0.5,
      );

async function rateOf(count: number, work: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await work();
  return (count / (performance.now() - start)) * 1000;
}

async function puts(device: Device, prefix: string): Promise<number> {
  return rateOf(commits, async () => {
    for (let number = 0; number < commits; number++) await device.put(`${prefix}${number}`, document(number));
  });
}

/** Milliseconds after which a device that has not caught up is given up. */
const PATIENCE = 60_000;

/** Resolves to whether it became true. */
async function until(isTrue: () => Promise<boolean>): Promise<boolean> {
  for (let end = Date.now() + PATIENCE; !(await isTrue()); await pause(2)) if (Date.now() > end) return false;
  return true;
}

async function measure(peer: Peer, figures: Figures): Promise<void> {
  const add = (row: Row, figure: number): void => void figures.set(row, [...(figures.get(row) ?? []), figure]);
  const local = await peer.device('local', { replicates: false });
  await puts(local, 'warm');
  add('local puts, one by one, replication off', await puts(local, 'local'));
  await local.close();

  const [first, second] = [
    await peer.device('first', { replicates: true }),
    await peer.device('second', { replicates: true }),
  ];
  const seen = new Map<string, () => void>();
  second.watch((key) => seen.get(key)?.());
  const travel = async (key: string, number: number): Promise<number> => {
    const arrived = new Promise<void>((resolve) => seen.set(key, resolve));
    const start = performance.now();
    await first.put(key, document(number));
    await arrived;
    return performance.now() - start;
  };
  for (let number = 0; number < 20; number++) await travel(`warm${number}`, number);
  await pause(300);
  const bytes = peer.bytes();
  const times: number[] = [];
  for (let number = 0; number < commits; number++) {
    times.push(await travel(`travel${number}`, number));
    await pause(5);
  }
  await pause(300);
  add('bytes on the wire per small commit, both ways, with two devices', (peer.bytes() - bytes) / commits);
  times.sort((a, b) => a - b);
  add('from a commit to an event on another device: median', at(times, 0.5));
  add('from a commit to an event on another device: 99th percentile', at(times, 0.99));
  add('local puts, one by one, replication on', await puts(first, 'on'));
  await first.settle();
  if (!(await until(async () => (await second.count()) === (await first.count()))))
    throw new Error('the devices do not become equal');
  await second.close();

  add(
    'entries stored and sent',
    await rateOf(entries, () =>
      first.putAll(Array.from({ length: entries }, (_, number) => [`entry${number}`, document(number)] as const)),
    ),
  );
  const total = await first.count();
  await first.close();
  let newest: Device | undefined;
  let isEqual = false;
  const rate = await rateOf(total, async () => {
    const device = (newest = await peer.device('newest', { replicates: true }));
    isEqual = await until(async () => (await device.count()) >= total);
  });
  if (isEqual) add('entries that a new device catches up with', rate);
  await newest?.close();
}

const all = new Map(Object.keys(PEERS).map((name) => [name, new Map() as Figures]));
for (let round = 0; round < rounds; round++) {
  for (const [name, start] of Object.entries(PEERS)) {
    const directory = mkdtempSync(join(tmpdir(), 'mangrove-bench-replication-'));
    const peer = await start(directory);
    await measure(peer, all.get(name) as Figures);
    await peer.stop();
    rmSync(directory, { recursive: true, force: true });
    process.stderr.write(`round ${round + 1} of ${rounds}: ${name}\n`);
  }
}
const shown = (figure: number, unit: string): string =>
  Number.isNaN(figure)
    ? '–'
    : `${figure >= 100 ? Math.round(figure).toLocaleString('en') : figure.toPrecision(3)}${unit === '' ? '' : ` ${unit}`}`;
const head = GROUPS.flatMap(([ours, ...theirs]) => [ours, ...theirs.flatMap((name) => [name, 'ratio'])]);
process.stdout.write(`| | ${head.join(' | ')} |\n|---|${'--:|'.repeat(head.length)}\n`);
for (const [row, [unit, isMore]] of Object.entries(ROWS) as [Row, readonly [string, boolean]][]) {
  const figureOf = (name: string): number => median(all.get(name)?.get(row) ?? []);
  const cells = GROUPS.flatMap(([name, ...others]) => {
    const ours = figureOf(name);
    return [
      shown(ours, unit),
      ...others
        .map(figureOf)
        .flatMap((theirs) => [
          shown(theirs, unit),
          Number.isNaN(theirs) ? '–' : (isMore ? ours / theirs : theirs / ours).toPrecision(3),
        ]),
    ];
  });
  process.stdout.write(`| ${row} | ${cells.join(' | ')} |\n`);
}
process.exit(0);
