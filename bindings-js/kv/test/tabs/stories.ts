// Helpers shared by the stories. Times are simulated.
import { strict as assert } from 'node:assert';
import type { Message } from '../../src/tabs/messages.ts';
import { Random } from './random.ts';
import type { Tab } from './tab.ts';
import { World } from './world.ts';
import type { Faults } from './world.ts';

export function make(faults: Partial<Faults> = {}, seed = 1): World {
  const world = new World(new Random(seed), faults);
  world.trace = [];
  return world;
}

/** Advances time; fails on a violation. */
export function pass(world: World, ms = 1000): void {
  world.run(ms);
  assert.equal(world.violation, undefined, world.trace?.join('\n'));
}

/** Opens a leader and one follower for each of `others`. */
export function together(world: World, ...others: { visible?: boolean; deadlineMs?: number }[]): Tab[] {
  const tabs = [world.open()];
  pass(world);
  for (const options of others) {
    tabs.push(world.open(options));
    pass(world);
  }
  assert.deepEqual(
    tabs.map((tab) => tab.peer.role),
    ['leader', ...others.map(() => 'follower')],
  );
  return tabs;
}

export function loseFirst(world: World, type: Message['type'], count: number): void {
  let left = count;
  world.isLost = (message, to) =>
    message.type === type && (!('client' in message) || message.client !== to.id) && left-- > 0;
}
