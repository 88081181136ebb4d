import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { kinds } from './operations.ts';
import { Random } from './random.ts';
import { World } from './world.ts';

const { append, read } = kinds;

function settle(world: World, ms = 1000): void {
  world.run(ms);
  assert.equal(world.violation, undefined);
}

test('one tab opens and is served by itself', () => {
  const world = new World(new Random(1));
  const tab = world.open();
  const asked = tab.push(append, read);
  settle(world);
  assert.equal(tab.peer.role, 'leader');
  assert.equal(tab.openings, 1);
  assert.deepEqual(asked.outcomes, [1, 1]);
});

test('a second tab is served by the first', () => {
  const world = new World(new Random(1));
  const first = world.open();
  settle(world);
  const second = world.open();
  const asked = second.push(append, read);
  settle(world);
  assert.equal(first.peer.role, 'leader');
  assert.equal(second.peer.role, 'follower');
  assert.deepEqual(asked.outcomes, [1, 1]);
});
