// Random histories of devices, and what an oracle of its own makes of the log: all devices have that.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { MAX_DEVICES, NOTES, WRITES, play } from './world.ts';
import type { Collections, Profile, Step } from './world.ts';

/** Programs: which collections each of them knows. */
const MIXED: Collections = { notes: { prefixModes: [{ prefix: 'c/', mode: 'strict' }] } };
const BOTH: Collections = { notes: {}, accounts: { mode: 'strict' } };
const MORE: Collections = { notes: {}, tasks: {} };
const ALL: Collections = { notes: {}, tasks: {}, accounts: { mode: 'strict' } };

/** What the application does while replication does not run, or between two commits of replication. */
const AWAY = { offline: 4, meanwhile: 4 };
const LOSSY = { ...AWAY, 'lose commits': 4, 'slow feed': 1 };
const WORK = { pull: 5, drain: 3, publish: 4, exchange: 6, forget: 1, replay: 2, time: 2 };

const PROFILES: readonly Profile[] = [
  {
    name: 'devices',
    steps: { ...WRITES, ...WORK, reconnect: 1 },
    subjects: { 'numbers skipped': 50, conflicts: 30, clears: 30 },
  },
  {
    name: 'crashes',
    steps: { ...WRITES, ...WORK, crash: 4, 'power cut': 4, cut: 3 },
    subjects: { crashes: 70, 'power cuts': 70, 'disks cut': 30 },
  },
  {
    name: 'copies of files',
    steps: { ...WRITES, ...WORK, clone: 3, crash: 1 },
    subjects: { clones: 60, 'new ids': 50 },
  },
  {
    name: 'compaction',
    steps: { ...WRITES, ...WORK, compact: 5, reconnect: 2, crash: 1 },
    subjects: { compactions: 70, 'logs cut off': 40, checks: 70 },
  },
  {
    name: 'strict transactions',
    steps: { ...WRITES, ...WORK, strict: 8, crash: 1, 'power cut': 1, cut: 1 },
    programs: [BOTH],
    strict: { collection: 'accounts', prefix: '' },
    subjects: { 'strict transactions': 80 },
  },
  {
    name: 'both modes in one collection',
    steps: { ...WRITES, ...WORK, strict: 5, compact: 1, clone: 1, crash: 1 },
    programs: [MIXED],
    strict: { collection: 'notes', prefix: 'c/' },
    subjects: { 'strict transactions': 70 },
  },
  {
    name: 'lost history',
    steps: { ...WRITES, ...WORK, lose: 2, strict: 2, crash: 1, reconnect: 2 },
    programs: [BOTH],
    strict: { collection: 'accounts', prefix: '' },
    subjects: { losses: 40, repairs: 20 },
  },
  {
    name: 'lost history and one compaction',
    steps: { ...WRITES, ...WORK, lose: 2, compact: 3, clone: 1, reconnect: 2 },
    maxCompactions: 1,
    subjects: { losses: 40, repairs: 10, compactions: 50 },
  },
  {
    name: 'lost history and compaction',
    steps: { ...WRITES, ...WORK, lose: 2, compact: 3, clone: 1, reconnect: 2 },
    subjects: { losses: 60, repairs: 30, compactions: 50 },
  },
  {
    name: 'programs on one file in turn',
    steps: { ...WRITES, task: 8, ...WORK, program: 5, compact: 1, strict: 1 },
    programs: [NOTES, MORE, ALL],
    strict: { collection: 'accounts', prefix: '' },
    subjects: { 'programs changed': 80, tasks: 70 },
  },
  {
    name: 'programs on one log',
    steps: { ...WRITES, task: 8, ...WORK, compact: 2, strict: 2, crash: 1 },
    programs: [NOTES, MORE, ALL],
    strict: { collection: 'accounts', prefix: '' },
    subjects: { tasks: 70, compactions: 40 },
  },
  {
    name: 'clocks that jump',
    steps: { ...WRITES, ...WORK, 'set for a while': 24, jump: 6, purge: 4, hours: 16, crash: 1, compact: 1 },
    hasClocks: true,
    subjects: { expiries: 70, jumps: 80, purges: 50 },
  },
  {
    name: 'values of all sizes',
    steps: { ...WRITES, ...WORK, large: 6, many: 1, crash: 1, 'power cut': 1, compact: 1 },
    maxSteps: 50,
    isSlow: true,
    subjects: { 'large values': 60, 'transactions in parts': 20 },
  },
  {
    name: 'records that mean nothing',
    steps: { ...WRITES, ...WORK, poison: 5, compact: 1, crash: 1 },
    subjects: { 'records refused': 80 },
  },
  ...(['none', 'lossy'] as const).flatMap(comparing),
];

