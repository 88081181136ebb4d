// One random schedule, generated from a seed: actions of handles and faults, then a phase without
// faults in which everything must recover.
import { Hub } from '../../../src/processes/hub.ts';
import { ask } from '../../tabs/ask.ts';
import { kinds } from '../../tabs/operations.ts';
import type { Pushed } from '../../tabs/page.ts';
import { Random } from '../../tabs/random.ts';
import type { Handle } from './handle.ts';
import type { Process } from './process.ts';
import { Stranger } from './stranger.ts';
import { World, noFaults } from './world.ts';
import type { Counts, Faults } from './world.ts';

type Deed =
  | 'push'
  | 'open'
  | 'kill'
  | 'kill leader'
  | 'stop'
  | 'stop leader'
  | 'continue'
  | 'leave'
  | 'leave leader'
  | 'abort'
  | 'terminate'
  | 'stranger'
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
  /** Part of the messages that stop each engine that executes them. */
  readonly poison: number;
  readonly actions: readonly Action[];
}

export interface Outcome {
  readonly violation: string | undefined;
  readonly counts: Counts;
  readonly takeOvers: readonly number[];
  /** Time from the end of the faults until some process led and all messages were answered. */
  readonly settledMs: number;
  readonly maxWaitMs: number;
  readonly lostSnapshots: number;
}

const MAX_HANDLES = 6;
/** Longer than what can remain of any wait once the faults have ended. */
const PEACE_MS = 30_000;
const MAX_SETTLED_MS = 6000;
/** Allowance beyond the deadline: faults may end leaders repeatedly, but every wait ends. */
const WAR_MS = 20_000;
/** How soon a handle is open when nothing goes wrong. */
const OPENING_MS = 1000;
/** How soon a follower hears of a commit then: a message may be left out for one that reads slowly. */
const WAKE_MS = 2000;
/** By when everything has arrived that was sent before the end of the faults. */
const DELIVERED_MS = 3100;
/** How soon it hears when none was left out. */
const NEXT_WAKE_MS = 100;

const WEIGHTS: readonly (readonly [Deed, number])[] = [
  ['push', 40],
  ['open', 8],
  ['kill', 2],
  ['kill leader', 3],
  ['stop', 4],
  ['stop leader', 4],
  ['continue', 6],
  ['leave', 4],
  ['leave leader', 3],
  ['abort', 2],
  ['terminate', 1],
  ['stranger', 1],
  ['clock', 1],
];

export function planOf(seed: number): Plan {
  const random = new Random(seed);
  // Most schedules have few kinds of faults, so that failures are easier to understand and the
  // schedules get further.
  const some = (most: number): number => (random.chance(0.5) ? 0 : most * random.next());
  const faults: Faults = {
    delay: some(0.3),
    delayMs: random.pick([20, 200, 3000]),
    crash: some(0.03),
    die: some(0.01),
    notOpened: some(0.1),
    noRoom: some(0.2),
    notClosed: some(0.1),
    flushMs: random.pick([0, 5, 50, 500]),
    cut: some(0.5),
    lateMs: random.pick([0, 0, 20, 500]),
    unreadable: some(0.2),
    stale: some(0.3),
    deaf: random.chance(0.1) ? random.next() : 0,
    slowListen: some(0.5),
  };
  const weights = WEIGHTS.map(([deed, weight]): readonly [Deed, number] => {
    return [deed, deed === 'push' || deed === 'open' ? weight : random.chance(0.5) ? 0 : weight * random.next()];
  });
  const total = weights.reduce((sum, [, weight]) => sum + weight, 0);
  const actions: Action[] = [];
  const length = random.pick([10, 20, 40]);
  const pauseMs = random.pick([1, 5, 50, 500, 2000]);
  let at = 0;
  actions.push({ at, deed: 'open', dice: random.next() });
  for (let i = 0; i < length; i++) {
    at += random.below(random.chance(0.1) ? 10 * pauseMs : pauseMs);
    let ticket = random.next() * total;
    const [deed] = weights.find(([, weight]) => (ticket -= weight) < 0) ?? weights[0]!;
    actions.push({ at, deed, dice: random.next() });
  }
  return { seed, faults, deadlineMs: random.pick([3000, 8000]), poison: some(0.1) * random.below(2), actions };
}

export async function run(plan: Plan, trace?: string[]): Promise<Outcome> {
  const world = new World(new Random(plan.seed ^ 0x5bd1e995), plan.faults);
  world.trace = trace;
  for (const action of plan.actions) {
    await world.run(action.at - world.now);
    if (world.violation !== undefined) break;
    await act(world, plan, action);
  }
  const settledMs = world.violation === undefined ? await makePeace(world) : 0;
  return {
    violation: world.violation,
    counts: world.counts,
    takeOvers: world.takeOvers,
    settledMs,
    maxWaitMs: Math.max(0, ...world.handles.map((handle) => handle.maxWaitMs)),
    lostSnapshots: world.handles.reduce((sum, handle) => sum + handle.lostSnapshots, 0),
  };
}

