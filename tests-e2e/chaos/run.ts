// Many tabs write one database while they are closed, reloaded, crashed, frozen and killed. See
// docs/TESTING.md.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { BrowserContext } from '@playwright/test';
import { keepsPages, launchProfile } from '../browser.ts';
import type { Engine } from '../browser.ts';
import { EVERYWHERE, IN_CHROMIUM } from './disturbances.ts';
import type { Scene } from './disturbances.ts';
import { Ledger } from './ledger.ts';
import type { Found, Report } from './messages.ts';
import { Random } from './random.ts';
import { serveChaos } from './served.ts';
import { Counts, quantiles } from './statistics.ts';
import { Tab, within } from './tabs.ts';

const { values: given } = parseArgs({
  options: {
    minutes: { type: 'string', default: '2' },
    seed: { type: 'string', default: '1' },
    tabs: { type: 'string', default: '4' },
    lanes: { type: 'string', default: '2' },
    browser: { type: 'string', default: 'chromium' },
    only: { type: 'string', multiple: true },
    json: { type: 'string' },
    verbose: { type: 'boolean', default: false },
  },
});
const engine = given.browser as Engine;
const [minutes, seed, most, lanes] = [given.minutes, given.seed, given.tabs, given.lanes].map(Number) as [
  number,
  number,
  number,
  number,
];

/** Disturbances per round. After each round everything is compared. */
const PER_ROUND = 5;
const HALT_WAIT_MS = 3000;
/** How long after a disturbance to look for the first commit in another tab. */
const GAP_WITHIN_MS = 15_000;

/** Error codes that may occur while tabs come and go. Any other code is a failure. */
const EXPECTED = new Set([
  '',
  'KV_CONFLICT',
  'KV_TIMEOUT',
  'KV_LOCKED',
  'KV_IO',
  'KV_CLOSED',
  'KV_SNAPSHOT_LOST',
  'KV_TRUNCATED_FEED',
]);

interface Ack {
  readonly load: string;
  readonly at: number;
}

class Run {
  readonly #random = new Random(seed);
  readonly #counts = { operations: new Counts(), disturbances: new Counts(), errors: new Counts() };
  readonly #takeovers = new Map<string, number[]>();
  readonly #latencies: number[] = [];
  readonly #wrong: string[] = [];
  #context: BrowserContext | undefined;
  #tabs: Tab[] = [];
  #ledger = new Ledger(0);
  #acks: Ack[] = [];
  #halted: () => void = () => {};
  #rounds = 0;
  #entries = 0;
  readonly #profile: string;
  readonly #url: string;

  constructor(profile: string, url: string) {
    this.#profile = profile;
    this.#url = url;
  }

  async run(): Promise<boolean> {
    const end = Date.now() + minutes * 60_000;
    await this.#launch();
    while (Date.now() < end && this.#wrong.length === 0) await this.#round(end);
    await this.#context?.close().catch(() => undefined);
    await this.#tell();
    return this.#wrong.length === 0;
  }

  async #launch(): Promise<void> {
    this.#context = await launchProfile(engine, this.#profile, keepsPages);
    await this.#context.exposeBinding('report', (_source, report: Report) => this.#hear(report));
  }

  #hear(report: Report): readonly number[] {
    switch (report.type) {
      case 'start':
        if (report.round === this.#ledger.round) this.#ledger.start(report);
        break;
      case 'end':
        this.#counts.errors.add(
          report.code === '' ? 'none' : `${report.code} (${report.outcome})`,
          report.code === '' ? 0 : 1,
        );
        this.#judge(report.load, report.code);
        if (report.round !== this.#ledger.round || this.#ledger.end(report) === undefined) break;
        if (report.outcome === 'done') {
          this.#acks.push(report);
          this.#latencies.push(report.ms);
        }
        break;
      case 'seen':
        if (report.what === 'floors') break;
        this.#counts.errors.add(`${report.what}${report.code === '' ? '' : `: ${report.code}`}`);
        this.#judge('', report.code);
        break;
      case 'halted':
        this.#halted();
        break;
      case 'wrong':
        this.#wrong.push(`${report.load}: ${report.what}`);
    }
    return this.#ledger.floors;
  }