/** Profiles in which replication compares entries with the base, at each start or whenever the feed has lost commits. */
function comparing(feed: 'none' | 'lossy'): Profile[] {
  const [name, steps, subject] =
    feed === 'none'
      ? ['no feed', { ...WRITES, ...WORK, ...AWAY }, 'starts']
      : ['a feed that loses commits', { ...WRITES, ...WORK, ...LOSSY }, 'feeds cut off'];
  const subjects = { [subject]: 60, 'writes compared': 40, 'writes between commits of replication': 40 };
  const both = { programs: [BOTH], strict: { collection: 'accounts', prefix: '' } };
  return [
    { name: `${name}: crashes`, feed, steps: { ...steps, crash: 2, 'power cut': 3, cut: 3 }, subjects },
    {
      name: `${name}: compaction`,
      feed,
      steps: { ...steps, compact: 5, reconnect: 2, crash: 1, cut: 2 },
      subjects: { ...subjects, 'logs cut off': 30 },
    },
    {
      name: `${name}: copies of files`,
      feed,
      steps: { ...steps, clone: 3, crash: 1, compact: 1 },
      subjects: { ...subjects, clones: 60 },
    },
    {
      name: `${name}: strict transactions`,
      feed,
      steps: { ...steps, strict: 6, 'past replication': 4, crash: 1, 'power cut': 1, cut: 1, compact: 1 },
      ...both,
      subjects: { ...subjects, 'strict transactions': 60, 'writes past replication': 60 },
    },
    {
      name: `${name}: both modes in one collection`,
      feed,
      steps: { ...steps, strict: 4, 'past replication': 4, compact: 2, crash: 1 },
      programs: [MIXED],
      strict: { collection: 'notes', prefix: 'c/' },
      subjects: { ...subjects, 'writes past replication': 60 },
    },
    {
      name: `${name}: lost history`,
      feed,
      steps: { ...steps, lose: 2, strict: 2, 'past replication': 1, crash: 1, cut: 1, reconnect: 2 },
      ...both,
      subjects: { ...subjects, losses: 40, repairs: 10 },
    },
    {
      name: `${name}: lost history and compaction`,
      feed,
      steps: { ...steps, lose: 2, compact: 3, crash: 1, cut: 1, reconnect: 2 },
      subjects: { ...subjects, losses: 40, compactions: 40 },
    },
    {
      name: `${name}: programs on one file in turn`,
      feed,
      steps: { ...steps, task: 8, program: 5, compact: 1, strict: 1 },
      programs: [NOTES, MORE, ALL],
      strict: { collection: 'accounts', prefix: '' },
      subjects: { ...subjects, 'programs changed': 80, tasks: 70 },
    },
    {
      name: `${name}: clocks that jump`,
      feed,
      steps: { ...steps, 'set for a while': 12, jump: 6, purge: 4, hours: 6, crash: 1, compact: 1 },
      hasClocks: true,
      subjects: { ...subjects, expiries: 40, jumps: 80 },
    },
  ];
}

const { env } = process;
const RUNS = Number(env['REPLICATION_RUNS'] ?? 20);
/** Of profiles whose histories take ten times as long. */
const SLOW = 4;
/** Fewer histories say nothing of how rare a subject is. */
const MIN_RUNS = 20;
/** How often more histories are played because a subject was rare, which in a few of them is chance. */
const MAX_BATCHES = 5;

/** Leaves steps out as long as the history fails, and fails with what is left. */
async function shrink(profile: Profile, seed: number, steps: readonly Step[]): Promise<void> {
  let left = steps;
  for (let size = left.length, isOver = false; !isOver; size = Math.max(1, Math.floor(size / 2))) {
    isOver = size === 1;
    for (let at = 0; at < left.length; ) {
      const fewer = [...left.slice(0, at), ...left.slice(at + size)];
      const isEnough = await play(profile, seed, fewer).then(
        () => false,
        () => true,
      );
      if (isEnough) [left, isOver] = [fewer, false];
      else at += size;
    }
  }
  process.stderr.write(`${left.length} steps are enough, with the seed ${seed}: ${JSON.stringify(left)}\n`);
  await play(profile, seed, left);
}

for (const profile of PROFILES) {
  const type = fc.oneof(
    ...Object.entries(profile.steps).map(([name, weight]) => ({ weight, arbitrary: fc.constant(name) })),
  );
  const step: fc.Arbitrary<Step> = fc.noBias(
    fc.record({
      type,
      device: fc.nat({ max: MAX_DEVICES - 1 }),
      key: fc.nat({ max: 5 }),
      other: fc.nat({ max: 5 }),
      amount: fc.nat({ max: 99 }),
    }),
  );
  test(`devices have what the log says: ${profile.name}`, async () => {
    /** In how many histories a subject occurred. */
    const covered = new Map<string, number>();
    const totals = new Map<string, number>();
    let runs = 0;
    const isRare = ([subject, in200]: readonly [string, number]): boolean =>
      (covered.get(subject) ?? 0) < (runs * in200) / 200;
    const findRare = (): string | undefined =>
      runs < MIN_RUNS ? undefined : Object.entries(profile.subjects).find(isRare)?.[0];
    for (let batch = 0; batch === 0 || (batch < MAX_BATCHES && findRare() !== undefined); batch++) {
      const result = await fc.check(
        fc.asyncProperty(
          fc.nat(),
          fc.array(step, { minLength: 30, maxLength: profile.maxSteps ?? 90, size: 'max' }),
          async (seed, steps) => {
            const counts = await play(profile, seed, steps);
            runs++;
            for (const [subject, count] of counts) {
              covered.set(subject, (covered.get(subject) ?? 0) + Number(count > 0));
              totals.set(subject, (totals.get(subject) ?? 0) + count);
            }
          },
        ),
        {
          numRuns: Math.ceil(RUNS / (profile.isSlow === true ? SLOW : 1)),
          includeErrorInReport: true,
          endOnFailure: true,
          ...(env['REPLICATION_SEED'] && { seed: Number(env['REPLICATION_SEED']) + batch }),
          ...(env['REPLICATION_PATH'] && { path: env['REPLICATION_PATH'] }),
        },
      );
      if (result.counterexample !== null && env['REPLICATION_SHRINK'] !== undefined)
        await shrink(profile, ...result.counterexample);
      assert.ok(!result.failed, fc.defaultReportMessage(result) ?? '');
    }
    if (env['REPLICATION_COUNTS'] !== undefined)
      process.stderr.write(
        `${profile.name}: ${runs} histories; ${[...totals].map(([subject, count]) => `${subject} ${count} in ${covered.get(subject) ?? 0}`).join(', ')}\n`,
      );
    const rare = findRare();
    assert.ok(rare === undefined, `${rare}: rare, in ${covered.get(rare ?? '') ?? 0} of ${runs} histories`);
  });
}
