// Many processes of all runtimes write one database while they are killed, stopped, closed and starved, and
// while the power is cut.
// See docs/TESTING.md.
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { open } from 'mangrove-kv';
import { Ledger } from '../ledger.ts';
import type { Floors, Report } from '../messages.ts';
import { Random } from '../random.ts';
import { Counts, quantiles } from '../statistics.ts';
import { DISTURBANCES, POWER_CUTS, sleep } from './disturbances.ts';
import { FILES } from './journal.ts';
import { Member, RUNTIMES, within } from './member.ts';
import type { Recorded, Runtime } from './member.ts';
import { cutPower } from './power-cut.ts';

const { values: given } = parseArgs({
  options: {
    minutes: { type: 'string', default: '2' },
    seed: { type: 'string', default: '1' },
    processes: { type: 'string', default: '5' },
    lanes: { type: 'string', default: '2' },
    runtime: { type: 'string', multiple: true },
    only: { type: 'string', multiple: true },
    verbose: { type: 'boolean', default: false },
  },
});
const [minutes, seed, most, lanes] = [given.minutes, given.seed, given.processes, given.lanes].map(Number) as [
  number,
  number,
  number,
  number,
];
const runtimes = (given.runtime ?? RUNTIMES) as readonly Runtime[];
const disturbances = given.only ?? Object.keys(DISTURBANCES);
const powerCuts = disturbances.filter((name) => name in POWER_CUTS);

/** Disturbances per round. After each round everything is compared. */
const PER_ROUND = 5;
const LEAST = 3;
const LOOK_MS = 5;
/** Power cuts of which everything is kept. */
const KEPT_CUTS = 3;
/** Disks, one of which each process has. */
const FLUSHES_MS = [0, 0, 5, 25];
/** With a longer journal, which only a power cut shortens, the power is cut next. */
const MAX_JOURNAL_BYTES = 256 * 2 ** 20;

/** Error codes that may occur while processes come and go. Any other code is a failure. */
const EXPECTED = new Set([
  '',
  'KV_CONFLICT',
  'KV_TIMEOUT',
  'KV_LOCKED',
  'KV_CLOSED',
  'KV_SNAPSHOT_LOST',
  'KV_TRUNCATED_FEED',
]);

class Failed extends Error {}

