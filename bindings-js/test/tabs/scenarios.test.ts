// What tabs do together, one story at a time. Times are those of the simulation.
import { strict as assert } from 'node:assert';
import { describe, test } from 'node:test';
import { names } from '../../src/tabs/messages.ts';
import type { Message } from '../../src/tabs/messages.ts';
import { LOST, VERSIONS, kinds } from './operations.ts';
import { Random } from './random.ts';
import type { Tab } from './tab.ts';
import { DATABASE, World } from './world.ts';
import type { Faults } from './world.ts';

const { append, increment, read, openSnapshot, readSnapshot, follow, poll, poison } = kinds;

function make(faults: Partial<Faults> = {}, seed = 1): World {
  const world = new World(new Random(seed), faults);
  world.trace = [];
  return world;
}

/** Lets time go on; nothing may be wrong. */
function pass(world: World, ms = 1000): void {
  world.run(ms);
  assert.equal(world.violation, undefined, world.trace?.join('\n'));
}

/** A tab that leads, and others that it serves. */
function together(world: World, ...others: { visible?: boolean; deadlineMs?: number }[]): Tab[] {
  const tabs = [world.open()];
  pass(world);
  for (const options of others) {
    tabs.push(world.open(options));
    pass(world);
  }
  assert.deepEqual(tabs.map((tab) => tab.peer.role), ['leader', ...others.map(() => 'follower')]);
  return tabs;
}

function loseFirst(world: World, type: Message['type'], count: number): void {
  let left = count;
  world.isLost = (message, to) => message.type === type && (!('client' in message) || message.client !== to.id) && left-- > 0;
}

describe('one tab', () => {
  test('opens, and serves itself without a word to anybody', () => {
    const world = make();
    const tab = world.open();
    const asked = tab.push(append, read);
    pass(world);
    const { messages } = world.counts;
    const again = tab.push(increment);
    pass(world, 60_000);
    assert.equal(tab.peer.role, 'leader');
    assert.equal(tab.openings, 1);
    assert.deepEqual(asked.outcomes, [1, 1]);
    assert.deepEqual(again.outcomes, [1 * VERSIONS + 2]);
    assert.equal(world.counts.messages, messages);
  });

  test('is answered in the order in which it asked', () => {
    const world = make();
    const tab = world.open();
    const asked = Array.from({ length: 10 }, () => tab.push(append));
    pass(world);
    assert.deepEqual(asked.map(({ outcomes }) => outcomes), asked.map((_, i) => [i + 1]));
  });

  test('leaves once all is answered, and lets go of the files', () => {
    const world = make();
    const tab = world.open();
    const asked = tab.push(append);
    tab.leave();
    assert.equal(tab.hasLeft, false);
    pass(world);
    assert.deepEqual(asked.outcomes, [1]);
    assert.equal(tab.hasLeft, true);
    assert.equal(world.holds(tab), false);
    assert.deepEqual([...world.store.rows.keys()], []);
  });

  test('that leaves while it opens the files does not keep them', () => {
    const world = make();
    const tab = world.open();
    world.run(1000, () => tab.peer.role === 'opening' && world.holds(tab));
    tab.leave();
    assert.equal(world.holds(tab), false);
    pass(world);
    assert.equal(tab.hasLeft, true);
    const other = world.open();
    pass(world);
    assert.equal(other.peer.role, 'leader');
  });

  test('fails with the error of its files', () => {
    const world = make({ notOpened: 1 });
    const tab = world.open();
    pass(world);
    assert.match(tab.failure?.code ?? '', /^KV_(QUOTA_EXCEEDED|IO)$/);
    world.faults.notOpened = 0;
    const other = world.open();
    pass(world);
    assert.equal(other.peer.role, 'leader');
  });

  test('that wants the database for itself alone fails where another has it', () => {
    const world = make();
    together(world);
    const tab = world.open({ exclusive: true });
    pass(world);
    assert.equal(tab.failure?.code, 'KV_EXISTS');
  });
});

describe('two tabs', () => {
  test('are served by the first', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    const asked = second.push(append, read);
    pass(world);
    const own = first.push(read);
    pass(world);
    assert.deepEqual(asked.outcomes, [1, 1]);
    assert.deepEqual(own.outcomes, [1]);
  });

  test('the second leads when the first leaves', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    first.push(append);
    first.leave();
    const asked = second.push(append);
    pass(world);
    assert.equal(second.peer.role, 'leader');
    assert.deepEqual(asked.outcomes, [2]);
    assert.equal(second.openings, 1);
  });

  test('the second leads when the first is killed, once the files come free', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.kill(first);
    const asked = second.push(append);
    pass(world, 2000);
    assert.equal(second.peer.role, 'leader');
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('who hears of what others commit goes on to when another leads', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    second.push(follow);
    pass(world);
    first.push(append);
    pass(world);
    assert.equal(second.hasNews, true);
    second.hasNews = false;
    second.push(poll);
    third.push(append);
    loseFirst(world, 'news', 100);
    world.run(1000, () => world.store.version === 2);
    world.kill(first);
    pass(world, 5000);
    assert.equal(second.peer.role, 'leader');
    assert.equal(second.hasNews, true);
  });
});

