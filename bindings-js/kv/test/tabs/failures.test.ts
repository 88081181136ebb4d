// Stories of frozen leaders, unavailable files and crashing engines.
import { strict as assert } from 'node:assert';
import { describe, test } from 'node:test';
import { VERSIONS, kinds } from './operations.ts';
import { make, pass, together } from './stories.ts';
import type { Tab } from './tab.ts';

const { append, increment, read, poison } = kinds;

describe('a frozen leader', () => {
  test('loses the lock to a tab that heard it, and follows after it thaws', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    pass(world, 3000);
    world.freeze(first);
    const asked = second.push(append);
    world.run(20_000, () => world.counts.steals > 0);
    pass(world, 500);
    assert.equal(second.peer.role, 'opening');
    world.thaw(first);
    pass(world, 2000);
    assert.equal(first.peer.role, 'follower');
    assert.equal(second.peer.role, 'leader');
    // The second tab's wait timed out, and the first may have received the request.
    assert.equal(asked.refused?.code, 'KV_TIMEOUT');
    assert.ok(world.store.version <= 1);
    assert.equal(world.counts.steals, 1);
  });

  test('that keeps the files makes the others refuse requests, but not stop', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.freeze(first);
    pass(world, 10_000);
    assert.equal(second.peer.role, 'opening');
    const asked = second.push(append);
    world.run(20_000, () => asked.refused !== undefined);
    assert.match(asked.refused?.code ?? '', /^KV_(LOCKED|TIMEOUT)$/);
    pass(world, 20_000);
    assert.equal(world.counts.steals, 1);
    world.thaw(first);
    pass(world, 5000);
    const again = second.push(read);
    pass(world, 5000);
    assert.notEqual(again.outcomes, undefined);
  });

  test('is not robbed by a page that is not visible, nor by one that hears nobody', () => {
    const world = make();
    const [first, second] = together(world, { visible: false }) as [Tab, Tab];
    world.freeze(first);
    pass(world, 20_000);
    assert.equal(world.counts.steals, 0);
    world.isLost = (_, to) => to === second;
    second.setVisible(true);
    pass(world, 20_000);
    assert.equal(world.counts.steals, 0);
  });

  test('does not make a new tab wait for ever', () => {
    const world = make();
    const [first] = together(world) as [Tab];
    world.freeze(first);
    const tab = world.open({ deadlineMs: 5000 });
    pass(world, 10_000);
    assert.equal(tab.failure?.code, 'KV_LOCKED');
    assert.equal(tab.failure?.retryable, true);
  });

  test('is not robbed by a tab that slept too and has not listened long enough since', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.freeze(first);
    world.freeze(second);
    pass(world, 10_000);
    world.thaw(second);
    pass(world, 2500);
    assert.equal(world.counts.steals, 0);
    pass(world, 3000);
    assert.equal(world.counts.steals, 1);
  });

  test('is not robbed by the same tab in quick succession', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.freeze(first);
    world.run(20_000, () => world.counts.steals > 0);
    world.thaw(first);
    pass(world, 2000);
    second.setVisible(false);
    pass(world, 2000);
    assert.equal(first.peer.role, 'leader');
    second.setVisible(true);
    world.freeze(first);
    pass(world, 30_000);
    assert.equal(world.counts.steals, 1);
    pass(world, 60_000);
    assert.equal(world.counts.steals, 2);
  });

  test('does not forget a client that came back while the leader slept', () => {
    for (let seed = 1; seed <= 20; seed++) {
      const world = make({}, seed);
      const [first, second] = together(world, {}) as [Tab, Tab];
      second.hide();
      pass(world, 50);
      world.freeze(first);
      pass(world);
      second.show();
      pass(world);
      world.thaw(first);
      const asked = second.push(append);
      pass(world, 8000);
      assert.deepEqual(asked.outcomes, [1]);
    }
  });

  test('causes no refusal in a client that was frozen as well', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    const asked = second.push(append);
    world.freeze(first);
    world.freeze(second);
    pass(world, 60_000);
    world.thaw(second);
    pass(world, 1500);
    assert.equal(asked.refused, undefined);
    world.thaw(first);
    pass(world);
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('does not keep a tab that hides and is shown from coming back', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.freeze(first);
    second.hide();
    pass(world);
    second.show();
    pass(world);
    assert.equal(second.peer.role, 'follower');
    world.thaw(first);
    const asked = second.push(append);
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
    // The leader still detects the end of the second tab.
    world.kill(second);
    pass(world);
    assert.deepEqual([...world.store.rows.keys()], []);
  });

  test('that had the lock without knowing and was robbed leads when it is alone', () => {
    const world = make();
    const [first, second, third] = together(world, { visible: false }, {}) as [Tab, Tab, Tab];
    world.freeze(second);
    world.kill(first);
    world.run(20_000, () => world.counts.steals > 0);
    pass(world);
    assert.equal(third.peer.role, 'leader');
    world.thaw(second);
    pass(world);
    world.kill(third);
    pass(world, 5000);
    assert.equal(second.peer.role, 'leader');
  });
});