async function act(world: World, plan: Plan, { deed, dice }: Action): Promise<void> {
  const random = new Random(Math.floor(dice * 2 ** 32));
  const alive = world.processes.filter(({ isAlive }) => isAlive);
  const some = alive.length === 0 ? undefined : random.pick(alive);
  const staying = world.handles.filter(({ isStaying, process }) => isStaying && !process.isStopped);
  const { leader } = world;
  const leave = async (from: readonly Handle[]): Promise<void> => {
    if (from.length === 0) return;
    const handle = random.pick(from);
    await world.act(handle.process, () => handle.leave());
  };
  switch (deed) {
    case 'push': {
      const open = staying.filter(({ isOpen }) => isOpen);
      if (open.length === 0) return;
      const handle = random.pick(open);
      await world.act(handle.process, () => {
        if (random.chance(plan.poison)) handle.push(kinds.append, kinds.poison);
        else ask(handle, random);
      });
      return;
    }
    case 'open': {
      if (staying.length >= MAX_HANDLES) return;
      const running = alive.filter(({ isStopped }) => !isStopped);
      const beside = running.length > 0 && random.chance(0.5) ? random.pick(running) : undefined;
      const of = beside !== undefined && random.chance(0.7) ? beside : world.spawn(beside);
      await world.open(of, plan.deadlineMs);
      return;
    }
    case 'kill':
      if (some !== undefined) world.kill(some);
      return;
    case 'kill leader':
      if (leader !== undefined) world.kill(leader);
      return;
    case 'stop':
      if (some !== undefined) world.stop(some);
      return;
    case 'stop leader':
      if (leader !== undefined) world.stop(leader);
      return;
    case 'continue':
      for (const one of alive) if (random.chance(0.5)) world.continue(one);
      return;
    case 'leave':
      return leave(staying);
    case 'leave leader':
      return leave(staying.filter(({ isLeading }) => isLeading));
    case 'abort': {
      const opening = staying.filter(({ openings, isFirst }) => openings === 0 && !isFirst);
      if (opening.length === 0) return;
      const handle = random.pick(opening);
      await world.act(handle.process, () => handle.abort());
      return;
    }
    case 'terminate':
      if (some !== undefined) world.terminate(some);
      return;
    case 'stranger': {
      const stranger = new Stranger(world.spawn(), staying[0]?.id ?? '', random);
      world.strangers.push(stranger);
      await world.act(stranger.process, () => void stranger.start(world));
      return;
    }
    case 'clock':
      if (some !== undefined) some.clockMs += random.pick([-1, -100, -5000, -3_600_000, 5000, 3_600_000]);
  }
}

/**
 * Ends all faults and checks that some process leads soon, every message is answered and each handle is
 * served. Returns how long that took, in milliseconds.
 */
async function makePeace(world: World): Promise<number> {
  const since = world.now;
  world.say(() => 'peace');
  world.faults = { ...noFaults };
  for (const one of world.processes) world.continue(one);
  const rest = (): Handle[] => world.handles.filter(({ isStaying }) => isStaying);
  const isCalm = (): boolean =>
    world.handles.every(({ isAlive, isLeaving, isOver }) => !isAlive || !isLeaving || isOver) &&
    rest().every((handle) => handle.pending.length === 0 && handle.openings > 0 && handle.role !== 'opening') &&
    (rest().length === 0 || world.leader !== undefined);
  // One that cannot be reached lets others wait, as long as it leads.
  const isReachable = (): boolean => world.leader === undefined || world.address?.reason === undefined;
  await world.run(PEACE_MS, isCalm);
  if (world.violation !== undefined) return 0;
  for (const handle of world.handles) {
    if (!handle.isAlive) continue;
    if (handle.pending.length > 0) world.violate(`${handle.id} waits for ever for an answer`);
    if (handle.isLeaving && !handle.isOver) world.violate(`${handle.id} cannot leave`);
    if (handle.isStaying && handle.openings === 0) world.violate(`${handle.id} is not opened`);
  }
  if (rest().length > 0 && world.leader === undefined) world.violate('nobody leads');
  const settledMs = world.now - since;
  if (settledMs > MAX_SETTLED_MS && isReachable()) world.violate(`recovery took ${settledMs} ms after the last fault`);
  if (world.violation !== undefined) return settledMs;
  await welcome(world, isReachable());
  if (!isReachable() || world.violation !== undefined) return settledMs;
  await probe(world, rest);
  await wake(world, rest);
  await forget(world, rest);
  await checkMembers(world, rest);
  for (const handle of world.handles)
    if (handle.maxWaitMs > handle.deadlineMs + WAR_MS)
      world.violate(`${handle.id} waited ${handle.maxWaitMs} ms for an answer`);
  return settledMs;
}