describe('each write is done once', () => {
  test('when the leader dies between the commit and the reply', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    const asked = third.push(increment, increment);
    world.run(1000, () => world.store.version === 2);
    world.kill(first);
    pass(world, 2000);
    assert.equal(second.peer.role, 'leader');
    assert.deepEqual(asked.outcomes, [1 * VERSIONS + 1, 2 * VERSIONS + 2]);
    assert.equal(world.store.version, 2);
  });

  test('when the leader dies between two commits of a message', () => {
    const kept = new Set<number>();
    for (let seed = 1; seed <= 20; seed++) {
      const world = make({}, seed);
      const [first, , third] = together(world, {}, {}) as [Tab, Tab, Tab];
      const asked = third.push(increment, increment, increment);
      const committed = world.committed.bind(world);
      world.committed = (id) => {
        committed(id);
        if (world.store.version === 2) world.faults.die = 1;
      };
      world.run(1000, () => !first.isAlive);
      world.committed = committed;
      world.faults.die = 0;
      kept.add(world.store.version);
      pass(world, 2000);
      assert.deepEqual(asked.outcomes, [1, 2, 3].map((i) => i * VERSIONS + i));
    }
    assert.deepEqual([...kept].sort(), [0, 1, 2]);
  });

  test('when the reply is lost', () => {
    const world = make();
    const [, second] = together(world, {}) as [Tab, Tab];
    loseFirst(world, 'reply', 3);
    const asked = second.push(increment);
    pass(world, 20_000);
    assert.deepEqual(asked.outcomes, [1 * VERSIONS + 1]);
    assert.equal(world.counts.drops, 3);
  });

  test('when the request is lost', () => {
    const world = make();
    const [, second] = together(world, {}) as [Tab, Tab];
    loseFirst(world, 'request', 3);
    const asked = second.push(increment);
    pass(world, 20_000);
    assert.deepEqual(asked.outcomes, [1 * VERSIONS + 1]);
  });

  test('when everything is heard twice and out of order', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    Object.assign(world.faults, { duplicate: 1, delay: 0.5, delayMs: 2000 });
    const asked = Array.from({ length: 20 }, (_, i) => {
      pass(world, 100);
      return (i % 2 === 0 ? first : second).push(increment);
    });
    pass(world, 20_000);
    assert.equal(world.store.version, 20);
    assert.deepEqual(asked.filter(({ outcomes }) => outcomes === undefined), []);
  });

  test('when the commit was not stored yet, and is gone with the leader', () => {
    const world = make({ later: 1 });
    const [first, second] = together(world, {}) as [Tab, Tab];
    const asked = second.push(increment);
    world.run(1000, () => world.store.version === 1);
    assert.equal(asked.outcomes, undefined);
    world.kill(first);
    pass(world, 2000);
    assert.deepEqual(asked.outcomes, [1 * VERSIONS + 1]);
    assert.equal(world.store.version, 1);
  });

  test('when the client is refused, and the leader comes back to its request', () => {
    const world = make();
    const [first, second] = together(world, { visible: false, deadlineMs: 5000 }) as [Tab, Tab];
    world.freeze(first);
    const sent = second.push(append);
    pass(world, 100);
    const waited = second.push(append);
    pass(world, 10_000);
    assert.equal(sent.refused?.retryable, false);
    assert.equal(waited.refused?.retryable, true);
    world.thaw(first);
    const asked = second.push(append);
    pass(world, 10_000);
    assert.deepEqual(asked.outcomes, [2]);
    assert.equal(world.store.outcomeOf(waited.operations[0]!.id), undefined);
  });
});

describe('a worker that takes the place of another', () => {
  test('is served as itself', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    second.push(append);
    pass(world);
    const again = world.restart(second);
    const asked = again.push(append);
    pass(world);
    assert.equal(first.peer.role, 'leader');
    assert.deepEqual(asked.outcomes, [2]);
  });

  test('is not served before it has the lock of its name, or it would be forgotten', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.freeze(first);
    const again = world.restart(second);
    const asked = again.push(append);
    pass(world);
    // The leader is to learn late that the worker before is gone.
    const late = first.deferred.splice(0);
    world.thaw(first);
    pass(world, 100);
    assert.equal(again.peer.role, 'joining');
    assert.ok(!world.trace!.some((line) => line.includes('t2 says {"type":"request"') && line.includes('"seq":17')));
    for (const event of late) event.run();
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('is not answered with what the other did last, when the leader dies too', () => {
    for (let seed = 1; seed <= 20; seed++) {
      const world = make({}, seed);
      const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
      third.push(append);
      pass(world);
      const again = world.restart(third);
      world.kill(first);
      pass(world, 2000);
      assert.equal(second.peer.role, 'leader');
      for (let version = 2; version < 5; version++) {
        const asked = again.push(append);
        pass(world);
        assert.deepEqual(asked.outcomes, [version]);
      }
    }
  });
});

