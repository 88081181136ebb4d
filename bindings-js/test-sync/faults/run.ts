// Lets servers fail while devices write, and checks what is left:
//
//     npm run sync:faults -- --seconds 60 --seed 1
//
// `--old` starts nats-server 2.9.10, which loses records: a harness that finds nothing there has no
// teeth. Exits with 1 if something that was acknowledged is lost, a record is there twice, readers
// disagree, or a condition did not hold.
import process from 'node:process';
import { parseArgs } from 'node:util';
import { wsconnect } from '@nats-io/nats-core';
import type { ConnectionOptions, NatsConnection } from '@nats-io/nats-core';
import { createStreams } from '../../src/sync/nats/admin.ts';
import { natsLog } from '../../src/sync/nats/index.ts';
import type { LoggedRecord, Position, RemoteLog } from '../../src/sync/remote-log.ts';
import { textOf } from '../support/log-contract.ts';
import { Cluster } from '../support/nats.ts';
import { strictWriter, writer } from './devices.ts';
import type { Device, Ledger } from './devices.ts';
import { FAULTS } from './faults.ts';
import { Random } from './random.ts';

const { values } = parseArgs({ options: {
  seconds: { type: 'string', default: '60' },
  seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  old: { type: 'boolean', default: false },
  /** Only these, separated by commas. */
  faults: { type: 'string', default: Object.keys(FAULTS).join() },
  verbose: { type: 'boolean', default: false },
} });
const seconds = Number(values.seconds);
const seed = Number(values.seed);
const random = new Random(seed);

const DATABASE = 'faults';
const TIMEOUT = 3000;
/** How long the servers have to recover at the end, in milliseconds. */
const RECOVERY = 120_000;

/** Says that the server is new enough, as the driver would refuse it. */
async function connectToAny(options: ConnectionOptions): Promise<NatsConnection> {
  const connection = await wsconnect(options);
  const info = connection.info;
  Object.defineProperty(connection, 'info', { get: () => ({ ...info, version: '2.15.2' }) });
  return connection;
}

const connect = values.old ? connectToAny : wsconnect;
const say = (line: string): void => {
  if (values.verbose) process.stderr.write(`${new Date().toISOString().slice(11, 23)} ${line}\n`);
};
const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

interface Acknowledgement {
  readonly position: Position;
  readonly after: Position | undefined;
}

class Book implements Ledger {
  readonly entries = new Map<string, Acknowledgement>();
  readonly times: number[] = [];
  readonly failures = new Map<string, number>();

  acknowledged(key: string, position: Position, milliseconds: number, after?: Position): void {
    this.entries.set(key, { position, after });
    this.times.push(milliseconds);
  }

  failed(code: string, error: unknown): void {
    say(String(error));
    this.failures.set(code, (this.failures.get(code) ?? 0) + 1);
  }
}

/** Reads everything by one server, as often as it takes until it has all that is expected, or has no more after some time. */
async function readBy(server: string, newest: Position): Promise<readonly LoggedRecord[]> {
  const log = natsLog({ servers: server, database: DATABASE, device: 'reader', timeout: TIMEOUT, connect });
  try {
    const records: LoggedRecord[] = [];
    for (const end = Date.now() + RECOVERY; ;) {
      try {
        const more = await log.read(records.at(-1)?.position ?? 0, 1000);
        records.push(...more);
        if (more.length === 0 && ((records.at(-1)?.position ?? 0) >= newest || Date.now() > end)) return records;
        if (more.length === 0) await pause(500);
      } catch (error) {
        if (Date.now() > end) throw error;
        await pause(500);
      }
    }
  } finally {
    await log.close();
  }
}