class Run {
  readonly #random = new Random(seed);
  readonly #counts = {
    operations: new Counts(),
    disturbances: new Counts(),
    errors: new Counts(),
    started: new Counts(),
    powerCuts: new Counts(),
  };
  readonly #latencies: number[] = [];
  readonly #wrong: string[] = [];
  readonly #members: Member[] = [];
  #ledger = new Ledger(0);
  #rounds = 0;
  #entries = 0;
  #takeOvers = 0;
  #cuts = 0;
  #token = '';
  readonly #path: string;
  /** Where processes record, if the power is ever cut. */
  readonly #recorded: Omit<Recorded, 'flushMs'> | undefined;
  /** Those that have opened the database since the power was cut. */
  readonly #openers = new Set<number>();
  /** Rejects when something is wrong, which a process that opens the database may do again and again. */
  readonly #failed: Promise<never>;
  #fail: () => void = () => {};

  constructor(path: string) {
    this.#path = path;
    this.#recorded = powerCuts.length === 0 ? undefined : { database: path, journal: `${path}.journal` };
    this.#failed = new Promise((_, reject) => {
      this.#fail = () => reject(new Failed('the run has failed'));
    });
    this.#failed.catch(() => undefined);
  }

  async run(): Promise<boolean> {
    const end = Date.now() + minutes * 60_000;
    const looking = setInterval(() => this.#leaderPid(), LOOK_MS);
    while (Date.now() < end && this.#wrong.length === 0) await this.#round(end);
    clearInterval(looking);
    await Promise.all(this.#members.map((member) => member.kill()));
    await this.#verify();
    this.#tell();
    return this.#wrong.length === 0;
  }

  #hear(report: Report): Floors {
    switch (report.type) {
      case 'start':
        if (report.round === this.#ledger.round) this.#ledger.start(report);
        break;
      case 'end':
        if (report.code !== '') this.#counts.errors.add(`${report.code} (${report.outcome})`);
        this.#judge(report.load, report.code);
        if (report.round !== this.#ledger.round || this.#ledger.end(report) === undefined) break;
        this.#latencies.push(report.ms);
        break;
      case 'seen':
        if (report.what === 'floors') break;
        this.#counts.errors.add(`${report.what}${report.code === '' ? '' : `: ${report.code}`}`);
        this.#judge(report.what, report.code);
        break;
      case 'wrong':
        this.#accuse(`${report.load}: ${report.what}`);
        break;
      case 'halted':
    }
    return this.#ledger.floors;
  }

  #judge(what: string, code: string): void {
    if (!EXPECTED.has(code.replace(/, .*/, ''))) this.#accuse(`${what}: unexpected ${code}`);
  }

  #accuse(what: string): void {
    this.#wrong.push(what);
    this.#fail();
  }

  #say(line: string): void {
    if (given.verbose) process.stdout.write(`${new Date().toISOString().slice(11, 23)} ${line}\n`);
  }

  /** Who leads, as far as it has said so. Counts the changes. */
  #leaderPid(): number | undefined {
    try {
      const { pid, token } = JSON.parse(readFileSync(join(this.#path, 'leader'), 'utf8')) as {
        pid: number;
        token: string;
      };
      if (token !== this.#token) this.#takeOvers++;
      this.#token = token;
      return pid;
    } catch {
      return undefined;
    }
  }

  async #start(): Promise<void> {
    const recorded = this.#recorded && { ...this.#recorded, flushMs: this.#random.of(FLUSHES_MS) };
    const member = new Member(this.#random.of(runtimes), recorded, (report) => this.#hear(report));
    this.#counts.started.add(member.runtime);
    this.#members.push(member);
    const opened = member.call('open', this.#path, member.load, this.#random.below(2 ** 31), lanes);
    await Promise.race([opened, this.#failed]);
    this.#openers.add(member.pid);
    if (this.#rounds > 0) await member.call('start', this.#rounds);
  }

  async #round(end: number): Promise<void> {
    const round = ++this.#rounds;
    this.#ledger = new Ledger(round);
    try {
      for (const member of this.#members) await member.call('start', round);
      for (let count = 0; count < PER_ROUND && Date.now() < end && this.#wrong.length === 0; count++) {
        while (this.#members.length < LEAST) await this.#start();
        await sleep(100 + this.#random.below(700));
        await this.#disturb();
      }
      await sleep(300);
      await this.#compare();
    } catch (error) {
      if (!(error instanceof Failed))
        this.#wrong.push(`round ${round}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    }
    const { operations, done, maybe } = this.#ledger.counts();
    this.#say(
      `round ${round}: ${operations} operations, ${done} acknowledged, ${maybe} maybe; ${this.#members.length} processes`,
    );
  }

  async #disturb(): Promise<void> {
    const isJournalLong =
      this.#recorded !== undefined &&
      (statSync(this.#recorded.journal, { throwIfNoEntry: false })?.size ?? 0) > MAX_JOURNAL_BYTES;
    const name = this.#random.of(isJournalLong ? powerCuts : disturbances);
    const disturb = DISTURBANCES[name];
    if (disturb === undefined)
      throw new Error(`there is no disturbance ${name}; there are ${Object.keys(DISTURBANCES).join(', ')}`);
    const pid = this.#leaderPid();
    const leader = this.#members.find((member) => member.pid === pid);
    // Mostly hit the one that leads, which matters most.
    const victim = leader !== undefined && this.#random.below(3) > 0 ? leader : this.#random.of(this.#members);
    const kind = `${name}${victim === leader ? ', leader' : ''}`;
    this.#counts.disturbances.add(kind);
    this.#say(`${kind}: ${victim.load} of ${this.#members.map(({ load, runtime }) => `${load}:${runtime}`).join(' ')}`);
    const scene = {
      random: this.#random,
      members: this.#members,
      most,
      start: () => this.#start(),
      cutPower: () => this.#cutPower(),
    };
    await disturb(scene, victim);
  }

  #cutPower(): void {
    this.#ledger.cutPower();
    this.#keep();
    const { style, unflushed, lost } = cutPower({ ...this.#recorded!, random: this.#random, pids: this.#openers });
    this.#openers.clear();
    this.#counts.powerCuts.add('unflushed changes', unflushed);
    this.#counts.powerCuts.add('sectors lost', lost);
    this.#counts.powerCuts.add(`leaving ${style}`);
    this.#say(`the power is cut, leaving ${style}: ${unflushed} changes were not flushed, ${lost} sectors are lost`);
  }

  /** Keeps what the last power cuts found, from which a failure can be explained. */
  #keep(): void {
    const { database, journal } = this.#recorded!;
    const at = (number: number): string => join(`${database}.cuts`, String(number));
    const number = ++this.#cuts;
    rmSync(at(number - KEPT_CUTS), { recursive: true, force: true });
    mkdirSync(at(number), { recursive: true });
    for (const path of [...FILES.map((file) => join(database, file)), journal])
      if (existsSync(path)) copyFileSync(path, join(at(number), basename(path)));
  }

  /** Stops all loads and checks that the database agrees with every answer that any process got. */
  async #compare(): Promise<void> {
    await Promise.all(this.#members.map((member) => member.call('stop')));
    const reader = this.#random.of(this.#members);
    const found = await reader.call('read', this.#rounds);
    this.#entries += found.entries.length;
    for (const [name, count] of Object.entries(this.#ledger.counts())) this.#counts.operations.add(name, count);
    this.#wrong.push(
      ...this.#ledger.check(found).map((wrong) => `round ${this.#rounds}, read by ${reader.load}: ${wrong}`),
    );
    if (this.#wrong.length === 0) await reader.call('clear', this.#rounds);
  }

  /** The database as those leave it who were all killed. */
  async #verify(): Promise<void> {
    try {
      const db = await open(this.#path);
      const { problems } = await db.verify();
      this.#wrong.push(...problems.map(({ message }) => `at the end: ${message}`));
      await db.close();
    } catch (error) {
      this.#wrong.push(`at the end: ${String(error)}`);
    }
  }

  #tell(): void {
    const latency = quantiles(this.#latencies);
    const result = {
      seed,
      minutes,
      rounds: this.#rounds,
      started: this.#counts.started,
      entriesCompared: this.#entries,
      operations: this.#counts.operations,
      disturbances: this.#counts.disturbances,
      powerCuts: { cuts: this.#cuts, ...this.#counts.powerCuts.toJSON() },
      takeOvers: this.#takeOvers,
      errors: this.#counts.errors,
      latencyMs: latency,
      longestWaitMs: latency?.max,
      wrong: this.#wrong,
    };
    process.stdout.write(`${JSON.stringify(result, undefined, 2)}\n`);
  }
}

const directory = await mkdtemp(join(tmpdir(), 'mangrove-chaos-'));
const isRight = await within((minutes + 10) * 60_000, 'the run', new Run(join(directory, 'database')).run());
if (isRight) await rm(directory, { recursive: true, force: true });
else process.stdout.write(`wrong; the database is kept: ${directory}\n`);
process.exit(isRight ? 0 : 1);
