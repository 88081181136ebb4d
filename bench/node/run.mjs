// Mangrove and its peers on Node: each stage runs with one engine after the other, each in a process of its own, round after round.
import { fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { DEFAULT_ENGINES, ENGINES } from './src/engines/index.mjs';
import { prepare } from './src/peers.mjs';
import { Report } from './src/report/index.mjs';
import { short } from './src/report/numbers.mjs';
import { WORKLOADS, setIndexedRows } from './src/stages/index.mjs';

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    engines: { type: 'string', default: DEFAULT_ENGINES.join() },
    workloads: { type: 'string', default: Object.keys(WORKLOADS).join() },
    'indexed-rows': { type: 'string', default: '100000' },
    values: { type: 'string', default: 'bytes' },
    cache: { type: 'string', default: '64' },
    directory: { type: 'string', default: tmpdir() },
    output: { type: 'string', default: join(import.meta.dirname, '../../target/bench/node') },
  },
});

function choose(all, text) {
  const names = text.split(',').map((name) => name.trim());
  const unknown = names.find((name) => !Object.hasOwn(all, name));
  if (unknown !== undefined) throw new Error(`${unknown} is none of ${Object.keys(all).join(', ')}`);
  return Object.keys(all).filter((name) => names.includes(name));
}

/** What the process answers. */
function runStage(request) {
  return new Promise((done) => {
    const child = fork(join(import.meta.dirname, 'src/child.mjs'), [JSON.stringify(request)], {
      execArgv: ['--expose-gc', '--disable-warning=ExperimentalWarning', ...process.execArgv],
    });
    let answer = { error: 'the process ended without an answer' };
    child.on('message', (message) => (answer = message));
    child.on('exit', () => done(answer));
  });
}

function say(engine, { error, figures = [] }) {
  if (error !== undefined) process.stdout.write(`  ${engine}: ${error}\n`);
  for (const [name, unit, value] of figures)
    process.stdout.write(`  ${engine.padEnd(16)} ${name.padEnd(36)} ${short(value)} ${unit}\n`);
}

async function runAll(report, { engines, workloads, rounds, scale, values, cacheBytes, directory }) {
  for (let round = 0; round < rounds; round++) {
    for (const name of workloads) {
      const records = Math.round(WORKLOADS[name].records * scale);
      for (const stage of WORKLOADS[name].stages) {
        process.stdout.write(`${name}, ${stage}, round ${round + 1} of ${rounds}\n`);
        // Nobody is always the first, or always the one after the noisiest.
        const turn = [...engines.slice(round % engines.length), ...engines.slice(0, round % engines.length)];
        for (const engine of turn) {
          if (report.failed(engine)) continue;
          const place = join(directory, `${name}-${engine.replace(':', '-')}`);
          const answer = await runStage({ engine, stage, records, scale, values, cacheBytes, directory: place });
          say(engine, answer);
          report.add(name, stage, engine, answer);
        }
      }
      for (const engine of engines)
        rmSync(join(directory, `${name}-${engine.replace(':', '-')}`), { recursive: true, force: true });
    }
  }
}

/** Relative to where npm was called. */
const toPath = (text) => resolve(process.env.INIT_CWD ?? '.', text);

async function main() {
  const engines = choose(ENGINES, options.engines);
  const chosen = choose(WORKLOADS, options.workloads);
  const indexedRows = options['indexed-rows'].split(',').map(Number);
  if (!indexedRows.every((count) => Number.isInteger(count) && count >= 1000))
    throw new Error('--indexed-rows is numbers of 1000 and more');
  const indexed = setIndexedRows(indexedRows);
  const workloads = chosen.flatMap((name) => (name === 'indexes' ? indexed : [name]));
  if (!['bytes', 'text'].includes(options.values)) throw new Error('--values is bytes or text');
  const scale = options.quick ? 0.1 : 1;
  const rounds = Number(options.rounds ?? (options.quick ? 1 : 3));
  const cacheBytes = Number(options.cache) * 2 ** 20;
  prepare(engines);
  const directory = mkdtempSync(join(toPath(options.directory), 'mangrove-bench-'));
  try {
    const report = new Report({ engines, workloads, rounds, scale, values: options.values, cacheBytes });
    await runAll(report, { engines, workloads, rounds, scale, values: options.values, cacheBytes, directory });
    report.write(toPath(options.output));
    process.stdout.write(`\n${report.markdown()}\nThe report is in ${toPath(options.output)}.\n`);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

try {
  await main();
} catch (error) {
  process.stderr.write(`bench: ${error.message}\n`);
  process.exitCode = 1;
}