/** What is wrong. */
function check(book: Book, readings: readonly (readonly LoggedRecord[])[]): string[] {
  const wrong: string[] = [];
  const [records = []] = readings;
  const texts = readings.map((reading) => reading.map(({ position, record }) => `${position} ${textOf(record)}`).join('\n'));
  if (new Set(texts).size > 1) wrong.push(`readers disagree: ${readings.map((reading) => reading.length).join(', ')} records`);
  const placeOf = new Map<string, number>();
  for (const [at, { record }] of records.entries()) {
    const key = textOf(record);
    if (placeOf.has(key)) wrong.push(`${key} is there twice`);
    placeOf.set(key, at);
  }
  for (const [key, { position, after }] of book.entries) {
    const at = placeOf.get(key);
    if (at === undefined) wrong.push(`${key} is lost: it was acknowledged at ${position}`);
    else if (records[at]?.position !== position) wrong.push(`${key} was acknowledged at ${position} and is at ${records[at]?.position}`);
    else if (after !== undefined && (records[at - 1]?.position ?? 0) !== after) wrong.push(`${key} was appended after ${after} and is after ${records[at - 1]?.position}`);
  }
  const last = new Map<string, number>();
  for (const { record } of records) {
    const [device = '', seq] = textOf(record).split(':');
    if (Number(seq) <= (last.get(device) ?? 0)) wrong.push(`${textOf(record)} comes after ${last.get(device)}`);
    last.set(device, Number(seq));
  }
  return wrong;
}

const cluster = await Cluster.start({ nodes: 3, isOld: values.old });
let status = 0;
try {
  await createStreams({ servers: cluster.servers, replicas: 3, timeout: 2000, connect });
  const book = new Book();
  let isOver = false;
  // The old server does not know conditions on the records of all devices.
  const devices: readonly (readonly [string, Device])[] = [['a', writer], ['b', writer], ['c', writer], ['d', writer], ...(values.old ? [] : [['s', strictWriter] as const])];
  const logs: RemoteLog[] = [];
  const running = devices.map(([name, device]) => {
    const log = natsLog({ servers: cluster.servers, database: DATABASE, device: name, timeout: TIMEOUT, connect });
    logs.push(log);
    return device({ name, log, ledger: book, isOver: () => isOver });
  });
  const failed = Promise.all(running);
  failed.catch(() => {
    isOver = true;
  });
  const counts = new Map<string, number>();
  for (const end = Date.now() + seconds * 1000; Date.now() < end && !isOver;) {
    await pause(random.between(500, 3000));
    const name = random.of(values.faults.split(','));
    counts.set(name, (counts.get(name) ?? 0) + 1);
    say(`${name}, ${book.entries.size} acknowledged`);
    await FAULTS[name]?.(cluster, random);
  }
  isOver = true;
  await failed;
  await Promise.all(logs.map((log) => log.close()));
  say('everything runs again; reading');
  for (const node of cluster.nodes) if (!node.isRunning) await node.start();
  const newest = Math.max(0, ...[...book.entries.values()].map(({ position }) => position));
  const readings = await Promise.all(cluster.servers.map((server) => readBy(server, newest)));
  const wrong = check(book, readings);
  for (const line of wrong.slice(0, 20)) process.stdout.write(`${line}\n`);
  const times = book.times.sort((a, b) => a - b);
  const strict = [...book.entries.values()].filter(({ after }) => after !== undefined).length;
  process.stdout.write(`seed ${seed}: ${seconds} s, ${[...counts.values()].reduce((sum, count) => sum + count, 0)} faults (${[...counts].map(([name, count]) => `${name} ${count}`).join(', ')}), `
    + `${book.entries.size} acknowledged, of which ${strict} with a condition, ${readings[0]?.length} in the log, ${book.failures.get('KV_LOG_UNAVAILABLE') ?? 0} times unavailable, `
    + `${book.failures.get('KV_LOG_CONFLICT') ?? 0} conflicts, longest wait ${((times.at(-1) ?? 0) / 1000).toFixed(1)} s, ${wrong.filter((line) => line.includes('is lost')).length} lost, ${wrong.length} errors\n`);
  // Without this a run in which nothing worked would pass.
  if (book.entries.size < 100) process.stdout.write('too few records were acknowledged to say anything\n');
  if (wrong.length > 0 || book.entries.size < 100) status = 1;
} finally {
  await cluster.stop();
}
process.exit(status);