describe('a leader stopped at work in the back/forward cache', () => {
  test('is dropped as soon as it does not answer, even where nobody may steal', () => {
    for (const visible of [true, false]) {
      const world = make();
      const [first, second] = together(world, { visible }) as [Tab, Tab];
      world.keep(first);
      const asked = second.push(append);
      pass(world, 2000);
      assert.equal(first.isAlive, false);
      assert.notEqual(asked.outcomes, undefined);
      assert.equal(world.counts.steals, 0);
    }
  });

  test('is dropped for a tab that never heard it', () => {
    const world = make();
    const [first] = together(world) as [Tab];
    world.keep(first);
    const stranger = world.open();
    pass(world, 3000);
    assert.equal(stranger.peer.role, 'leader');
    assert.equal(world.counts.steals, 0);
  });

  test('is dropped even if it got the lock only there', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    world.keep(second);
    first.leave();
    const asked = third.push(append);
    pass(world, 800);
    assert.equal(second.isAlive, false);
    assert.notEqual(asked.outcomes, undefined);
  });

  test('stays if nobody asks it anything, and continues when it is back', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.keep(first);
    pass(world, 1000);
    world.thaw(first);
    const asked = [first.push(append), second.push(append)];
    pass(world, 2000);
    assert.equal(first.peer.role, 'leader');
    for (const { outcomes } of asked) assert.notEqual(outcomes, undefined);
  });
});

describe('a tab that is frozen while it waits to lead', () => {
  test('gets the lock of a leader that leaves, and loses it to a tab that heard it leave', () => {
    // Whether the resignation is the last message heard is a matter of chance.
    for (let seed = 1; seed <= 8; seed++) {
      const world = make({}, seed);
      const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
      world.freeze(second);
      first.leave();
      pass(world, 15_000);
      assert.equal(third.peer.role, 'leader');
      assert.equal(world.counts.steals, 1);
      const asked = third.push(append);
      pass(world, 2000);
      assert.deepEqual(asked.outcomes, [1]);
    }
  });
});

describe('a tab that is frozen while it opens the files', () => {
  test('loses the lock to a tab that heard it', () => {
    const world = make();
    const [first, second, third] = together(world, { visible: false }, {}) as [Tab, Tab, Tab];
    world.kill(first);
    world.run(
      1000,
      () => third.deferred.length === 0 && second.peer.role === 'opening' && third.heardLeaderAt === world.now,
    );
    world.freeze(second);
    world.run(20_000, () => third.peer.role === 'leader');
    assert.equal(third.peer.role, 'leader');
    assert.equal(world.counts.steals, 1);
    world.thaw(second);
    const asked = second.push(append);
    pass(world, 2000);
    assert.deepEqual(asked.outcomes, [1]);
  });
});

