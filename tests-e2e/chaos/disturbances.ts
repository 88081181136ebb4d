// Disturbances: what the run does to the tabs.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { killBrowser, processesOf } from '../processes.ts';
import type { FaultOrder } from './messages.ts';
import type { Random } from './random.ts';
import { type Tab, within } from './tabs.ts';

/** A disturbance's view of the run. */
export interface Scene {
  readonly random: Random;
  readonly tabs: Tab[];
  readonly round: number;
  readonly most: number;
  readonly profile: string;
  /** The leading tab, if any. */
  leader(): Promise<Tab | undefined>;
  openTab(): Promise<Tab>;
  /** Resolves to true when a worker halts within a commit, to false if none does. */
  halted(): Promise<boolean>;
  /** Starts the browser again after all its processes were killed. */
  restart(): Promise<void>;
  newSeed(): number;
}

export type Disturb = (scene: Scene, victim: Tab, isLeader: boolean) => Promise<void>;

/** Longest stop; exceeds the missed heartbeats after which a leader counts as silent. */
const STOPPED_MS = 8000;

const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

function isRenderer(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('--type=renderer');
  } catch {
    // The process has ended in the meantime.
    return false;
  }
}

function drop(scene: Scene, tab: Tab): void {
  const at = scene.tabs.indexOf(tab);
  if (at >= 0) scene.tabs.splice(at, 1);
}

async function replace(scene: Scene, tab: Tab): Promise<void> {
  drop(scene, tab);
  await tab.page.close().catch(() => undefined);
  if (scene.tabs.length < scene.most) scene.tabs.push(await scene.openTab());
}

async function crash(_scene: Scene, victim: Tab): Promise<void> {
  const session = await victim.devtools();
  const crashed = victim.page.waitForEvent('crash', { timeout: 10_000 });
  session.send('Page.crash').catch(() => undefined);
  await crashed;
}

/** Tabs of one site may share a process, so a crash may hit several of them. */
async function replaceCrashed(scene: Scene): Promise<void> {
  await sleep(200);
  for (const tab of scene.tabs.filter(({ isCrashed }) => isCrashed)) await replace(scene, tab);
}

async function killAndRestart(scene: Scene): Promise<void> {
  killBrowser(scene.profile);
  await scene.restart();
}

/** A random point within a commit: before or after a file operation of the engine. */
function anyPoint(random: Random): Extract<FaultOrder, { fault: 'halt' }> {
  return { fault: 'halt', at: random.of(['write', 'flush']), isAfter: random.below(2) === 1 };
}

/** Orders the victim's worker to halt within a commit; false if no worker halted in time. */
async function halt(scene: Scene, victim: Tab, whenHalted: boolean): Promise<boolean> {
  const halted = scene.halted();
  if (whenHalted) await victim.call('terminate', true);
  await victim.call('order', anyPoint(scene.random));
  return halted;
}

/** Disturbances by name, for every browser. */
export const EVERYWHERE: Readonly<Record<string, Disturb>> = {
  'close': async (scene, victim) => {
    drop(scene, victim);
    await victim.page.close();
  },
  'reload': async (scene, victim) => {
    await within(30_000, 'reload', victim.page.reload());
    await victim.begin(scene.newSeed(), scene.round);
  },
  'leave for another page and come back': async (scene, victim) => {
    await within(30_000, 'leaving', victim.page.goto('about:blank'));
    await sleep(scene.random.below(500));
    await victim.enter(scene.newSeed(), scene.round);
  },
  'close and open the database': (_scene, victim) => victim.call('reopen'),
  'end the worker': (_scene, victim) => victim.call('terminate', false),
  'end the worker within a commit': async (scene, victim) => {
    await halt(scene, victim, true);
  },
  'trap': (_scene, victim) => victim.call('order', { fault: 'trap' }),
  'hide': async (scene, victim) => {
    victim.isHidden = true;
    await victim.call('setHidden', true);
    await sleep(scene.random.below(1500));
  },
  'open': async (scene) => {
    if (scene.tabs.length < scene.most) scene.tabs.push(await scene.openTab());
  },
  'kill -9 the browser': killAndRestart,
  'kill -9 the browser within a commit': async (scene, victim) => {
    await halt(scene, victim, false);
    await killAndRestart(scene);
  },
};

/** Disturbances that work in Chromium only, some because they need its DevTools protocol. */
export const IN_CHROMIUM: Readonly<Record<string, Disturb>> = {
  'go to another page and back': (scene, victim) =>
    victim.leaveAndGoBack(scene.random.below(3000), scene.newSeed(), scene.round),
  'go to another page within a commit, and back': async (scene, victim) => {
    const point = anyPoint(scene.random);
    // Never halt before a write: by then the worker has already checked whether its page exists.
    const isAfter = point.isAfter || point.at === 'write';
    await victim.call('order', { ...point, isAfter, ms: 100 + scene.random.below(1500) });
    await victim.leaveAndGoBack(scene.random.below(3000), scene.newSeed(), scene.round);
  },
  'crash': async (scene, victim) => {
    await crash(scene, victim);
    await replaceCrashed(scene);
  },
  'crash within a commit': async (scene, victim) => {
    await halt(scene, victim, false);
    await crash(scene, victim);
    await replaceCrashed(scene);
  },
  // The page gets no event, as when a laptop's lid is closed or a phone suspends it in a hurry.
  'stop the process': async (scene) => {
    const renderers = processesOf(scene.profile).filter(isRenderer);
    const pid = String(scene.random.of(renderers));
    execFileSync('kill', ['-STOP', pid]);
    try {
      // Several tabs may share the process.
      await Promise.all(
        scene.tabs.map(async (tab) => {
          tab.isFrozen = await within(
            1000,
            'a sign of life',
            tab.page.evaluate(() => false),
          ).catch(() => true);
        }),
      );
      await sleep(scene.random.below(STOPPED_MS));
    } finally {
      execFileSync('kill', ['-CONT', pid]);
      for (const tab of scene.tabs) tab.isFrozen = false;
    }
  },
  'stop in the debugger': async (scene, victim) => {
    const session = await victim.devtools();
    await session.send('Debugger.enable');
    await session.send('Debugger.pause');
    victim.isFrozen = true;
    await sleep(scene.random.below(STOPPED_MS));
    await session.send('Debugger.disable');
    victim.isFrozen = false;
  },
};
