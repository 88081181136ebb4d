// Runs random schedules of processes that share a database: MANGROVE_PROCESSES_SCHEDULES of them, with
// consecutive seeds from MANGROVE_PROCESSES_SEED on.
import process from 'node:process';
import { shrink } from '../../tabs/shrink.ts';
import { planOf, run } from './schedule.ts';
import type { Plan } from './schedule.ts';
import { noFaults } from './world.ts';

const schedules = Number(process.env['MANGROVE_PROCESSES_SCHEDULES'] ?? 100_000);
const firstSeed = Number(process.env['MANGROVE_PROCESSES_SEED'] ?? 1);
const most = Number(process.env['MANGROVE_PROCESSES_FAILURES'] ?? 1);
const start = performance.now();
const total = new Map<string, number>();
const takeOvers: number[] = [];
let maxSettledMs = 0;
let maxWaitMs = 0;
let failed = 0;
let done = 0;

for (; done < schedules && failed < most; done++) {
  const plan = planOf(firstSeed + done);
  const outcome = await run(plan);
  for (const [name, count] of Object.entries(outcome.counts)) total.set(name, (total.get(name) ?? 0) + count);
  for (const ms of outcome.takeOvers) takeOvers.push(ms);
  total.set('lost snapshots', (total.get('lost snapshots') ?? 0) + outcome.lostSnapshots);
  maxSettledMs = Math.max(maxSettledMs, outcome.settledMs);
  maxWaitMs = Math.max(maxWaitMs, outcome.maxWaitMs);
  if (outcome.violation === undefined) continue;
  failed++;
  if (most === 1 && process.env['MANGROVE_PROCESSES_TRACE'] !== 'no') await tell(plan);
  else console.log(`seed ${plan.seed}: ${outcome.violation}`);
}

takeOvers.sort((a, b) => a - b);
const quantile = (part: number): number =>
  takeOvers[Math.min(takeOvers.length - 1, Math.floor(part * takeOvers.length))] ?? 0;
console.log(`${done} schedules from seed ${firstSeed} in ${((performance.now() - start) / 1000).toFixed(1)} s`);
console.log([...total].map(([name, count]) => `${name} ${count}`).join(', '));
console.log(
  `take-over in virtual ms: median ${quantile(0.5)}, 90% ${quantile(0.9)}, 99% ${quantile(0.99)}, longest ${quantile(1)}`,
);
console.log(`longest wait for an answer ${maxWaitMs}, longest recovery after the last fault ${maxSettledMs}`);
if (failed > 0) process.exitCode = 1;

async function tell(plan: Plan): Promise<void> {
  const fails = async (one: Plan): Promise<boolean> => (await run(one)).violation !== undefined;
  const least = await shrink(plan, noFaults, fails);
  const trace: string[] = [];
  const { violation } = await run(least, trace);
  console.log(trace.join('\n'));
  console.log(`\nseed ${plan.seed} fails: ${violation}\nshrunk to: ${JSON.stringify(least)}`);
  console.log(`to repeat: MANGROVE_PROCESSES_SEED=${plan.seed} MANGROVE_PROCESSES_SCHEDULES=1 npm run test:processes`);
}
