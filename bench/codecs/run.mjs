// Compares value codecs: fidelity, hostile bytes, sizes, speed and amount of code.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { measureBundles } from './src/bundle.mjs';
import { CODECS } from './src/codecs.mjs';
import { checkComparison, measureFidelity } from './src/fidelity.mjs';
import { measureHostile } from './src/hostile.mjs';
import { markdown } from './src/report.mjs';
import { measureSizes, measureSpeed } from './src/speed.mjs';

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    codecs: { type: 'string', default: Object.keys(CODECS).join() },
    native: { type: 'boolean', default: false },
    output: { type: 'string', default: join(import.meta.dirname, '../../target/bench/codecs') },
  },
});

const say = (text) => process.stdout.write(`${text}\n`);

function choose(text) {
  const names = text.split(',').map((name) => name.trim());
  const unknown = names.find((name) => !Object.hasOwn(CODECS, name));
  if (unknown !== undefined) throw new Error(`${unknown} is none of ${Object.keys(CODECS).join(', ')}`);
  return Object.keys(CODECS).filter((name) => names.includes(name));
}

async function load(names) {
  const codecs = {};
  const errors = [];
  for (const name of names) {
    try {
      codecs[name] = await CODECS[name].load();
    } catch (error) {
      errors.push([name, error.message]);
    }
  }
  return { codecs, errors };
}

async function main() {
  const { codecs, errors } = await load(choose(options.codecs));
  const ids = Object.keys(codecs);
  const settings = {
    rounds: Number(options.rounds ?? (options.quick ? 3 : 15)),
    ms: options.quick ? 10 : 30,
    count: options.quick ? 2000 : 50_000,
    native: options.native,
  };
  checkComparison();
  say('fidelity');
  const fidelity = measureFidelity(codecs);
  const bundles = await measureBundles(ids);
  const sizes = measureSizes(codecs);
  const speed = measureSpeed(codecs, { ...settings, say });
  const hostile = await measureHostile(ids, { ...settings, say });
  const results = {
    date: new Date().toISOString().slice(0, 10),
    node: process.version,
    settings,
    ids,
    errors,
    fidelity,
    sizes,
    speed,
    bundles,
    hostile,
  };
  // Relative to the directory in which npm was called.
  const output = resolve(process.env.INIT_CWD ?? '.', options.output);
  mkdirSync(output, { recursive: true });
  writeFileSync(join(output, 'report.md'), markdown(results));
  writeFileSync(join(output, 'results.json'), `${JSON.stringify(results, undefined, 1)}\n`);
  say(`\n${markdown(results)}\nThe report is in ${output}.`);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`bench: ${error.message}\n`);
  process.exitCode = 1;
}
