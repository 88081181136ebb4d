// Lets servers fail while devices write, disturbs the devices as well, and checks what is left.
// tests-e2e/replication-faults/run.ts is its command line; docs/TESTING.md describes it.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { wsconnect } from '@nats-io/nats-core';
import type { NatsCredentials } from '../../../replication-nats/src/index.ts';
import type { LoggedRecord, Position, RemoteLog } from '../../src/remote-log.ts';
import { textOf } from '../support/log-contract.ts';
import { connectToAny } from './any-version.ts';
import { strictWriter, writer } from './devices.ts';
import type { Device, Ledger } from './devices.ts';
import { ProcessDevice, compileProcess } from './fleet.ts';
import type { FleetDevice, FleetOptions } from './fleet.ts';
import { forgeRecords } from './forger.ts';
import { startNats } from './nats-world.ts';
import { Promises } from './promises.ts';
import { Random } from './random.ts';
import { DATABASE as FLEET } from './replica.ts';
import type { Mistake } from './replica.ts';
import { startS3 } from './s3-world.ts';
import { Waits } from './waits.ts';
import { inTime, openLog, pause } from './world.ts';
import type { LogAccess, LogAddress } from './world.ts';

export interface FaultsOptions {
  readonly seconds: number;
  readonly seed: number;
  /** The log is in a bucket. */
  readonly isS3: boolean;
  /** Starts nats-server 2.9.10. */
  readonly isOld: boolean;
  /** Devices seal what they send, and the servers lie. */
  readonly isSealed: boolean;
  /** The servers lose what they have acknowledged. */
  readonly areLosses: boolean;
  /** What one device does wrong. */
  readonly mistake: Mistake | undefined;
  /** Names of faults of servers; undefined: all. */
  readonly faults: readonly string[] | undefined;
  /** How many devices are processes. */
  readonly processes: number;
  /** Starts the devices that are tabs. */
  readonly startTabs: (fleet: FleetOptions) => Promise<readonly FleetDevice[]>;
  readonly isVerbose: boolean;
}

