// One random schedule, generated from a seed: actions of tabs and faults, then a phase without
// faults in which everything must recover.
import { ask } from './ask.ts';
import { kinds } from './operations.ts';
import type { Pushed } from './page.ts';
import { Random } from './random.ts';
import type { Tab } from './tab.ts';
import { World, noFaults } from './world.ts';
import type { Counts, Faults } from './world.ts';

type Deed =
  | 'push'
  | 'open'
  | 'kill'
  | 'kill leader'
  | 'freeze'
  | 'freeze leader'
  | 'keep leader'
  | 'thaw'
  | 'visible'
  | 'hide'
  | 'show'
  | 'leave'
  | 'reload leader'
  | 'restart'
  | 'clock';

export interface Action {
  readonly at: number;
  readonly deed: Deed;
  /** Determines all further choices of the action. */
  readonly dice: number;
}

export interface Plan {
  readonly seed: number;
  readonly faults: Faults;
  readonly deadlineMs: number;
  readonly actions: readonly Action[];
}

export interface Outcome {
  readonly violation: string | undefined;
  readonly counts: Counts;
  readonly takeOvers: readonly number[];
  /** Time from the end of the faults until some tab led and all messages were answered. */
  readonly settledMs: number;
  readonly maxWaitMs: number;
  readonly lostSnapshots: number;
}

const MAX_TABS = 5;
/** Longer than what can remain of any wait once the faults have ended. */
const PEACE_MS = 30_000;
const MAX_SETTLED_MS = 10_000;
/** Allowance beyond the deadline: faults may lose messages repeatedly, but every wait ends. */
const WAR_MS = 30_000;

const WEIGHTS: readonly (readonly [Deed, number])[] = [
  ['push', 40],
  ['open', 6],
  ['kill', 2],
  ['kill leader', 3],
  ['freeze', 2],
  ['freeze leader', 5],
  ['keep leader', 3],
  ['thaw', 5],
  ['visible', 8],
  ['hide', 4],
  ['show', 5],
  ['leave', 3],
  ['reload leader', 2],
  ['restart', 3],
  ['clock', 1],
];

export function planOf(seed: number): Plan {
  const random = new Random(seed);
  // Most schedules have few kinds of faults, so that failures are easier to understand and the
  // schedules get further.
  const some = (most: number): number => (random.chance(0.5) ? 0 : most * random.next());
  const faults: Faults = {
    drop: some(0.2),
    duplicate: some(0.2),
    delay: some(0.3),
    delayMs: random.pick([20, 200, 3000]),
    underway: some(0.1),
    buffer: random.pick([0, 0.5, 1]),
    crash: some(0.04),
    die: some(0.01),
    notOpened: some(0.1),
    noRoom: some(0.2),
    notClosed: some(0.1),
    later: some(1),
    lateMs: random.pick([0, 0, 20, 500]),
    cut: some(0.5),
  };
  const weights = WEIGHTS.map(([deed, weight]): readonly [Deed, number] => {
    return [deed, deed === 'push' || deed === 'open' ? weight : random.chance(0.5) ? 0 : weight * random.next()];
  });
  const total = weights.reduce((sum, [, weight]) => sum + weight, 0);
  const actions: Action[] = [];
  const length = random.pick([10, 20, 40]);
  const pauseMs = random.pick([5, 50, 500, 1000, 2000]);
  let at = 0;
  actions.push({ at, deed: 'open', dice: random.next() });
  for (let i = 0; i < length; i++) {
    at += random.below(random.chance(0.1) ? 10 * pauseMs : pauseMs);
    let ticket = random.next() * total;
    const [deed] = weights.find(([, weight]) => (ticket -= weight) < 0) ?? weights[0]!;
    actions.push({ at, deed, dice: random.next() });
  }
  return { seed, faults, deadlineMs: random.pick([5000, 8000]), actions };
}

export function run(plan: Plan, trace?: string[]): Outcome {
  const world = new World(new Random(plan.seed ^ 0x5bd1e995), plan.faults);
  world.trace = trace;
  for (const action of plan.actions) {
    world.run(action.at - world.now);
    if (world.violation !== undefined) break;
    act(world, plan, action);
    world.check();
  }
  let settledMs = 0;
  if (world.violation === undefined) settledMs = makePeace(world);
  return {
    violation: world.violation,
    counts: world.counts,
    takeOvers: world.takeOvers,
    settledMs,
    maxWaitMs: Math.max(0, ...world.tabs.map((tab) => tab.maxWaitMs)),
    lostSnapshots: world.tabs.reduce((sum, tab) => sum + tab.lostSnapshots, 0),
  };
}

