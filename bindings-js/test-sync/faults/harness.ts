// Lets servers fail while devices write, disturbs the devices as well, and checks what is left.
// tests-e2e/sync-faults/run.ts is its command line; docs/TESTING.md describes it.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { wsconnect } from '@nats-io/nats-core';
import { DEVICE_API, accountsConfig, adminCredentials, createAuthority, createStreams, deviceCredentials } from '../../src/sync/nats/admin.ts';
import { natsLog } from '../../src/sync/nats/index.ts';
import type { LoggedRecord, Position, RemoteLog } from '../../src/sync/remote-log.ts';
import { textOf } from '../support/log-contract.ts';
import { Cluster } from '../support/nats.ts';
import { connectToAny } from './any-version.ts';
import { strictWriter, writer } from './devices.ts';
import type { Device, Ledger } from './devices.ts';
import { FAULTS } from './faults.ts';
import { ProcessDevice, compileProcess, pause } from './fleet.ts';
import type { FleetDevice, FleetOptions } from './fleet.ts';
import { Promises } from './promises.ts';
import { Random } from './random.ts';
import { DATABASE as FLEET } from './replica.ts';

export interface FaultsOptions {
  readonly seconds: number;
  readonly seed: number;
  /** Starts nats-server 2.9.10. */
  readonly isOld: boolean;
  /** Names of faults of servers. */
  readonly faults: readonly string[];
  /** How many devices are processes. */
  readonly processes: number;
  /** Starts the devices that are tabs. */
  readonly startTabs: (fleet: FleetOptions) => Promise<readonly FleetDevice[]>;
  readonly isVerbose: boolean;
}

const DATABASE = 'faults';
const TIMEOUT = 3000;
/** How long everything has to recover at the end, in milliseconds: also on a machine that does other things. */
const RECOVERY = 300_000;

interface Acknowledgement {
  readonly position: Position;
  readonly after: Position | undefined;
}

class Book implements Ledger {
  readonly #say: (line: string) => void;
  readonly entries = new Map<string, Acknowledgement>();
  readonly times: number[] = [];
  readonly failures = new Map<string, number>();

  constructor(say: (line: string) => void) {
    this.#say = say;
  }

  acknowledged(key: string, position: Position, milliseconds: number, after?: Position): void {
    this.entries.set(key, { position, after });
    this.times.push(milliseconds);
  }

