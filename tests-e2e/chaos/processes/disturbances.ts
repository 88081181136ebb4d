// Disturbances: what the run does to the processes.
import type { Random } from '../random.ts';
import type { Member } from './member.ts';

/** A disturbance's view of the run. */
export interface Scene {
  readonly random: Random;
  readonly members: Member[];
  readonly most: number;
  /** Starts a process under load. */
  start(): Promise<void>;
  /** Leaves of the files what a power cut may leave. No process runs. */
  cutPower(): void;
}

export type Disturb = (scene: Scene, victim: Member) => Promise<void>;

/** Longest stop; exceeds the time that calls wait for one who leads. */
const STOPPED_MS = 4000;
const STARVED_MS = 3000;
/** A process needs about half of it until it has opened the database. */
const OPENING_MS = 1500;

export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

function drop({ members }: Scene, victim: Member): void {
  members.splice(members.indexOf(victim), 1);
}

async function kill(scene: Scene, victims: readonly Member[]): Promise<void> {
  for (const victim of victims) drop(scene, victim);
  await Promise.all(victims.map((victim) => victim.kill()));
  await Promise.all(victims.map(() => scene.start()));
}

async function cut(scene: Scene): Promise<number> {
  const victims = scene.members.splice(0);
  await Promise.all(victims.map((victim) => victim.kill()));
  scene.cutPower();
  return victims.length;
}

export const POWER_CUTS = {
  'power cut': async (scene) => {
    const count = await cut(scene);
    await Promise.all(Array.from({ length: count }, () => scene.start()));
  },
  'power cut, and another one after it': async (scene) => {
    const count = await cut(scene);
    // Those that are killed while they open the database fail to.
    const opening = Promise.allSettled(Array.from({ length: count }, () => scene.start()));
    await sleep(scene.random.below(OPENING_MS));
    await cut(scene);
    await opening;
    await Promise.all(Array.from({ length: count }, () => scene.start()));
  },
} as const satisfies Readonly<Record<string, Disturb>>;

export const DISTURBANCES: Readonly<Record<string, Disturb>> = {
  'kill -9': (scene, victim) => kill(scene, [victim]),
  'kill -9 two': async (scene, victim) => {
    const other = scene.random.of(scene.members);
    await kill(scene, [...new Set([victim, other])]);
  },
  'kill -9 all': (scene) => kill(scene, [...scene.members]),
  'kill -9 the successor, too': async (scene, victim) => {
    drop(scene, victim);
    await victim.kill();
    await sleep(scene.random.below(30));
    await kill(scene, [scene.random.of(scene.members)]);
    await scene.start();
  },
  'stop': async (scene, victim) => {
    victim.stop();
    await sleep(scene.random.below(STOPPED_MS));
    victim.goOn();
  },
  'stop, and kill another': async (scene, victim) => {
    victim.stop();
    await sleep(scene.random.below(500));
    const others = scene.members.filter((member) => member !== victim);
    const killed = scene.random.of(others);
    drop(scene, killed);
    await killed.kill();
    await sleep(scene.random.below(STOPPED_MS));
    victim.goOn();
    await scene.start();
  },
  'stop and kill -9': async (scene, victim) => {
    victim.stop();
    await sleep(scene.random.below(1500));
    await kill(scene, [victim]);
  },
  'close and end': async (scene, victim) => {
    drop(scene, victim);
    await victim.end('shut');
    await scene.start();
  },
  'end without closing': async (scene, victim) => {
    drop(scene, victim);
    await victim.end('exit');
    await scene.start();
  },
  'close and open the database': (_scene, victim) => victim.call('reopen'),
  'hot reload': async (scene, victim) => {
    for (let count = 1 + scene.random.below(3); count > 0; count--) await victim.call('reload');
  },
  'all reload': async (scene) => {
    await Promise.all(scene.members.map((member) => member.call('reload')));
  },
  'starve': async (scene, victim) => victim.call('starve', scene.random.below(STARVED_MS)),
  ...POWER_CUTS,
  'start': async (scene) => {
    if (scene.members.length < scene.most) await scene.start();
  },
};