function act(world: World, plan: Plan, { deed, dice }: Action): void {
  const random = new Random(Math.floor(dice * 2 ** 32));
  const alive = world.tabs.filter((tab) => tab.isAlive && tab.failure === undefined && !tab.hasLeft);
  const open = alive.filter((tab) => tab.isOpen);
  const { leader } = world;
  const tab = alive.length === 0 ? undefined : random.pick(alive);
  switch (deed) {
    case 'push':
      if (open.length > 0) ask(random.pick(open), random);
      return;
    case 'open':
      if (alive.length < MAX_TABS) world.open({ visible: random.chance(0.7), deadlineMs: plan.deadlineMs });
      return;
    case 'kill':
      if (tab !== undefined) world.kill(tab);
      return;
    case 'kill leader':
      if (leader !== undefined) world.kill(leader);
      return;
    case 'freeze':
      if (tab !== undefined) world.freeze(tab);
      return;
    case 'freeze leader':
      if (leader !== undefined) world.freeze(leader);
      return;
    case 'keep leader':
      if (leader !== undefined) world.keep(leader);
      return;
    case 'thaw':
      // A page in the back/forward cache thaws when it is shown.
      for (const one of alive) if (!one.isHidden && random.chance(0.5)) world.thaw(one);
      return;
    case 'visible':
      if (open.length > 0) {
        const one = random.pick(open);
        one.setVisible(!one.isVisible);
      }
      return;
    case 'hide':
      if (open.length > 0) {
        const one = random.pick(open);
        one.hide();
        if (random.chance(0.5))
          world.later(random.below(2000), undefined, () => {
            if (one.isHidden) world.freeze(one);
          });
      }
      return;
    case 'show':
      for (const one of alive) if (one.isHidden && random.chance(0.5)) one.show();
      return;
    case 'leave':
      if (tab !== undefined && !tab.isFrozen && !tab.isLeaving) tab.leave();
      return;
    case 'reload leader':
      if (leader !== undefined) {
        world.kill(leader);
        world.open({ visible: leader.isVisible, deadlineMs: plan.deadlineMs });
      }
      return;
    case 'restart':
      if (tab !== undefined && !tab.isFrozen && !tab.isHidden && !tab.isLeaving) world.restart(tab);
      return;
    case 'clock':
      world.stepClock(random.pick([1, 100, 5000, 3_600_000]));
  }
}

/**
 * Ends all faults and checks that some tab leads soon, every message is answered and each tab is
 * served. Returns how long that took, in milliseconds.
 */
function makePeace(world: World): number {
  const since = world.now;
  world.say(() => 'peace');
  world.faults = { ...noFaults };
  for (const tab of world.tabs) {
    if (!tab.isAlive) continue;
    if (tab.isHidden) tab.show();
    world.thaw(tab);
  }
  const rest = (): Tab[] => world.tabs.filter((tab) => tab.isAlive && tab.failure === undefined && !tab.hasLeft);
  world.run(
    PEACE_MS,
    () =>
      rest().every((tab) => tab.pending.length === 0 && !tab.isLeaving) &&
      (rest().length === 0 || world.leader !== undefined),
  );
  if (world.violation !== undefined) return 0;
  for (const tab of rest()) {
    if (tab.pending.length > 0) world.violate(`${tab.id} waits for ever for an answer`);
    if (tab.isLeaving) world.violate(`${tab.id} cannot leave`);
  }
  if (rest().length > 0 && world.leader === undefined) world.violate('nobody leads');
  const settledMs = world.now - since;
  if (settledMs > MAX_SETTLED_MS) world.violate(`recovery took ${settledMs} ms after the last fault`);
  // Tabs that were refused just before the end of the faults must be served by now, too.
  const probes: { readonly tab: Tab; readonly pushed: Pushed }[] = [];
  world.run(PEACE_MS, () => rest().every((tab) => tab.openings > 0 && tab.peer.role !== 'opening'));
  for (const tab of rest())
    probes.push({
      tab,
      pushed: tab.push(
        kinds.read,
        kinds.append,
        ...[...tab.snapshots.keys()].map((handle) => ({ kind: kinds.readSnapshot, handle })),
      ),
    });
  world.run(PEACE_MS, () => rest().every((tab) => tab.pending.length === 0));
  for (const { tab, pushed } of probes) {
    if (pushed.outcomes === undefined)
      world.violate(`${tab.id} is not served: ${pushed.refused?.message ?? tab.failure?.message ?? 'no answer'}`);
  }
  // Followers must hear of the last commit.
  const isBehind = (tab: Tab): boolean => tab.followed !== undefined && tab.followed < world.store.version;
  world.run(PEACE_MS, () => {
    for (const tab of rest()) {
      if (!tab.hasWakes || tab.pending.length > 0) continue;
      tab.hasWakes = false;
      tab.push(kinds.poll);
    }
    return !rest().some(isBehind);
  });
  for (const tab of rest())
    if (isBehind(tab))
      world.violate(`${tab.id} follows and does not hear of version ${world.store.version}, only of ${tab.followed}`);
  // Nothing may be kept for clients that are gone.
  const gone = (): string[] =>
    [...world.store.rows.keys()].filter((client) => !rest().some((tab) => tab.id === client));
  world.run(PEACE_MS, () => rest().length === 0 || gone().length === 0);
  if (rest().length > 0 && gone().length > 0) world.violate(`the outcomes of ${gone().join(' ')} are kept for ever`);
  for (const tab of world.tabs)
    if (tab.maxWaitMs > tab.deadlineMs + WAR_MS) world.violate(`${tab.id} waited ${tab.maxWaitMs} ms for an answer`);
  return settledMs;
}