  failed(code: string, error: unknown): void {
    this.#say(String(error));
    this.failures.set(code, (this.failures.get(code) ?? 0) + 1);
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

/** Reads everything by one server, as often as it takes until it has all that is expected. */
async function readBy(log: RemoteLog, newest: Position): Promise<readonly LoggedRecord[]> {
  try {
    const records: LoggedRecord[] = [];
    for (const end = performance.now() + RECOVERY; ;) {
      try {
        const more = await log.read(records.at(-1)?.position ?? 0, 1000);
        records.push(...more);
        if (more.length === 0 && ((records.at(-1)?.position ?? 0) >= newest || performance.now() > end)) return records;
        if (more.length === 0) await pause(500);
      } catch (error) {
        if (performance.now() > end) throw error;
        await pause(500);
      }
    }
  } finally {
    await log.close();
  }
}

/** Rejects if something takes longer than everything has to recover. */
async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} takes more than ${RECOVERY / 1000} s`)), RECOVERY);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Resolves to the digest that all devices have. */
async function agree(devices: readonly FleetDevice[], isEnough: () => Promise<boolean> = async () => true): Promise<string> {
  for (const end = performance.now() + RECOVERY; ;) {
    const digests = await Promise.all(devices.map((device) => device.call('digest')));
    if (new Set(digests).size === 1 && await isEnough()) return digests[0] as string;
    if (performance.now() > end) {
      const states = await Promise.all(devices.map((device) => device.call('state')));
      throw new Error(`digests differ: ${devices.map(({ name }, at) => `${name} ${digests[at]?.slice(0, 8)} (${states[at]})`).join('; ')}`);
    }
    await pause(500);
  }
}

/** Disturbs one device after another until it is over. */
async function disturb(devices: readonly FleetDevice[], random: Random, counts: Map<string, number>, say: (line: string) => void, isOver: () => boolean): Promise<void> {
  await Promise.all(devices.map(async (device) => {
    for (;;) {
      await pause(random.between(4000, 20_000));
      if (isOver()) return;
      const what = await device.disturb();
      counts.set(what, (counts.get(what) ?? 0) + 1);
      say(`${device.name}: ${what}`);
    }
  }));
}

/** What is wrong with devices once servers answer again. */
async function settle(devices: FleetDevice[], promises: Promises, fleet: FleetOptions): Promise<void> {
  const { say } = fleet;
  await within('halting the devices', Promise.all(devices.map((device) => device.call('halt'))));
  say('devices have stopped writing');
  await within('sending what is pending', Promise.all(devices.map((device) => device.call('flush'))));
  say('everything is sent');
  await agree(devices);
  // Whoever knows a value replaces it, whatever the clocks say.
  for (const [at, device] of devices.entries()) {
    await within('overwriting', device.call('overwrite', 'shared/0', `last ${at}`));
    await agree(devices, async () => {
      const { notes } = await device.call('content');
      return notes.some(([key, value]) => key === 'shared/0' && value === `last ${at}`);
    });
  }
  const fresh = await ProcessDevice.start('fresh', fleet);
  devices.push(fresh);
  await agree(devices);
  say('all devices agree, a new one, too');
  promises.wrong.push(...promises.check(await fresh.call('content')));
  for (const device of devices) {
    const problems = await device.call('problems');
    if (problems > 0) promises.wrong.push(`${device.name}: its database has ${problems} problems`);
  }
}

const list = (counts: Map<string, number>): string => [...counts].map(([name, count]) => `${name} ${count}`).join(', ');
const sum = (counts: Map<string, number>): number => [...counts.values()].reduce((total, count) => total + count, 0);

/** Resolves to what is wrong, and prints one line of figures at the end. */
export async function runFaults(given: FaultsOptions): Promise<readonly string[]> {
  const { seconds, seed, isOld, faults, isVerbose } = given;
  const random = new Random(seed);
  // Of its own, as devices and servers do not take turns in an order that a seed determines.
  const deviceRandom = new Random(seed + 1_000_003);
  const say = (line: string): void => {
    if (isVerbose) process.stderr.write(`${new Date().toISOString().slice(11, 23)} ${line}\n`);
  };
  const connect = isOld ? connectToAny : wsconnect;
  const authority = createAuthority();
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-sync-faults-'));
  const program = await compileProcess();
  const cluster = await Cluster.start({ nodes: 3, isOld, accounts: await accountsConfig(authority) });
  const { servers } = cluster;
  const promises = new Promises();
  const devices: FleetDevice[] = [];
  const book = new Book(say);
  const signer = authority.devices;
  const open = (device: string, at: readonly string[] = servers): RemoteLog => natsLog({
    servers: at, database: DATABASE, device, timeout: TIMEOUT, connect, apiPrefix: DEVICE_API,
    credentials: () => deviceCredentials({ signer, database: DATABASE, device, expiresIn: 10 + Math.random() * 50 }),
  });
  let expired = 0;
  const fleet: FleetOptions = {
    servers, apiPrefix: DEVICE_API, timeout: TIMEOUT, isOld, program, directory, random: deviceRandom, say,
    tell: (device, told) => {
      if (told.type === 'error') say(`${device}: ${told.code}, ${told.message}`);
      promises.tell(device, told);
    },
    credentials: async (device) => {
      const chance = Math.random();
      if (chance < 0.1) return undefined;
      const isExpired = chance < 0.25;
      const found = await deviceCredentials({ signer, database: FLEET, device, expiresIn: isExpired ? 1 : 5 + Math.random() * 40 });
      // Of a server whose answer was on its way for too long.
      if (isExpired) {
        expired++;
        await pause(2000);
      }
      return found;
    },
  };
  try {
    await createStreams({ servers, replicas: 3, timeout: 2000, connect, credentials: await adminCredentials({ signer: authority.streams, expiresIn: 600 }) });
    // One by one: each needs a processor for a second.
    for (let nth = 0; nth < given.processes; nth++) devices.push(await ProcessDevice.start(`p${nth}`, fleet));
    devices.push(...await given.startTabs(fleet));
    say(`${devices.length} devices have started`);
    await Promise.all(devices.map((device) => device.call('write')));
    let isOver = false;
    // The old server does not know conditions on the records of all devices.
    const writers: readonly (readonly [string, Device])[] = [['a', writer], ['b', writer], ['c', writer], ['d', writer], ...(isOld ? [] : [['s', strictWriter] as const])];
    const logs: RemoteLog[] = [];
    const deviceCounts = new Map<string, number>();
    const failed = Promise.all([
      ...writers.map(([name, device]) => {
        const log = open(name);
        logs.push(log);
        return device({ name, log, ledger: book, isOver: () => isOver });
      }),
      disturb(devices, deviceRandom, deviceCounts, say, () => isOver),
    ]);
    failed.catch(() => {
      isOver = true;
    });
    const counts = new Map<string, number>();
    for (const end = performance.now() + seconds * 1000; performance.now() < end && !isOver;) {
      await pause(random.between(500, 3000));
      const name = random.of(faults);
      counts.set(name, (counts.get(name) ?? 0) + 1);
      say(`${name}; ${book.entries.size} records acknowledged, ${promises.commits} commits`);
      await FAULTS[name]?.(cluster, random);
    }
    isOver = true;
    await failed;
    await Promise.all(logs.map((log) => log.close()));
    say('everything runs again');
    for (const node of cluster.nodes) if (!node.isRunning) await node.start();
    const newest = Math.max(0, ...[...book.entries.values()].map(({ position }) => position));
    const readings = await Promise.all(servers.map((server) => readBy(open('reader', [server]), newest)));
    const wrong = check(book, readings);
    await settle(devices, promises, fleet).catch((error: unknown) => promises.wrong.push(String(error)));
    wrong.push(...promises.wrong);
    // Without this a run in which nothing worked would pass.
    if (book.entries.size < 100) wrong.push(`only ${book.entries.size} records were acknowledged`);
    if (devices.length > 0 && promises.commits < 100) wrong.push(`devices made only ${promises.commits} commits`);
    for (const line of wrong.slice(0, 20)) process.stdout.write(`${line}\n`);
    const times = book.times.sort((a, b) => a - b);
    const strict = [...book.entries.values()].filter(({ after }) => after !== undefined).length;
    process.stdout.write(`seed ${seed}: ${seconds} s; ${sum(counts)} faults of servers (${list(counts)}); ${sum(deviceCounts)} of devices (${list(deviceCounts)}), ${expired} expired tokens; `
      + `log: ${book.entries.size} acknowledged, ${strict} with a condition, ${book.failures.get('KV_LOG_UNAVAILABLE') ?? 0} times unavailable, `
      + `${book.failures.get('KV_LOG_REFUSED') ?? 0} refused, ${book.failures.get('KV_LOG_CONFLICT') ?? 0} conflicts, longest wait ${((times.at(-1) ?? 0) / 1000).toFixed(1)} s; `
      + `databases: ${promises.commits} commits, ${promises.strict} strict; ${wrong.filter((line) => line.includes('is lost')).length} lost, ${wrong.length} errors\n`);
    return wrong;
  } finally {
    await Promise.all(devices.map((device) => device.end().catch(() => undefined)));
    await cluster.stop();
    rmSync(program);
    rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}
