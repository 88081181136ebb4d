// Connections that break the protocol change nothing, and those that do not read keep nobody waiting.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from 'mangrove-kv';
import { encodeFrame } from '../../src/processes/frames.ts';
import { PROTOCOL } from '../../src/tabs/messages.ts';
import { leaderOf, member, needsFiles, until, valuesOf, withPath } from './member.ts';
import type { Member } from './member.ts';
import { RawClient, messageOf } from './raw.ts';

const GARBAGE = Buffer.alloc(100, 0xff);

function headOf(length: number): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32LE(length);
  return head;
}

/** Checks that a leader goes on with its other clients, and that nobody has written anything. */
async function checkUntouched(members: readonly Member[], commits: number): Promise<void> {
  for (const one of members) {
    assert.deepEqual(await one.list(), [['a', 1]]);
    await one.set('a', 1);
  }
  const [first] = members as [Member];
  assert.deepEqual(valuesOf(await first.watched('changes', commits + 2)), Array(commits + 2).fill(1));
}

const STRANGERS: Readonly<Record<string, (raw: RawClient) => void>> = {
  'another token': (raw) => raw.introduce({ token: '0'.repeat(32) }),
  'no token': (raw) => raw.introduce({ token: undefined }),
  'a token that is no text': (raw) => raw.introduce({ token: [] }),
  'another protocol': (raw) => raw.introduce({ protocol: 1 }),
  'no name': (raw) => raw.introduce({ client: undefined }),
  'a number for a name': (raw) => raw.introduce({ client: 1 }),
  'nothing': (raw) => raw.send([]),
  'null': (raw) => raw.write(Buffer.concat([headOf(8), headOf(4), Buffer.from('null')])),
  'garbage': (raw) => raw.write(GARBAGE),
  'a frame that is too long': (raw) => raw.introduce({ title: 'x'.repeat(10_000) }),
  'the head of one': (raw) => raw.write(headOf(2 ** 30)),
  'half an introduction': (raw) => {
    raw.write(headOf(200));
    raw.socket.end();
  },
  'a request before an introduction': (raw) => raw.request(1, new Uint8Array(8)),
};

test('a stranger is refused, and changes nothing', needsFiles, () =>
  withPath(async (path) => {
    const members = [await member(path), await member(path)];
    const [first] = members as [Member];
    const leader = await leaderOf(path);
    await first.set('a', 1);
    await first.ask('watch', 'db', 'changes');
    let commits = 0;
    for (const [what, say] of Object.entries(STRANGERS)) {
      const raw = await RawClient.connect(leader);
      say(raw);
      await raw.closes();
      assert.ok(
        raw.received.every(({ type }) => type === 'refused'),
        what,
      );
      await checkUntouched(members, commits);
      commits += 2;
    }
    // Introduced, it would be served.
    const raw = await RawClient.join(leader);
    const message = await messageOf((db) => db.set('a', 2));
    raw.request(1, message);
    await raw.hears('reply');
    assert.equal(await first.get('a'), 2);
    raw.socket.destroy();
  }),
);

const BROKEN: Readonly<Record<string, (raw: RawClient, other: RawClient) => void>> = {
  'garbage': (raw) => raw.write(GARBAGE),
  'a frame that is too long': (raw) => raw.write(headOf(2 ** 30 + 1)),
  'no message': (raw) => raw.send({ type: 'nonsense' }),
  'a name of every object': (raw) => raw.send({ type: 'constructor' }),
  "a leader's message": (raw) => raw.send({ type: 'resign', term: raw.term }),
  'a request without a message': (raw) => raw.send({ type: 'request', term: raw.term, seq: 1 }),
  'a request with a number that is none': (raw) =>
    raw.send({ type: 'request', term: raw.term, seq: -1, message: new Uint8Array(1) }),
  'the name of another': (raw, other) =>
    raw.send({ type: 'hello', protocol: PROTOCOL, term: raw.term, client: other.client, visible: true }),
  'another protocol': (raw) =>
    raw.send({ type: 'hello', protocol: PROTOCOL + 1, term: raw.term, client: raw.client, visible: true }),
};

test('a member that sends nonsense is a member no more, and changes nothing', needsFiles, () =>
  withPath(async (path) => {
    const members = [await member(path), await member(path)];
    const [first] = members as [Member];
    const leader = await leaderOf(path);
    await first.set('a', 1);
    await first.ask('watch', 'db', 'changes');
    const good = await RawClient.join(leader);
    let commits = 0;
    for (const [what, say] of Object.entries(BROKEN)) {
      const raw = await RawClient.join(leader);
      say(raw, good);
      await raw.closes();
      assert.ok(
        raw.received.every(({ type }) => type !== 'reply'),
        what,
      );
      await checkUntouched(members, commits);
      commits += 2;
    }
    // The half of a request is not executed.
    const half = await RawClient.join(leader);
    const [head] = encodeFrame({
      type: 'request',
      term: half.term,
      seq: 1,
      message: await messageOf((db) => db.clear()),
    });
    half.write(head as Uint8Array);
    half.socket.end();
    await half.closes();
    await checkUntouched(members, commits);
    const message = await messageOf((db) => db.get('a'));
    good.request(1, message);
    await good.hears('reply');
    // A message to the engine that is none.
    good.request(2, new TextEncoder().encode('nonsense to the engine'));
    await good.hears('reply', 2);
    await checkUntouched(members, commits + 2);
    good.socket.destroy();
  }),
);