describe('pages that cannot be seen', () => {
  test('hand over to one that can', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    first.setVisible(false);
    const asked = first.push(append);
    pass(world);
    assert.equal(second.peer.role, 'leader');
    assert.equal(first.peer.role, 'follower');
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('keep their leader among themselves, until one of them is seen', () => {
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

  test('let go of everything in the history, and come back', () => {
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

  test('that hide with something under way stay known until it is answered, and do not lead', () => {
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

  test('that hide before they are known do not keep the files', () => {
    const world = make();
    const tab = world.open();
    const asked = tab.push(append);
    tab.hide();
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
    assert.equal(tab.peer.role, 'away');
    assert.equal(world.holds(tab), false);
  });

  test('that hide while they leave, leave', () => {
    const world = make();
    const [, second] = together(world, {}) as [Tab, Tab];
    second.push(append);
    second.leave();
    second.hide();
    second.show();
    pass(world);
    assert.equal(second.hasLeft, true);
  });

  test('that hide and come back at once are served, however late others hear of it', () => {
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

describe('a leader that is frozen', () => {
  test('loses the lock to one that heard it, and follows when it thaws', () => {
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
    // It waited too long, and the first may have had the request.
    assert.equal(asked.refused?.code, 'KV_TIMEOUT');
    assert.ok(world.store.version <= 1);
    assert.equal(world.counts.steals, 1);
  });

  test('that keeps the files has the others refused, not stopped', () => {
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

  test('is not robbed by a page that cannot be seen, nor by one that hears nobody', () => {
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

  test('does not have a new tab wait for ever', () => {
    const world = make();
    const [first] = together(world) as [Tab];
    world.freeze(first);
    const tab = world.open({ deadlineMs: 5000 });
    pass(world, 10_000);
    assert.equal(tab.failure?.code, 'KV_LOCKED');
    assert.equal(tab.failure?.retryable, true);
  });

  test('is not robbed by one that slept too, and did not listen long enough since', () => {
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

  test('is not robbed by the same tab again and again', () => {
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

  test('has a client that came back while it slept, and does not forget it', () => {
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

  test('refuses nothing when it thaws only because it was frozen', () => {
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

  test('does not keep one that hides and is shown from coming back', () => {
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
    // The leader still learns of its end.
    world.kill(second);
    pass(world);
    assert.deepEqual([...world.store.rows.keys()], []);
  });

  test('once had the lock without knowing, was robbed, and still leads when it is alone', () => {
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

describe('a tab that is frozen while it opens the files', () => {
  test('loses the lock to one that heard it', () => {
    const world = make();
    const [first, second, third] = together(world, { visible: false }, {}) as [Tab, Tab, Tab];
    world.kill(first);
    world.run(1000, () => third.deferred.length === 0 && second.peer.role === 'opening' && third.heardLeaderAt === world.now);
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
  test('says so, and leaves if it was to', () => {
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
  test('stays if it was served before, says so, and leads once there is room', () => {
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

  test('waits for who may lead now as long as for anybody', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    // It has heard of a tab that opens, long ago.
    first.leave();
    pass(world, 5900);
    assert.equal(second.peer.role, 'leader');
    world.freeze(third);
    world.faults.crash = world.faults.noRoom = 1;
    const asked = second.push(increment);
    world.run(2000, () => asked.refused !== undefined);
    world.faults.crash = world.faults.noRoom = 0;
    // The world sees to it that nobody steals too early.
    world.run(15_000, () => second.peer.role === 'leader');
    assert.equal(second.peer.role, 'leader');
    assert.equal(world.counts.steals, 1);
  });

  test('stays also if its engine has crashed', () => {
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
  test('is opened again, and the request is executed once more', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.faults.crash = 1;
    const asked = second.push(increment);
    world.run(1000, () => world.counts.engineCrashes > 0);
    world.faults.crash = 0;
    pass(world, 2000);
    assert.equal(first.peer.role, 'leader');
    assert.deepEqual(asked.outcomes, [1 * VERSIONS + 1]);
    assert.equal(first.troubles.length, 1);
  });

  test('twice by the same request has it refused, and others are served', () => {
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
    assert.equal(first.troubles.length, 2);
  });

  test('by the leader that is about to leave lets it leave, and the files with it', () => {
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

describe('what a page has open', () => {
  test('is taken up by the next leader while nothing was committed', () => {
    const world = make();
    const [first, , third] = together(world, {}, {}) as [Tab, Tab, Tab];
    const opened = third.push(append, openSnapshot);
    pass(world);
    const handle = Math.floor(opened.outcomes![1]! / VERSIONS);
    world.kill(first);
    pass(world, 2000);
    const asked = third.push({ kind: readSnapshot, handle });
    pass(world);
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('is lost where the next leader cannot have it, and is said to be', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    const opened = third.push(append, openSnapshot);
    pass(world);
    second.push(append);
    pass(world);
    world.kill(first);
    pass(world, 2000);
    const asked = third.push({ kind: readSnapshot, handle: Math.floor(opened.outcomes![1]! / VERSIONS) });
    pass(world);
    assert.deepEqual(asked.outcomes, [LOST]);
  });

  test('is known to its leader though the reply was lost', () => {
    const world = make();
    const [first, , third] = together(world, {}, {}) as [Tab, Tab, Tab];
    loseFirst(world, 'reply', 1);
    const opened = third.push(openSnapshot);
    pass(world, 2000);
    world.isLost = undefined;
    world.kill(first);
    pass(world, 2000);
    const asked = third.push({ kind: readSnapshot, handle: Math.floor(opened.outcomes![0]! / VERSIONS) });
    pass(world);
    assert.deepEqual(asked.outcomes, [0]);
  });
});

describe('words that get lost', () => {
  for (const type of ['who', 'lead', 'hello', 'ready', 'request', 'reply', 'opening', 'resign', 'visible'] as const) {
    test(`${type}: everybody is served all the same`, () => {
      const world = make();
      loseFirst(world, type, 2);
      const [first, second] = [world.open(), world.open()];
      const asked = [first.push(increment), second.push(increment)];
      pass(world, 10_000);
      first.setVisible(false);
      asked.push(second.push(increment));
      pass(world, 10_000);
      assert.deepEqual(asked.map(({ outcomes }) => outcomes?.[0]! % VERSIONS).sort(), [1, 2, 3]);
    });
  }

  test('a request on its way to a leader that resigns is executed by the next', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    const asked = third.push(increment);
    first.setVisible(false);
    pass(world);
    assert.equal(second.peer.role, 'leader');
    assert.deepEqual(asked.outcomes, [1 * VERSIONS + 1]);
  });

  test('a clock that was put back does not keep a new leader from being heard', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    world.stepClock(3_600_000);
    world.kill(first);
    pass(world, 3000);
    // It never heard the others.
    const fourth = world.open();
    pass(world);
    world.kill(second);
    world.kill(third);
    const asked = fourth.push(append);
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('two leaders of the same term are not taken for one', () => {
    const world = make();
    world.stopClock();
    const [first] = together(world) as [Tab];
    // It never hears the first, and so begins with the same term.
    world.isLost = (_, to) => to.id === 't2';
    const second = world.open();
    pass(world, 100);
    const third = world.open();
    pass(world, 500);
    assert.deepEqual([second.openings, third.openings], [0, 1]);
    world.isLost = undefined;
    world.kill(first);
    pass(world);
    assert.equal(second.peer.role, 'leader');
    const terms = world.trace!.map((line) => /says {"type":"lead","term":(\d+)/.exec(line)?.[1]).filter((term) => term !== undefined);
    assert.equal(new Set(terms).size, 1);
    const asked = third.push(append);
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
  });
});

describe('tabs of other versions', () => {
  const other = 999;

  test('are told who leads, and the leader\'s page hears that they wait', () => {
    const world = make();
    const [first] = together(world) as [Tab];
    const heard: Message[] = [];
    const stranger = world.environmentOf(world.open()).channel(names.all(DATABASE), (message) => heard.push(message));
    stranger.post({ type: 'who', protocol: other, client: 'x' });
    pass(world, 100);
    assert.ok(heard.some((message) => message.type === 'lead'));
    assert.deepEqual(first.blocked, ['version']);
    stranger.post({ type: 'hello', protocol: other, term: 1, client: 'x', visible: true });
    pass(world, 100);
    assert.ok(!heard.some((message) => message.type === 'ready'));
  });

  test('that lead are not followed: to open fails in time', () => {
    const world = make();
    const stranger = world.open();
    pass(world);
    world.freeze(stranger);
    const tab = world.open({ deadlineMs: 5000 });
    const channel = world.environmentOf(tab).channel(names.all(DATABASE), () => {});
    for (let i = 0; i < 8; i++) {
      channel.post({ type: 'lead', protocol: other, term: 1, client: 'x', version: 0 });
      pass(world);
    }
    assert.ok(tab.blocked.includes('version'));
    assert.equal(tab.failure?.code, 'KV_LOCKED');
  });
});
