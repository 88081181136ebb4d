// Stories of tabs that cooperate: who leads, who is served, and that each write is executed once.
import { strict as assert } from 'node:assert';
import { describe, test } from 'node:test';
import { names } from '../../src/tabs/messages.ts';
import type { Message } from '../../src/tabs/messages.ts';
import { LOST, VERSIONS, kinds } from './operations.ts';
import { loseFirst, make, pass, together } from './stories.ts';
import type { Tab } from './tab.ts';
import { DATABASE } from './world.ts';
import type { World } from './world.ts';

const { append, increment, read, openSnapshot, readSnapshot, closeSnapshot, follow, poll, poison } = kinds;

describe('one tab', () => {
  test('opens, and serves itself without sending a message', () => {
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

  test('receives replies in the order of its requests', () => {
    const world = make();
    const tab = world.open();
    const asked = Array.from({ length: 10 }, () => tab.push(append));
    pass(world);
    assert.deepEqual(
      asked.map(({ outcomes }) => outcomes),
      asked.map((_, i) => [i + 1]),
    );
  });

  test('leaves once everything is answered, and releases the files', () => {
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

  test('fails with the error of opening the files', () => {
    const world = make({ notOpened: 1 });
    const tab = world.open();
    pass(world);
    assert.match(tab.failure?.code ?? '', /^KV_(QUOTA_EXCEEDED|IO)$/);
    world.faults.notOpened = 0;
    const other = world.open();
    pass(world);
    assert.equal(other.peer.role, 'leader');
  });

  test('that wants exclusive access fails if another has the database open', () => {
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

  test('the second leads when the first is killed, once the files are free', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.kill(first);
    const asked = second.push(append);
    pass(world, 2000);
    assert.equal(second.peer.role, 'leader');
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('a follower of commits still hears of them when another tab leads', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    second.push(follow);
    pass(world);
    first.push(append);
    pass(world);
    assert.equal(second.hasWakes, true);
    second.hasWakes = false;
    second.push(poll);
    third.push(append);
    loseFirst(world, 'wake', 100);
    world.run(1000, () => world.store.version === 2);
    world.kill(first);
    pass(world, 5000);
    assert.equal(second.peer.role, 'leader');
    assert.equal(second.hasWakes, true);
  });
});

describe('each write is executed once', () => {
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
      assert.deepEqual(
        asked.outcomes,
        [1, 2, 3].map((i) => i * VERSIONS + i),
      );
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

  test('when every message arrives twice and out of order', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    Object.assign(world.faults, { duplicate: 1, delay: 0.5, delayMs: 2000 });
    const asked = Array.from({ length: 20 }, (_, i) => {
      pass(world, 100);
      return (i % 2 === 0 ? first : second).push(increment);
    });
    pass(world, 20_000);
    assert.equal(world.store.version, 20);
    assert.deepEqual(
      asked.filter(({ outcomes }) => outcomes === undefined),
      [],
    );
  });

  test('when the commit was not stored yet and is lost with the leader', () => {
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

  test('when the client is refused and the leader later comes back to its request', () => {
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

describe('a late message from a former leader', () => {
  const late = (from: World['held'], type: Message['type']): void =>
    from.find(({ message }) => message.type === type)!.hear();

  /**
   * The first tab has opened a snapshot for the third, before a commit. Its reply and its
   * announcement that it leads are still on their way.
   */
  function openedBeforeCommit() {
    const world = make();
    const [first, second, third] = together(world, {}, { visible: false }) as [Tab, Tab, Tab];
    world.isHeld = ({ type }, to) => to === third && (type === 'reply' || type === 'lead');
    const opened = third.push(openSnapshot);
    pass(world, 100);
    second.push(append);
    pass(world, 1500);
    const before = world.held.splice(0);
    return { world, first, second, third, opened, before };
  }

  test('is not mixed with what its successor did', () => {
    const { world, first, second, third, opened, before } = openedBeforeCommit();
    world.isHeld = ({ type }, to) => to === third && type === 'reply';
    first.leave();
    pass(world, 900);
    assert.equal(second.peer.role, 'leader');
    // The third tab stops hearing the second, and then hears the first.
    world.isHeld = ({ type }, to) => to === third && ['reply', 'lead', 'ready'].includes(type);
    pass(world, 4000);
    late(before, 'lead');
    late(before, 'reply');
    assert.deepEqual(opened.outcomes, [1 * VERSIONS + 0]);
    world.isHeld = undefined;
    // The second tab also has a snapshot with this handle, which it opened after the commit.
    const read = third.push({ kind: readSnapshot, handle: 1 });
    pass(world, 10_000);
    assert.deepEqual(read.outcomes, [LOST]);
  });

  test('is ignored while its successor is heard', () => {
    const { world, first, second, third, opened, before } = openedBeforeCommit();
    world.isHeld = ({ type }, to) => to === third && (type === 'reply' || type === 'opening');
    first.leave();
    pass(world, 1500);
    assert.equal(second.peer.role, 'leader');
    // As far as the third tab knows, no tab leads.
    late(world.held, 'opening');
    late(before, 'lead');
    late(before, 'reply');
    assert.equal(opened.outcomes, undefined);
    world.isHeld = undefined;
    pass(world, 5000);
    assert.deepEqual(opened.outcomes, [1 * VERSIONS + 1]);
  });

  for (const isSilent of [false, true]) {
    test(`does not replace the state of a page${isSilent ? ', even if its successor is silent' : ''}`, () => {
      const world = make();
      const [first, second, third] = together(world, {}, { visible: false }) as [Tab, Tab, Tab];
      world.isHeld = ({ type, ...message }, to) =>
        to === third &&
        (type === 'state' ||
          type === 'opening' ||
          (type === 'lead' && 'client' in message && message.client === first.id));
      pass(world, 1500);
      third.push(openSnapshot, { kind: closeSnapshot, handle: 1 });
      pass(world, 200);
      first.leave();
      pass(world, 1000);
      assert.equal(second.peer.role, 'leader');
      const before = world.held.splice(0);
      const opened = third.push(openSnapshot);
      pass(world, 200);
      assert.deepEqual(opened.outcomes, [2 * VERSIONS + 0]);
      world.isHeld = ({ type }, to) => to === third && isSilent && ['lead', 'ready'].includes(type);
      if (isSilent) pass(world, 4000);
      // As far as the third tab knows, no tab leads.
      late(before, 'opening');
      late(before, 'lead');
      late(before, 'state');
      world.isHeld = undefined;
      const read = third.push({ kind: readSnapshot, handle: 2 });
      pass(world, 10_000);
      assert.deepEqual(read.outcomes, [0]);
    });
  }
});

test('a client that heard nothing of a new term but the reply to its hello follows that', () => {
  const world = make();
  const [first, second] = together(world, {}) as [Tab, Tab];
  const unheard: readonly Message['type'][] = ['crashed', 'opening', 'lead'];
  world.isLost = ({ type }, to) => to === second && unheard.includes(type);
  first.push(poison);
  pass(world, 500);
  const asked = second.push(append);
  world.run(9000, () => asked.outcomes !== undefined);
  pass(world, 0);
  assert.notEqual(asked.outcomes, undefined);
  assert.equal(world.counts.steals, 0);
});

test('a client that introduces itself again keeps its snapshot', () => {
  const world = make();
  const [first, second] = together(world, {}) as [Tab, Tab];
  second.push(openSnapshot);
  pass(world, 5000);
  first.push(append);
  pass(world);
  loseFirst(world, 'request', 4);
  const read = second.push({ kind: readSnapshot, handle: 1 });
  pass(world, 10_000);
  assert.deepEqual(read.outcomes, [0]);
});

describe('a worker that replaces another', () => {
  test('is served under its own name', () => {
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

  test('is not served before it holds the lock of its name, or it would be forgotten', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.freeze(first);
    const again = world.restart(second);
    const asked = again.push(append);
    pass(world);
    // Let the leader learn late that the previous worker is gone.
    const late = first.deferred.splice(0);
    world.thaw(first);
    pass(world, 100);
    assert.equal(again.peer.role, 'joining');
    assert.ok(!world.trace!.some((line) => line.includes('t2 says {"type":"request"') && line.includes('"seq":17')));
    for (const event of late) event.run();
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
  });

  test('does not receive the last replies of the other, even if the leader dies too', () => {
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

describe('a snapshot that a page has open', () => {
  test('is continued by the next leader if nothing was committed since', () => {
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

  test('is lost, and reported as lost, if the next leader cannot continue it', () => {
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

  test('is known to its leader although the reply was lost', () => {
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

describe('lost messages', () => {
  for (const type of ['who', 'lead', 'hello', 'ready', 'request', 'reply', 'opening', 'resign', 'visible'] as const) {
    test(`${type}: every tab is served all the same`, () => {
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

  test('a clock that was set back does not keep a new leader from being heard', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    world.stepClock(3_600_000);
    world.kill(first);
    pass(world, 3000);
    // The fourth tab never heard the others.
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
    // The second tab never hears the first, and so begins with the same term.
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
    const terms = world
      .trace!.map((line) => /says {"type":"lead","term":(\d+)/.exec(line)?.[1])
      .filter((term) => term !== undefined);
    assert.equal(new Set(terms).size, 1);
    const asked = third.push(append);
    pass(world, 5000);
    assert.deepEqual(asked.outcomes, [1]);
  });
});

describe('tabs of other versions', () => {
  const other = 999;

  test("learn who leads, and the leader's page learns that they wait", () => {
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

  test('that lead are not followed, and opening fails in time', () => {
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
