// Runs steps, two at a time, and lists the failed ones at the end. If the build fails, nothing else
// runs.
//
//     node .ci/test.mjs                 what a change usually breaks: `npm test`
//     node .ci/test.mjs --full          the others that have to pass before it lands
//     node .ci/test.mjs --engine        the engine's long tests; also --runtimes, --browsers, --replication
//     node .ci/test.mjs node deno       steps with one of these words in their name
import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { STEPS } from './steps.mjs';
import { ROOT, browserEnv, serverEnv, toolEnv } from './tools.mjs';

const SLOTS = 2;
/** How test runners and compilers mark what failed, and how much around such a line is kept. */
const FAILURE = /FAILED|panicked at|^\s*not ok |✖|✘|^\s*\w*[Ee]rror\b/;
const LINES_BEFORE = 2;
const LINES_AFTER = 12;
const KEPT_LINES = 120;
const LAST_LINES = 30;

function select(names) {
  const suites =
    names.length === 0 ? ['quick'] : names.filter((name) => name.startsWith('--')).map((name) => name.slice(2));
  const missing = suites.find((name) => !STEPS.some(({ suite }) => suite === name));
  if (missing !== undefined) throw new Error(`no such group of steps: ${missing}`);
  if (suites.length > 0) return STEPS.filter(({ suite }) => suite === 'all' || suites.includes(suite));
  const unknown = names.filter((name) => !STEPS.some((step) => step.name.split(' ').includes(name)));
  if (unknown.length > 0)
    throw new Error(`no such step: ${unknown.join(', ')}; there are ${STEPS.map((step) => step.name).join(', ')}`);
  return STEPS.filter((step) => step.name.split(' ').some((word) => names.includes(word)));
}

const env = { ...toolEnv(), ...browserEnv(), ...serverEnv(), DENO_NO_UPDATE_CHECK: '1' };
const waiting = select(process.argv.slice(2));
const total = waiting.length;
const running = new Map();
const ended = new Map();

/**
 * Starts a step. Its output is shown when it ends, so that the output of two does not mix, but at
 * once if it is alone.
 */
function start(step) {
  const {
    name,
    command: [program, ...args],
    cwd = ROOT,
  } = step;
  process.stdout.write(`==> ${name}: ${program} ${args.join(' ')}\n`);
  const begin = performance.now();
  const printed = [];
  const child = spawn(program, args, { cwd, env: { ...env, ...step.env }, stdio: ['ignore', 'pipe', 'pipe'] });
  running.set(step, { child, printed });
  const show = (chunk) => {
    printed.push(chunk);
    if (step.alone) process.stdout.write(chunk);
  };
  child.stdout.on('data', show);
  child.stderr.on('data', show);
  let failure;
  child.on('error', (error) => {
    failure = error.message;
  });
  child.on('close', (status, signal) => {
    running.delete(step);
    const passed = status === 0;
    ended.set(name, passed);
    if (!step.alone) process.stdout.write(Buffer.concat(printed));
    if (!passed) keep(name, printed);
    const seconds = ((performance.now() - begin) / 1000).toFixed(1);
    const reason = failure ?? signal ?? `exit ${status}`;
    process.stdout.write(`<== ${name}: ${passed ? 'passed' : `failed (${reason})`} in ${seconds} s\n\n`);
    if (name === 'build' && !passed) waiting.length = 0;
    next();
  });
}

/**
 * Appends what a failed step printed about its failures, and the end of its output, to the file that
 * `.ci/run` shows last.
 */
function keep(name, printed) {
  const file = process.env.MANGROVE_FAILURES;
  if (file === undefined) return;
  const lines = Buffer.concat(printed).toString().trimEnd().split('\n');
  appendFileSync(file, `==> failed: ${name}\n${telling(lines).join('\n')}\n\n`);
}

/** The lines around failures, as many as fit, and the last lines. */
function telling(lines) {
  const kept = new Set();
  const last = Math.max(0, lines.length - LAST_LINES);
  for (let at = 0; at < last && kept.size < KEPT_LINES; at += 1) {
    if (!FAILURE.test(lines[at])) continue;
    for (let near = Math.max(0, at - LINES_BEFORE); near <= at + LINES_AFTER; near += 1) kept.add(near);
  }
  return lines.filter((_, at) => kept.has(at) || at >= last);
}

/** Whether a step may start now. */
function isReady(step) {
  const others = [...running.keys()];
  if (step.alone ? others.length > 0 : others.length >= SLOTS || others.some((other) => other.alone)) return false;
  // The steps that it needs may not have been selected.
  return [step.after, step.native ? undefined : 'build'].every(
    (needed) => needed === undefined || step.name === needed || !waitsOrRuns(needed),
  );
}

function waitsOrRuns(name) {
  return waiting.some((step) => step.name === name) || [...running.keys()].some((step) => step.name === name);
}

function next() {
  for (;;) {
    // No step overtakes one that runs alone, which might otherwise be postponed to the end.
    const upTo = waiting.findIndex((step) => step.alone);
    const candidates = upTo < 0 ? waiting : waiting.slice(0, upTo + 1);
    const at = candidates.findIndex((step) => (step.alone ? candidates[0] === step : true) && isReady(step));
    if (at < 0) break;
    start(...waiting.splice(at, 1));
  }
  if (running.size === 0) report();
}

function report() {
  const failed = [...ended].filter(([, passed]) => !passed).map(([name]) => name);
  const list = failed.length > 0 ? ` (${failed.join(', ')})` : '';
  const skipped = total - ended.size;
  process.stdout.write(
    `${ended.size - failed.length} passed, ${failed.length} failed${list}${skipped > 0 ? `, ${skipped} not run` : ''}\n`,
  );
  process.exitCode = failed.length > 0 ? 1 : 0;
}

for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    for (const [step, { child, printed }] of running) {
      child.kill(signal);
      process.stdout.write(
        Buffer.concat([...(step.alone ? [] : printed), Buffer.from(`<== ${step.name}: ${signal}\n`)]),
      );
    }
    process.exit(1);
  });
}

next();