const DATABASE = 'faults';
/** How long each step at the end may take, in milliseconds: also on a machine that does other things. */
const RECOVERY = 240_000;
/** After so many milliseconds of a step this tells what devices wait for. */
const PATIENCE = 120_000;
/** After so many milliseconds without a change, devices that differ do not come together any more; they look at the log every 30 seconds at least. */
const STANDSTILL = 90_000;
/** How long a device has to tell what it waits for, in milliseconds. */
const ANSWER = 10_000;

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
  const texts = readings.map((reading) =>
    reading.map(({ position, record }) => `${position} ${textOf(record)}`).join('\n'),
  );
  if (new Set(texts).size > 1)
    wrong.push(`readers disagree: ${readings.map((reading) => reading.length).join(', ')} records`);
  const placeOf = new Map<string, number>();
  for (const [at, { record }] of records.entries()) {
    const key = textOf(record);
    if (placeOf.has(key)) wrong.push(`${key} is there twice`);
    placeOf.set(key, at);
  }
  const keysBy = readings.map((reading) => new Set(reading.map(({ record }) => textOf(record))));
  for (const [key, { position, after }] of book.entries) {
    const at = placeOf.get(key);
    const without = keysBy.flatMap((keys, server) => (keys.has(key) ? [] : [server]));
    if (at === undefined || without.length > 0)
      wrong.push(`${key} is lost: it was acknowledged at ${position}; not on n${without.join(', n')}`);
    else if (records[at]?.position !== position)
      wrong.push(`${key} was acknowledged at ${position} and is at ${records[at]?.position}`);
    else if (after !== undefined && (records[at - 1]?.position ?? 0) !== after)
      wrong.push(`${key} was appended after ${after} and is after ${records[at - 1]?.position}`);
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
    for (const end = performance.now() + RECOVERY / 2; ; ) {
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

/** Waits for a step at the end. If that takes long, it tells what devices wait for, and then rejects. */
type Step = <T>(what: string, promise: Promise<T>) => Promise<T>;

/** What the devices wait for, and how far they and the log are. */
async function report(devices: readonly FleetDevice[], writers: Waits, log: RemoteLog): Promise<string> {
  const answer = (promise: Promise<unknown>): Promise<string> =>
    inTime('answering', promise, ANSWER).then(String, (error: unknown) => String(error));
  const lines = devices.map(async (device) => {
    const [entries, base, states] = await Promise.all([
      answer(device.call('digest')),
      answer(device.call('base')),
      answer(device.states().then((all) => all.join('; '))),
    ]);
    return `${device.name}: ${states}, entries ${entries.slice(0, 8)}, digests ${base}; the harness waits for ${device.waits}`;
  });
  const end = async (): Promise<Position> => {
    let position = 0;
    for (let records = await log.read(0, 1000); records.length > 0; records = await log.read(position, 1000))
      position = records.at(-1)?.position as Position;
    return position;
  };
  return [...(await Promise.all(lines)), `writers: ${writers}`, `the log's newest record: ${await answer(end())}`].join(
    '\n',
  );
}

function stepOf(devices: readonly FleetDevice[], writers: Waits, open: () => RemoteLog): Step {
  return async (what, promise) => {
    const tell = async (): Promise<void> => {
      const log = open();
      process.stderr.write(`${what} takes more than ${PATIENCE / 1000} s:\n${await report(devices, writers, log)}\n`);
      await log.close();
    };
    const timer = setTimeout(() => void tell(), PATIENCE);
    return inTime(what, promise, RECOVERY).finally(() => clearTimeout(timer));
  };
}

/** Entries of which devices have something else than the last one. */
async function differences(devices: readonly FleetDevice[]): Promise<string> {
  const contents = await Promise.all(
    devices.map(async (device) => {
      const { notes, counted } = await device.call('content');
      return new Map([...notes, ...counted]);
    }),
  );
  const last = contents.at(-1) ?? new Map<string, unknown>();
  return devices
    .flatMap(({ name }, at) => {
      const own = contents[at] ?? new Map<string, unknown>();
      const keys = [...new Set([...own.keys(), ...last.keys()])].filter((key) => own.get(key) !== last.get(key));
      return keys
        .slice(0, 20)
        .map((key) => `${name}: ${key} is ${String(own.get(key))} instead of ${String(last.get(key))}`);
    })
    .join('\n');
}

/**
 * Resolves once all devices have the same entries and, what is computed in another way, the same digests
 * of their bases. Rejects if they differ and nothing changes any more.
 */
async function agree(
  devices: readonly FleetDevice[],
  isEnough: () => Promise<boolean> = async () => true,
): Promise<void> {
  for (let [last, since] = ['', performance.now()]; ; ) {
    const [entries, bases] = (await Promise.all(
      (['digest', 'base'] as const).map((what) => Promise.all(devices.map((device) => device.call(what)))),
    )) as [string[], string[]];
    if (new Set(entries).size === 1 && new Set(bases).size === 1 && (await isEnough())) return;
    const now = devices
      .map(({ name }, at) => `${name}: entries ${entries[at]?.slice(0, 8)}, digests ${bases[at]}`)
      .join('; ');
    if (now !== last) [last, since] = [now, performance.now()];
    if (performance.now() - since > STANDSTILL)
      throw new Error(`devices have diverged: ${now}\n${await differences(devices)}`);
    await pause(500);
  }
}

/** Disturbs one device after another until it is over. */
async function disturb(
  devices: readonly FleetDevice[],
  random: Random,
  counts: Map<string, number>,
  say: (line: string) => void,
  isOver: () => boolean,
): Promise<void> {
  await Promise.all(
    devices.map(async (device) => {
      for (;;) {
        await pause(random.between(4000, 20_000));
        if (isOver()) return;
        const what = await device.disturb();
        counts.set(what, (counts.get(what) ?? 0) + 1);
        say(`${device.name}: ${what}`);
      }
    }),
  );
}

/** What is wrong with devices once servers answer again. */
async function settle(devices: FleetDevice[], promises: Promises, fleet: FleetOptions, step: Step): Promise<void> {
  const { say } = fleet;
  await step('halting the devices', Promise.all(devices.map((device) => device.call('halt'))));
  say('devices have stopped writing');
  await step('sending what is pending', Promise.all(devices.map((device) => device.call('flush'))));
  say('everything is sent');
  // From here on clocks are right, and the next record says that all has expired which was to.
  await step('setting clocks', Promise.all(devices.map((device) => device.call('clock', 0))));
  await pause(Math.max(0, promises.lastExpiry + 1000 - Date.now()));
  // What a clock that was ahead has removed comes back with the next commit or record.
  await step(
    'writing with right clocks',
    Promise.all(devices.map((device) => device.call('overwrite', `settled/${device.name}`, device.name))),
  );
  await Promise.all(devices.slice(0, 1).map((device) => device.call('spoil')));
  await step('agreeing', agree(devices));
  // A write that has seen the current value wins regardless of clocks.
  for (const [at, device] of devices.entries()) {
    await step('overwriting', device.call('overwrite', 'shared/0', `last ${at}`));
    await step(
      'agreeing on what was overwritten',
      agree(devices, async () => {
        const { notes } = await device.call('content');
        return notes.some(([key, value]) => key === 'shared/0' && value === `last ${at}`);
      }),
    );
  }
  const fresh = await step('starting a new device', ProcessDevice.start('fresh', fleet, 0));
  devices.push(fresh);
  await step('agreeing with a new device', agree(devices));
  say('all devices agree, a new one, too');
  promises.wrong.push(...promises.check(await fresh.call('content')));
  for (const device of devices) {
    const problems = await step('verifying', device.call('problems'));
    if (problems > 0) promises.wrong.push(`${device.name}: its database has ${problems} problems`);
  }
}

const list = (counts: Map<string, number>): string => [...counts].map(([name, count]) => `${name} ${count}`).join(', ');
const sum = (counts: Map<string, number>): number => [...counts.values()].reduce((total, count) => total + count, 0);

/** Resolves to what is wrong, and prints one line of figures at the end. */
export async function runFaults(given: FaultsOptions): Promise<readonly string[]> {
  const { seconds, seed, isS3, isOld, isSealed, areLosses, mistake, isVerbose } = given;
  const random = new Random(seed);
  // Of its own, as devices and servers do not take turns in an order that a seed determines.
  const deviceRandom = new Random(seed + 1_000_003);
  const say = (line: string): void => {
    if (isVerbose) process.stderr.write(`${new Date().toISOString().slice(11, 23)} ${line}\n`);
  };
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-replication-faults-'));
  const program = await compileProcess();
  const world = await (isS3 ? startS3() : startNats(isOld));
  const { hasConditions, credentials: issue } = world;
  const happens = { ...world.faults, ...(areLosses && world.losses) };
  const faults = given.faults ?? Object.keys(happens);
  const unknown = faults.find((name) => !Object.hasOwn(happens, name));
  if (unknown !== undefined) throw new Error(`there is no fault ${unknown}, but ${Object.keys(happens).join(', ')}`);
  // Where records are sealed, the servers damage and forge some.
  const promises = new Promises({ expected: isSealed ? ['KV_CORRUPT'] : [], areLosses });
  const devices: FleetDevice[] = [];
  const book = new Book(say);
  const access = (database: string, device: string): LogAccess => ({
    connect: isOld ? connectToAny : wsconnect,
    ...(issue && { credentials: () => issue(database, device, 10 + Math.random() * 50) }),
  });
  const open = (device: string, at: LogAddress = world.log): RemoteLog =>
    openLog(at, DATABASE, device, access(DATABASE, device));
  const openFleet = (device: string): RemoteLog => openLog(world.log, FLEET, device, access(FLEET, device));
  let expired = 0;
  const credentialsOf = async (device: string): Promise<NatsCredentials | undefined> => {
    const chance = Math.random();
    if (chance < 0.1) return undefined;
    const isExpired = chance < 0.25;
    const found = await issue?.(FLEET, device, isExpired ? 1 : 5 + Math.random() * 40);
    // Of a server whose answer was on its way for too long.
    if (isExpired) {
      expired++;
      await pause(2000);
    }
    return found;
  };
  const fleet: FleetOptions = {
    log: world.log,
    store: world.store,
    isOld,
    isStrict: hasConditions,
    areReplaced: !areLosses,
    mistake,
    program,
    directory,
    random: deviceRandom,
    say,
    seal: isSealed ? [...crypto.getRandomValues(new Uint8Array(32))] : undefined,
    counted: () => promises.highest,
    tell: (device, told) => {
      if (told.type === 'error' || told.type === 'uncompacted') say(`${device}: ${told.code}, ${told.message}`);
      promises.tell(device, told);
    },
    credentials: issue && credentialsOf,
  };
  const wrong: string[] = [];
  const counts = new Map<string, number>();
  const deviceCounts = new Map<string, number>();
  const writing = new Waits();
  const step = stepOf(devices, writing, () => openFleet('report'));
  let forged = 0;
  try {
    // One by one: each needs a processor for a second.
    for (let nth = 0; nth < given.processes; nth++)
      devices.push(await step('starting a device', ProcessDevice.start(`p${nth}`, fleet)));
    devices.push(...(await step('starting tabs', given.startTabs(fleet))));
    say(`${devices.length} devices have started`);
    await step('beginning', Promise.all(devices.map((device) => device.call('write'))));
    let isOver = false;
    // Nobody puts back what a log without databases has lost.
    const writers: readonly (readonly [string, Device])[] = areLosses
      ? []
      : [
          ['a', writer],
          ['b', writer],
          ['c', writer],
          ['d', writer],
          ...(hasConditions ? [['s', strictWriter] as const] : []),
        ];
    const logs: RemoteLog[] = [];
    const keep = (log: RemoteLog): RemoteLog => {
      logs.push(log);
      return log;
    };
    const failed = Promise.all([
      ...writers.map(([name, device]) =>
        writing.for(name, device({ name, log: keep(open(name)), ledger: book, isOver: () => isOver })),
      ),
      ...(isSealed
        ? [
            writing
              .for(
                'forger',
                forgeRecords(keep(openFleet('forger')), new Random(seed + 2_000_003), () => isOver),
              )
              .then((count) => {
                forged = count;
              }),
          ]
        : []),
      disturb(devices, deviceRandom, deviceCounts, say, () => isOver),
    ]);
    failed.catch(() => {
      isOver = true;
    });
    // Writers probe a bucket first. On a busy machine that takes longer than servers go without a fault.
    // Conditional appends can lose every race while no fault delays the other writers.
    const areWriting = async (): Promise<void> => {
      while (
        !isOver &&
        writers.some(
          ([name, device]) => device === writer && ![...book.entries.keys()].some((key) => key.startsWith(`${name}:`)),
        )
      )
        await pause(50);
    };
    await step('writing first records', areWriting());
    const lacking = (): string[] =>
      tooLittle(
        book,
        promises,
        isS3 ? 0 : Math.floor(seconds / 100),
        writers.length === 0 ? 0 : isS3 ? 20 : 100,
        devices.length > 0 && hasConditions,
      );
    // A busy machine needs longer for the same coverage.
    const [end, last] = [performance.now() + seconds * 1000, performance.now() + seconds * 3000];
    while (!isOver && (performance.now() < end || (performance.now() < last && lacking().length > 0))) {
      await pause(random.between(500, 3000));
      const name = random.of(faults);
      counts.set(name, (counts.get(name) ?? 0) + 1);
      say(`${name}; ${book.entries.size} records acknowledged, ${promises.commits} commits`);
      await happens[name]?.(random);
    }
    isOver = true;
    await step('ending what disturbs devices', failed);
    await step('closing logs', Promise.all(logs.map((log) => log.close())));
    say('everything runs again');
    await world.recover();
    if (writers.length > 0) {
      const newest = Math.max(0, ...[...book.entries.values()].map(({ position }) => position));
      const readings = await step(
        'reading the log',
        Promise.all(world.readers.map((address) => readBy(open('reader', address), newest))),
      );
      wrong.push(...check(book, readings));
    }
    await settle(devices, promises, fleet, step);
    wrong.push(...lacking());
  } catch (error) {
    wrong.push(error instanceof Error && error.stack !== undefined ? error.stack : String(error));
  }
  await Promise.all(devices.map((device) => device.end().catch(() => undefined)));
  await world.stop();
  rmSync(program);
  rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  wrong.push(...promises.wrong);
  for (const line of wrong.slice(0, 20)) process.stdout.write(`${line}\n`);
  const times = book.times.sort((a, b) => a - b);
  const strict = [...book.entries.values()].filter(({ after }) => after !== undefined).length;
  const kind = [
    isS3 ? 's3' : 'nats',
    ...(isOld ? ['old'] : []),
    ...(isSealed ? ['sealed'] : []),
    ...(areLosses ? ['losses'] : []),
    ...(mistake === undefined ? [] : [`mistake ${mistake}`]),
  ].join(' ');
  process.stdout.write(
    `seed ${seed}, ${kind}: ${seconds} s; ${sum(counts)} faults of servers (${list(counts)}); ${sum(deviceCounts)} of devices (${list(deviceCounts)}), ${expired} expired tokens${isSealed ? `, ${forged} forged records` : ''}; ` +
      `log: ${book.entries.size} acknowledged, ${strict} with a condition, ${book.failures.get('KV_LOG_UNAVAILABLE') ?? 0} times unavailable, ` +
      `${book.failures.get('KV_LOG_REFUSED') ?? 0} refused, ${book.failures.get('KV_LOG_CONFLICT') ?? 0} conflicts, longest wait ${((times.at(-1) ?? 0) / 1000).toFixed(1)} s; ` +
      `databases: ${promises.commits} promises, ${promises.times('counted')} strict transactions, ${promises.times('read')} strict reads, ${promises.times('compacted')} compactions, ${promises.times('loading')} snapshots loaded, ` +
      `${promises.times('repair')} repairs, errors (${list(promises.errors)}); ${wrong.filter((line) => line.includes('is lost')).length} lost, ${promises.times('diverged')} diverged, ${wrong.length} errors\n`,
  );
  return wrong;
}

/** Without this a run in which nothing worked would pass. */
function tooLittle(book: Book, promises: Promises, compactions: number, records: number, areStrict: boolean): string[] {
  const wrong: string[] = [];
  if (book.entries.size < records) wrong.push(`only ${book.entries.size} records were acknowledged`);
  if (areStrict && promises.commits < 100) wrong.push(`devices made only ${promises.commits} promises`);
  if (areStrict && promises.times('read') < 5) wrong.push(`only ${promises.times('read')} strict reads succeeded`);
  if (areStrict && promises.times('counted') < 5)
    wrong.push(`only ${promises.times('counted')} strict transactions succeeded`);
  if (areStrict && promises.times('compacted') < compactions) wrong.push('no compaction succeeded');
  return wrong;
}