const MIB = 1 << 20;
const VALUES = 5;

for (const [what, calls] of Object.entries<(db: Pick<Database, 'set' | 'getMany'>) => void>({
  'reads': (db) => void db.getMany(Array.from({ length: VALUES }, (_, n) => ['long', n])),
  'reads and writes': (db) => {
    void db.set('own', 1);
    void db.getMany(Array.from({ length: VALUES }, (_, n) => ['long', n]));
  },
})) {
  test(`a client that sends ${what}, and does not read, does not fill the leader's memory`, needsFiles, () =>
    withPath(async (path) => {
      const leader = await member(path);
      const other = await member(path);
      for (let n = 0; n < VALUES; n++) await leader.ask('fill', 'db', ['long', n], MIB);
      const raw = await RawClient.join(await leaderOf(path));
      const message = await messageOf(calls);
      raw.request(1, message);
      await raw.hears('reply');
      const before = await leader.ask<number>('memory', '');
      raw.socket.pause();
      const last = 80;
      for (let seq = 2; seq <= last; seq++) raw.request(seq, message);
      let most = 0;
      for (let n = 0; n < 100; n++) {
        await other.set('n', n);
        most = Math.max(most, await leader.ask<number>('memory', ''));
      }
      assert.equal(await leader.get('n'), 99);
      assert.ok(most - before < 200 * MIB, `the leader took ${Math.round((most - before) / MIB)} MiB`);
      // It is served when it reads. Of several requests in flight only the last has to be answered.
      raw.socket.resume();
      await until('the last reply', async () => {
        const isThere = raw.received.some(({ type, seq }) => type === 'reply' && seq === last);
        raw.received.splice(0, raw.received.length - 1);
        if (isThere) return true;
        raw.request(last, message);
        await new Promise((resolve) => setTimeout(resolve, 1000));
        return false;
      });
      raw.socket.destroy();
    }),
  );
}

test('a slow reader keeps nobody waiting', needsFiles, () =>
  withPath(async (path) => {
    const leader = await member(path);
    const other = await member(path);
    for (let n = 0; n < VALUES; n++) await leader.ask('fill', 'db', ['long', n], MIB);
    const before = await leader.ask<number>('memory', '');
    const raw = await RawClient.join(await leaderOf(path));
    const message = await messageOf((db) => db.getMany(Array.from({ length: VALUES }, (_, n) => ['long', n])));
    const { socket } = raw;
    let isDone = false;
    const slow = (async () => {
      for (let seq = 1; seq <= 3; seq++) {
        raw.request(seq, message);
        while (!raw.received.some((received) => received.type === 'reply' && received.seq === seq)) {
          socket.resume();
          await new Promise((resolve) => setTimeout(resolve, 1));
          socket.pause();
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
      }
      isDone = true;
    })();
    let writes = 0;
    while (!isDone) {
      await other.set('n', writes++);
      // Its announcements may be lost to who does not read.
      await leader.set('own', writes);
    }
    await slow;
    assert.ok(writes > 0);
    assert.ok((await leader.ask<number>('memory', '')) - before < 200 * MIB);
    assert.equal(raw.received.filter(({ type }) => type === 'reply').length, 3);
    socket.destroy();
  }),
);

test('five hundred connections, some of which do not read', needsFiles, () =>
  withPath(async (path) => {
    const [connections, slow] = [500, 20];
    const leader = await member(path);
    const other = await member(path);
    for (let n = 0; n < VALUES; n++) await leader.ask('fill', 'db', ['long', n], MIB);
    const before = await leader.ask<number>('memory', '');
    const address = await leaderOf(path);
    const all: RawClient[] = [];
    while (all.length < connections)
      all.push(...(await Promise.all(Array.from({ length: 50 }, () => RawClient.join(address)))));
    const set = await Promise.all(all.map((_, n) => messageOf((db) => void db.set(['raw', n], n))));
    for (const [n, raw] of all.entries()) raw.request(1, set[n] as Uint8Array);
    for (const raw of all) await raw.hears('reply');
    const read = await messageOf((db) => void db.getMany(Array.from({ length: VALUES }, (_, n) => ['long', n])));
    for (const raw of all.slice(0, slow)) {
      raw.socket.pause();
      for (let seq = 2; seq < 10; seq++) raw.request(seq, read);
    }
    let most = 0;
    for (let seq = 2; seq < 5; seq++) {
      for (const [n, raw] of all.entries()) if (n >= slow) raw.request(seq, set[n] as Uint8Array);
      for (const raw of all.slice(slow)) await raw.hears('reply', seq);
      await other.set('n', seq);
      most = Math.max(most, await leader.ask<number>('memory', ''));
    }
    assert.ok(most - before < (slow * VALUES + 200) * MIB, `the leader took ${Math.round((most - before) / MIB)} MiB`);
    assert.equal(await other.ask<number>('call', 'db', 'count', { prefix: ['raw'] }), connections);
    for (const { socket } of all) socket.destroy();
    await until('the end of all', async () => (await leader.ask<unknown[]>('clients', 'db')).length === 1);
    await other.set('n', 5);
    assert.equal(await leader.get('n'), 5);
  }),
);
