// Stories of pages that are not visible.
import { strict as assert } from 'node:assert';
import { describe, test } from 'node:test';
import { LOST, VERSIONS, kinds } from './operations.ts';
import { loseFirst, make, pass, together } from './stories.ts';
import type { Tab } from './tab.ts';

const { append, read, openSnapshot, readSnapshot } = kinds;

describe('pages that are not visible', () => {
  test('hand over to a visible one', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    first.setVisible(false);
    const asked = first.push(append);
    pass(world);
    assert.equal(second.peer.role, 'leader');
    assert.equal(first.peer.role, 'follower');
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('keep their leader until one of them becomes visible', () => {
    const world = make();
    const [first, second] = together(world, { visible: false }) as [Tab, Tab];
    first.setVisible(false);
    pass(world, 10_000);
    assert.equal(first.peer.role, 'leader');
    second.setVisible(true);
    pass(world);
    assert.equal(second.peer.role, 'leader');
  });

  test('lead again if the heir cannot', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    first.setVisible(false);
    world.kill(second);
    pass(world, 3000);
    assert.equal(first.peer.role, 'leader');
  });

  test('let the heir go first', () => {
    const world = make();
    const [first, , third] = together(world, { visible: false }, {}) as [Tab, Tab, Tab];
    first.setVisible(false);
    pass(world, 2000);
    assert.equal(third.peer.role, 'leader');
    assert.equal(world.counts.opened, 2);
  });

  test('take the lock back from an heir that does not run', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.freeze(second);
    first.setVisible(false);
    pass(world);
    assert.equal(first.peer.role, 'follower');
    first.setVisible(true);
    const asked = first.push(append);
    pass(world, 15_000);
    assert.equal(first.peer.role, 'leader');
    assert.equal(world.counts.steals, 1);
    assert.ok(asked.outcomes !== undefined || asked.refused?.retryable === true);
  });

  test('release everything in the back/forward cache, and come back', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    const before = first.push(append, openSnapshot);
    pass(world);
    first.hide();
    assert.equal(first.peer.role, 'away');
    world.freeze(first);
    pass(world);
    assert.equal(second.peer.role, 'leader');
    second.push(append);
    pass(world, 10_000);
    first.show();
    const after = first.push(read, { kind: readSnapshot, handle: Math.floor(before.outcomes![1]! / VERSIONS) });
    pass(world);
    assert.equal(first.peer.role, 'follower');
    assert.deepEqual(after.outcomes, [2, LOST]);
    assert.equal(first.openings, 1);
  });

  test('that hide with a request in flight stay known until it is answered, and do not lead', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    loseFirst(world, 'reply', 1);
    const asked = second.push(append);
    second.hide();
    assert.equal(second.peer.role, 'follower');
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
    assert.equal(second.peer.role, 'away');
    assert.equal(first.peer.role, 'leader');
  });

  test('that hide before they have joined do not keep the files', () => {
    const world = make();
    const tab = world.open();
    const asked = tab.push(append);
    tab.hide();
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
    assert.equal(tab.peer.role, 'away');
    assert.equal(world.holds(tab), false);
  });

  test('that hide while leaving still leave', () => {
    const world = make();
    const [, second] = together(world, {}) as [Tab, Tab];
    second.push(append);
    second.leave();
    second.hide();
    second.show();
    pass(world);
    assert.equal(second.hasLeft, true);
  });

  test('that hide and come back at once are served, however late the others hear of it', () => {
    const world = make();
    const [, second] = together(world, {}) as [Tab, Tab];
    Object.assign(world.faults, { delay: 1, delayMs: 1000 });
    second.hide();
    second.show();
    Object.assign(world.faults, { delay: 0 });
    for (let i = 1; i <= 10; i++) {
      const asked = second.push(append);
      pass(world, 300);
      assert.deepEqual(asked.outcomes, [i]);
    }
  });
});