  #judge(load: string, code: string): void {
    if (!EXPECTED.has(code.replace(/, .*/, ''))) this.#wrong.push(`${load}: unexpected ${code}`);
  }

  #say(line: string): void {
    if (given.verbose) process.stdout.write(`${new Date().toISOString().slice(11, 23)} ${line}\n`);
  }

  async #round(end: number): Promise<void> {
    const round = ++this.#rounds;
    this.#ledger = new Ledger(round);
    this.#acks = [];
    const watched: { name: string; loads: readonly string[]; from: number; to: number }[] = [];
    try {
      for (const tab of this.#tabs) await tab.call('start', round);
      while (this.#tabs.length < 2) this.#tabs.push(await this.#openTab());
      for (let count = 0; count < PER_ROUND && Date.now() < end; count++) {
        await sleep(300 + this.#random.below(1500));
        const gap = await this.#disturb();
        if (gap !== undefined) watched.push(gap);
        while (this.#tabs.length < 2) this.#tabs.push(await this.#openTab());
      }
      await sleep(500);
      await this.#compare();
    } catch (error) {
      this.#wrong.push(`round ${round}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    }
    for (const { name, loads, from, to } of watched) {
      const ms = this.#gap(loads, from, to);
      this.#say(`${name}: others went on after ${ms ?? '?'} ms`);
      if (ms !== undefined) this.#takeovers.set(name, [...(this.#takeovers.get(name) ?? []), ms]);
    }
    const { operations, done, maybe } = this.#ledger.counts();
    this.#say(
      `round ${round}: ${operations} operations, ${done} acknowledged, ${maybe} maybe; ${this.#tabs.length} tabs`,
    );
  }

  async #disturb(): Promise<{ name: string; loads: readonly string[]; from: number; to: number } | undefined> {
    const all = { ...EVERYWHERE, ...(engine === 'chromium' ? IN_CHROMIUM : {}) };
    const names = given.only ?? Object.keys(all);
    const name = this.#random.of(names);
    const disturb = all[name];
    if (disturb === undefined)
      throw new Error(`there is no disturbance ${name}; there are ${Object.keys(all).join(', ')}`);
    const hidden = this.#tabs.find((tab) => tab.isHidden);
    if (hidden !== undefined && this.#random.below(2) === 0) {
      hidden.isHidden = false;
      await hidden.call('setHidden', false);
    }
    const leader = await this.#leader();
    // Mostly hit the leader, which matters most.
    const victim = leader !== undefined && this.#random.below(3) > 0 ? leader : this.#random.of(this.#tabs);
    const isLeader = victim === leader;
    const kind = `${name}${isLeader ? ', leader' : ''}`;
    this.#counts.disturbances.add(kind);
    this.#say(`${kind}: ${victim.load} of ${this.#tabs.map(({ load }) => load).join(' ')}`);
    const others = this.#tabs.filter((tab) => tab !== victim).map(({ load }) => load);
    const from = Date.now();
    await disturb(this.#scene(), victim, isLeader);
    const to = Date.now();
    return isLeader && others.length > 0 && !name.startsWith('kill')
      ? { name, loads: others, from, to: Math.min(to, from + 1000) }
      : undefined;
  }

  #scene(): Scene {
    const run = this;
    return {
      random: this.#random,
      get tabs() {
        return run.#tabs;
      },
      round: this.#rounds,
      most,
      profile: this.#profile,
      leader: () => this.#leader(),
      openTab: () => this.#openTab(),
      halted: () =>
        new Promise((resolve) => {
          this.#halted = () => resolve(true);
          setTimeout(() => resolve(false), HALT_WAIT_MS);
        }),
      restart: async () => {
        await within(20_000, 'the end of the browser', this.#context!.close()).catch(() => undefined);
        const count = this.#tabs.length;
        this.#tabs = [];
        await this.#launch();
        this.#tabs = await Promise.all(Array.from({ length: count }, () => this.#openTab()));
      },
      newSeed: () => this.#newSeed(),
    };
  }

  #openTab(): Promise<Tab> {
    return Tab.open(this.#context!, { url: this.#url, database: 'chaos', lanes }, this.#newSeed(), this.#rounds);
  }

  #newSeed(): number {
    return this.#random.below(2 ** 31);
  }

  async #leader(): Promise<Tab | undefined> {
    const asked = this.#tabs.find((tab) => tab.canRun);
    const ids = (await asked?.call('leaders')) ?? [];
    for (const tab of this.#tabs) if (tab.canRun && ids.includes(await tab.call('client'))) return tab;
    return undefined;
  }

  /** Stops all tabs and checks that the database agrees with every answer that any tab got. */
  async #compare(): Promise<void> {
    for (const tab of this.#tabs) {
      if (!tab.isHidden) continue;
      tab.isHidden = false;
      await tab.call('setHidden', false);
    }
    await Promise.all(this.#tabs.map((tab) => tab.call('stop')));
    const reader = this.#random.of(this.#tabs);
    const found: Found = await reader.call('read', this.#rounds);
    this.#entries += found.entries.length;
    for (const [name, count] of Object.entries(this.#ledger.counts())) this.#counts.operations.add(name, count);
    this.#wrong.push(
      ...this.#ledger.check(found).map((wrong) => `round ${this.#rounds}, read by ${reader.load}: ${wrong}`),
    );
    if (this.#wrong.length === 0) await reader.call('clear', this.#rounds);
  }

  /** The longest time without an acknowledgement in other tabs that overlaps the disturbance. */
  #gap(loads: readonly string[], from: number, to: number): number | undefined {
    const times = this.#acks
      .filter(({ load }) => loads.includes(load))
      .map(({ at }) => at)
      .sort((a, b) => a - b);
    let longest: number | undefined;
    for (let index = 1; index < times.length; index++) {
      const [before, after] = [times[index - 1]!, times[index]!];
      if (after < from || before > to || after - from > GAP_WITHIN_MS) continue;
      const ms = after - Math.max(before, from);
      if (longest === undefined || ms > longest) longest = ms;
    }
    return longest;
  }

  async #tell(): Promise<void> {
    const all = [...this.#takeovers.values()].flat();
    const result = {
      browser: engine,
      seed,
      minutes,
      tabs: most,
      rounds: this.#rounds,
      entriesCompared: this.#entries,
      operations: this.#counts.operations,
      disturbances: this.#counts.disturbances,
      errors: this.#counts.errors,
      latencyMs: quantiles(this.#latencies),
      takeoverMs: {
        all: quantiles(all),
        ...Object.fromEntries([...this.#takeovers].sort().map(([name, times]) => [name, quantiles(times)])),
      },
      wrong: this.#wrong,
    };
    process.stdout.write(`${JSON.stringify(result, undefined, 2)}\n`);
    if (given.json !== undefined) await writeFile(given.json, JSON.stringify(result));
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

await using server = await serveChaos();
const profile = await mkdtemp(join(tmpdir(), 'mangrove-chaos-'));
const isRight = await new Run(profile, server.url).run();
if (isRight) await rm(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
else process.stdout.write(`wrong; the profile is kept: ${profile}\n`);
process.exitCode = isRight ? 0 : 1;
