// What a hub owes to members, as far as no schedule shows it.
import { strict as assert } from 'node:assert';
import { describe, test } from 'node:test';
import { Hub } from '../../src/processes/hub.ts';
import type { Introduction, LocalHub, Machine } from '../../src/processes/machine.ts';
import type { Port } from '../../src/processes/port.ts';
import { PROTOCOL } from '../../src/tabs/messages.ts';
import type { Announcement, Exchange } from '../../src/tabs/messages.ts';

class FakePort implements Port {
  onmessage: Port['onmessage'] = () => {};
  onclose: Port['onclose'] = () => {};
  backlog = 0;
  isClosed = false;
  readonly sent: string[] = [];

  send(message: object): void {
    this.sent.push((message as { readonly type: string }).type);
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }
}

const lead: Announcement = {
  type: 'lead',
  protocol: PROTOCOL,
  term: 1,
  client: 'leader',
  version: 0,
  sealedKey: undefined,
};
const wake: Exchange = { type: 'wake', term: 1 };
const reply: Exchange = { type: 'reply', term: 1, seq: 1, bytes: new Uint8Array(0), state: undefined, cut: undefined };

/** A hub with a machine whose turns end when `turn` is called. */
async function open(): Promise<{
  readonly hub: Hub;
  readonly locals: Set<LocalHub>;
  readonly turn: () => void;
  readonly join: (client: string) => FakePort;
}> {
  const locals = new Set<LocalHub>();
  const turns: (() => void)[] = [];
  let accept: (port: Port, introduction: Introduction) => string | undefined = () => 'nobody listens';
  const machine = {
    pid: 1,
    time: () => 1,
    after: () => () => {},
    nextTurn: (run: () => void) => turns.push(run),
    setLocal: (hub: LocalHub) => {
      locals.add(hub);
      return () => locals.delete(hub);
    },
    listen: async (by: typeof accept) => {
      accept = by;
      return () => {};
    },
    mayLive: () => true,
  } as unknown as Machine;
  const hub = new Hub(machine);
  await hub.listen();
  return {
    hub,
    locals,
    turn: () => {
      for (const run of turns.splice(0)) run();
    },
    join: (client) => {
      const port = new FakePort();
      assert.equal(accept(port, { protocol: PROTOCOL, client, pid: 2, title: 'member' }), undefined);
      return port;
    },
  };
}

describe('a hub', () => {
  test('leaves out for a member that does not read only what may be lost', async () => {
    const { hub, join, turn } = await open();
    const port = join('a');
    port.backlog = 1 << 20;
    hub.send('a', reply);
    hub.send('a', wake);
    hub.announce(lead);
    hub.announce({ type: 'resign', term: 1, heir: undefined });
    turn();
    port.backlog = 0;
    hub.send('a', wake);
    assert.deepEqual(port.sent, ['welcome', 'reply', 'resign', 'wake']);
  });

  test('tells of several changes within a turn once', async () => {
    const { hub, join, turn } = await open();
    const port = join('a');
    hub.announce(lead);
    hub.announce(lead);
    turn();
    hub.announce(lead);
    turn();
    assert.deepEqual(port.sent, ['welcome', 'lead', 'lead']);
  });

  test('keeps a member that connects again before its end is noticed', async () => {
    const { hub, join } = await open();
    let ends = 0;
    hub.whenGone('a', () => ends++);
    const earlier = join('a');
    const later = join('a');
    assert.equal(earlier.isClosed, true);
    earlier.onclose();
    assert.equal(ends, 0);
    hub.send('a', reply);
    assert.deepEqual(later.sent, ['welcome', 'reply']);
    later.onclose();
    assert.equal(ends, 1);
  });

  test('that is closed has no members', async () => {
    const { hub, locals, join } = await open();
    const port = join('a');
    assert.equal(locals.has(hub), true);
    let isUnlocked = false;
    await hub.close(() => {
      isUnlocked = true;
    });
    assert.equal(isUnlocked, true);
    assert.equal(port.isClosed, true);
    assert.equal(locals.has(hub), false);
    assert.equal(hub.join({ protocol: PROTOCOL, client: 'b', pid: 1, title: 'member' }), undefined);
    assert.deepEqual(hub.members, []);
  });

  test('takes no handle of another protocol in its thread', async () => {
    const { hub } = await open();
    assert.equal(hub.join({ protocol: PROTOCOL + 1, client: 'b', pid: 1, title: 'member' }), undefined);
  });
});