describe('a thief that does not get the files', () => {
  test('reports that, and leaves if it was asked to', () => {
    const world = make();
    const [first, second] = together(world, { deadlineMs: 60_000 }) as [Tab, Tab];
    world.freeze(first);
    const sent = second.push(append);
    world.run(20_000, () => second.peer.role === 'opening');
    second.leave();
    pass(world, 15_000);
    assert.equal(sent.refused?.code, 'KV_LOCKED');
    assert.equal(second.hasLeft, true);
    assert.equal(second.peer.role, 'gone');
  });
});

describe('a tab that has no room for the engine', () => {
  test('stays if it was served before, reports the error, and leads once there is room', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.faults.noRoom = 1;
    world.kill(first);
    const refused = second.push(increment);
    world.run(2000, () => refused.refused !== undefined);
    assert.equal(refused.refused?.code, 'KV_IO');
    assert.equal(second.failure, undefined);
    world.faults.noRoom = 0;
    pass(world, 3000);
    assert.equal(second.peer.role, 'leader');
    const asked = second.push(increment);
    pass(world, 2000);
    assert.equal(asked.outcomes?.length, 1);
  });

  test('lets another lead', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    world.faults.noRoom = 1;
    world.kill(first);
    world.run(2000, () => second.peer.role === 'opening' || third.peer.role === 'opening');
    world.run(2000, () => second.peer.role === 'follower' && third.peer.role === 'follower');
    world.faults.noRoom = 0;
    pass(world, 3000);
    assert.deepEqual([second.peer.role, third.peer.role].sort(), ['follower', 'leader']);
  });

  test('fails if it was never served', () => {
    const world = make({ noRoom: 1 });
    const tab = world.open();
    pass(world);
    assert.equal(tab.failure?.code, 'KV_IO');
    assert.equal(tab.failure?.retryable, true);
  });

  test('waits for the next in line as long as for any leader', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    // The second tab heard long ago that a tab opens the files.
    first.leave();
    pass(world, 5900);
    assert.equal(second.peer.role, 'leader');
    world.freeze(third);
    world.faults.crash = world.faults.noRoom = 1;
    const asked = second.push(increment);
    world.run(2000, () => asked.refused !== undefined);
    world.faults.crash = world.faults.noRoom = 0;
    // The world checks that nobody steals too early.
    world.run(15_000, () => second.peer.role === 'leader');
    assert.equal(second.peer.role, 'leader');
    assert.equal(world.counts.steals, 1);
  });

  test('stays even if its engine has crashed', () => {
    const world = make();
    const [first] = together(world) as [Tab];
    world.faults.crash = 1;
    world.faults.noRoom = 1;
    const asked = first.push(increment);
    world.run(2000, () => asked.refused !== undefined);
    assert.equal(first.failure, undefined);
    world.faults.crash = world.faults.noRoom = 0;
    pass(world, 3000);
    assert.equal(first.peer.role, 'leader');
    const again = first.push(increment);
    pass(world, 2000);
    assert.equal(again.outcomes?.length, 1);
  });
});

describe('an engine that crashes', () => {
  test('is reopened, and the request is executed once more', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.faults.crash = 1;
    const asked = second.push(increment);
    world.run(1000, () => world.counts.engineCrashes > 0);
    world.faults.crash = 0;
    pass(world, 2000);
    assert.equal(first.peer.role, 'leader');
    assert.deepEqual(asked.outcomes, [1 * VERSIONS + 1]);
    assert.equal(first.backgroundErrors.length, 1);
  });

  test('twice on the same request causes its refusal, and others are served', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    const bad = second.push(append, poison, append);
    pass(world, 200);
    const other = first.push(read);
    const next = second.push(read);
    pass(world, 5000);
    assert.equal(bad.refused?.code, 'KV_IO');
    assert.equal(bad.refused.retryable, false);
    assert.deepEqual(other.outcomes, [1]);
    assert.deepEqual(next.outcomes, [1]);
    assert.equal(first.backgroundErrors.length, 2);
  });

  test('in a leader that is about to leave lets it leave and release the files', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    const bad = first.push(poison);
    first.leave();
    pass(world, 3000);
    assert.equal(bad.refused?.code, 'KV_IO');
    assert.equal(first.hasLeft, true);
    assert.equal(second.peer.role, 'leader');
  });
});