/** Newcomers, in a process of their own and beside the one that leads, are served soon. */
async function welcome(world: World, isReachable: boolean): Promise<void> {
  const places: Process[] = [world.leader ?? world.spawn()];
  if (isReachable) places.unshift(world.spawn());
  const newcomers: Handle[] = [];
  for (const place of places) newcomers.push(await world.open(place, OPENING_MS * 3));
  await world.run(OPENING_MS, () => newcomers.every(({ openings }) => openings > 0));
  for (const { id, openings, failure } of newcomers)
    if (openings === 0) world.violate(`the newcomer ${id} is not served: ${failure?.message ?? 'no answer'}`);
}

/** Everybody is served by now, also who was refused just before the end of the faults. */
async function probe(world: World, rest: () => Handle[]): Promise<void> {
  const probes: { readonly handle: Handle; readonly pushed: Pushed }[] = [];
  for (const handle of rest()) {
    const snapshots = [...handle.snapshots.keys()].map((snapshot) => ({ kind: kinds.readSnapshot, handle: snapshot }));
    await world.act(handle.process, () => {
      probes.push({ handle, pushed: handle.push(kinds.read, kinds.append, ...snapshots) });
    });
  }
  await world.run(PEACE_MS, () => rest().every(({ pending }) => pending.length === 0));
  for (const { handle, pushed } of probes) {
    if (pushed.outcomes === undefined)
      world.violate(`${handle.id} is not served: ${pushed.refused?.message ?? handle.failure?.message ?? 'no answer'}`);
  }
}

/** Followers hear of the last commit, and of the next one at once. */
async function wake(world: World, rest: () => Handle[]): Promise<void> {
  await poll(world, rest, WAKE_MS);
  const last = rest()[0];
  if (last === undefined || world.violation !== undefined) return;
  // What was sent before the end of the faults has arrived by then, and hides no commit.
  await world.run(DELIVERED_MS);
  await poll(world, rest, WAKE_MS);
  await world.act(last.process, () => {
    last.push(kinds.append);
  });
  await poll(world, rest, NEXT_WAKE_MS);
}

/** Lets followers read when they are woken, until all have read everything. */
async function poll(world: World, rest: () => Handle[], ms: number): Promise<void> {
  const isBehind = (handle: Handle): boolean =>
    handle.pending.length > 0 || (handle.followed !== undefined && handle.followed < world.store.version);
  const until = world.now + ms;
  while (world.violation === undefined && world.now < until && rest().some(isBehind)) {
    for (const handle of rest()) {
      if (!handle.hasWakes || handle.pending.length > 0) continue;
      handle.hasWakes = false;
      await world.act(handle.process, () => {
        handle.push(kinds.poll);
      });
    }
    await world.run(5);
  }
  for (const handle of rest())
    if (isBehind(handle))
      world.violate(
        `${handle.id} follows and does not hear of version ${world.store.version}, only of ${handle.followed}`,
      );
}

/** The one who leads has the others as members, and nobody else. */
async function checkMembers(world: World, rest: () => Handle[]): Promise<void> {
  const members = (): string => {
    const hub = world.leader?.hub;
    const clients = hub instanceof Hub ? [...hub.members] : [];
    return clients.sort().join(' ');
  };
  const others = (): string =>
    rest()
      .flatMap(({ id, isLeading }) => (isLeading ? [] : [id]))
      .sort()
      .join(' ');
  const isOut = ({ process, isOut: isEnded }: Stranger): boolean => !process.isAlive || isEnded;
  // What was sent before the end of the faults may still be under way.
  await world.run(PEACE_MS, () => members() === others() && world.strangers.every(isOut));
  if (members() !== others())
    world.violate(`${world.leader?.name} has the members ${members()}, and there are ${others()}`);
  for (const stranger of world.strangers)
    if (!isOut(stranger) || stranger.isWrongIn) world.violate(`the stranger ${stranger.process.name} is a member`);
}

/** Nothing is kept for clients whose processes are gone. */
async function forget(world: World, rest: () => Handle[]): Promise<void> {
  const gone = (): string[] =>
    [...world.store.rows.keys()].filter(
      (client) =>
        !world.handles.some(({ id, process: of }) => id === client && (of.isAlive || world.threadsOf(of).length > 0)),
    );
  await world.run(PEACE_MS, () => rest().length === 0 || gone().length === 0);
  if (rest().length > 0 && gone().length > 0) world.violate(`the outcomes of ${gone().join(' ')} are kept for ever`);
}
