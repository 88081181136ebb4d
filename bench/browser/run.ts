// Mangrove and its peers in Chromium: every stage with one store after the other, each in a new tab, round after round.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism, loadavg } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Browser } from './driver/browser.ts';
import { servePage, toPath } from './driver/page.ts';
import type { Figure } from './src/meter.ts';
import { DEFAULT_PEERS, PEERS, takesPart } from './src/peers/index.ts';
import { markdown } from './src/report/markdown.ts';
import { cell, short } from './src/report/numbers.ts';
import { sheet } from './src/report/plot.ts';
import { Report } from './src/report/report.ts';
import { buildBeside } from './src/stages/index-build.ts';
import { LIMITS, WORKLOADS } from './src/stages/index.ts';
import { sizes } from './src/stages/stage.ts';
import { manyTabs, takeOver } from './src/stages/tabs.ts';

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    records: { type: 'string' },
    'index-rows': { type: 'string' },
    peers: { type: 'string', default: DEFAULT_PEERS.join() },
    workloads: { type: 'string', default: Object.keys(WORKLOADS).join() },
    output: { type: 'string', default: join(import.meta.dirname, '../../target/bench/browser') },
  },
});

/** Those that read what `load` leaves. */
const NEEDS_LOAD = ['opening', 'gets', 'scans', 'pages', 'mixes', 'memory'];

function choose(all: Readonly<Record<string, unknown>>, text: string): string[] {
  const names = text.split(',').map((name) => name.trim());
  const unknown = names.find((name) => !Object.hasOwn(all, name));
  if (unknown !== undefined) throw new Error(`${unknown} is none of ${Object.keys(all).join(', ')}`);
  return Object.keys(all).filter((name) => names.includes(name));
}

function versionOf(peer: string): string {
  const name = PEERS[peer]?.package;
  if (name === undefined) return '';
  const place = createRequire(import.meta.url)
    .resolve.paths(name)
    ?.map((path) => join(path, name, 'package.json'));
  for (const path of place ?? []) {
    try {
      return (JSON.parse(readFileSync(path, 'utf8')) as { version: string }).version;
    } catch {
      // Not here.
    }
  }
  return '';
}

function say(peer: string, figures: readonly Figure[]): void {
  for (const { name, unit, value, error } of figures) {
    process.stdout.write(
      `  ${peer.padEnd(12)} ${name.padEnd(58)} ${value === undefined ? (error ?? '') : cell(name, unit, value)}\n`,
    );
  }
}

interface Plan {
  readonly peers: readonly string[];
  readonly stages: readonly string[];
  readonly rounds: number;
  readonly scale: number;
  readonly indexRows: number | undefined;
}

async function runOne(
  browser: Browser,
  stage: string,
  peer: string,
  { scale, indexRows }: Plan,
  round: number,
): Promise<Figure[]> {
  const name = `bench-${peer}`;
  if (stage === 'tabs' || stage === 'takeOver' || stage === 'indexBuild') {
    const tabs = { peer, writing: sizes(scale).writing, newTab: () => browser.newTab() };
    if (stage === 'tabs') return [await manyTabs({ ...tabs, name: `${name}-tabs-${round}` })];
    if (stage === 'indexBuild') {
      const place = `${name}-build-${round}`;
      try {
        return await buildBeside({ ...tabs, name: place }, sizes(scale, indexRows).indexed);
      } finally {
        const tab = await browser.newTab();
        await tab.call('destroy', peer, place).catch(() => undefined);
        await tab.close();
      }
    }
    return [
      await takeOver({ ...tabs, name: `${name}-close-${round}` }, 'close'),
      await takeOver({ ...tabs, name: `${name}-crash-${round}` }, 'crash'),
    ];
  }
  return browser.stage(
    { peer, stage, name, scale, indexRows },
    180_000 + 600_000 * scale + (stage === 'indexes' ? 5 * sizes(scale, indexRows).indexed : 0),
  );
}

function write(report: Report, output: string): void {
  mkdirSync(output, { recursive: true });
  writeFileSync(join(output, 'report.md'), markdown(report));
  writeFileSync(join(output, 'report.svg'), sheet(report));
  const { settings, runs, failures } = report;
  writeFileSync(
    join(output, 'report.json'),
    `${JSON.stringify({ settings, machine: report.machine, failures, figures: runs }, undefined, 1)}\n`,
  );
}

async function runAll(browser: Browser, report: Report, plan: Plan, output: string): Promise<void> {
  const loads: number[] = [];
  for (let round = 0; round < plan.rounds; round++) {
    for (const stage of plan.stages) {
      // A store is filled once: it takes longer than everything else.
      if (stage === 'load' && round > 0) continue;
      process.stdout.write(
        `${WORKLOADS[stage]}, round ${round + 1} of ${plan.rounds}, ${new Date().toISOString().slice(11, 19)}\n`,
      );
      // Nobody is always the first, or always the one after the noisiest.
      const first = round % plan.peers.length;
      for (const peer of stage === LIMITS
        ? [LIMITS]
        : [...plan.peers.slice(first), ...plan.peers.slice(0, first)].filter((each) => takesPart(each, stage))) {
        let figures: Figure[];
        try {
          figures = await runOne(browser, stage, peer, plan, round);
        } catch (error) {
          figures = [{ name: '', unit: 'ms', error: (error as Error).message.split('\n')[0] as string }];
        }
        say(peer, figures);
        report.add(stage, peer, figures);
      }
      loads.push(loadavg()[0] ?? 0);
      report.machine = `${availableParallelism()} processors, load average ${short(Math.min(...loads))} to ${short(Math.max(...loads))}`;
      // A run that is interrupted leaves what it has found.
      write(report, output);
    }
  }
}

async function main(): Promise<void> {
  const peers = choose(PEERS, options.peers);
  const chosen = choose(WORKLOADS, options.workloads);
  const stages = Object.keys(WORKLOADS).filter(
    (stage) => chosen.includes(stage) || (stage === 'load' && chosen.some((each) => NEEDS_LOAD.includes(each))),
  );
  const scale = Number(options.records ?? (options.quick ? 10_000 : 1_000_000)) / 1_000_000;
  const indexRows = options['index-rows'] === undefined ? undefined : Number(options['index-rows']);
  if (indexRows !== undefined && !(Number.isInteger(indexRows) && indexRows >= 1000))
    throw new Error('--index-rows is a number of 1000 and more');
  const rounds = Number(options.rounds ?? (options.quick ? 1 : 3));
  const page = await servePage();
  try {
    await using browser = await Browser.launch(page.url);
    const versions = Object.fromEntries(peers.map((peer) => [peer, versionOf(peer)]));
    const report = new Report({ peers, stages, rounds, scale, indexRows, browser: browser.version, versions });
    const output = toPath(options.output);
    await runAll(browser, report, { peers, stages, rounds, scale, indexRows }, output);
    process.stdout.write(`\n${markdown(report)}\nThe report is in ${output}.\n`);
  } finally {
    await page.close();
  }
}

try {
  await main();
} catch (error) {
  process.stderr.write(`bench: ${(error as Error).message}\n`);
  process.exitCode = 1;
}
