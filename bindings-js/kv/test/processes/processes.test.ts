// Handles, threads and processes of all runtimes share one database.
import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import type { Socket } from 'node:net';
import { dirname, join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { destroy, open, openSync } from 'mangrove-kv';
import type { Commit, Database } from 'mangrove-kv';
import { liveQuery, liveValue, mirror } from 'mangrove-kv/live';
import { code, rejects } from '../support/kit.ts';
import {
  LIMIT_MS,
  Member,
  OWN_RUNTIME,
  leaderOf,
  member,
  needsFiles,
  runToEnd,
  until,
  valuesOf,
  withPath,
  within,
} from './member.ts';
import type { Leader } from './member.ts';

const needsSignals = { skip: process.platform === 'win32' && 'processes cannot be stopped' };

function share(path: string, options = {}): Promise<Database> {
  return within('open', open(path, { share: true, ...options }));
}

function versionsOf(commits: readonly Commit[]): number[] {
  return commits.map(({ version }) => version);
}

async function checkClean(path: string): Promise<void> {
  const db = await open(path);
  assert.deepEqual((await db.verify()).problems, []);
  await db.close();
}

test('handles of one thread', () =>
  withPath(async (path) => {
    const first = await share(path);
    const second = await share(path);
    const third = await share(join(dirname(path), '.', 'database', '.'));
    await first.set('a', 1);
    await second.set('b', 2);
    await third.set('c', 3);
    for (const db of [first, second, third]) assert.deepEqual(await db.getMany(['a', 'b', 'c']), [1, 2, 3]);
    await first.close();
    await second.set('a', 4);
    assert.equal(await third.get('a'), 4);
    await second.close();
    await third.set('a', 5);
    await third.close();
    await checkClean(path);
    const db = await open(path, { readOnly: true });
    assert.deepEqual(await db.getMany(['a', 'b', 'c']), [5, 2, 3]);
    await db.close();
  }));

test('a link to the directory is the same database', needsFiles, () =>
  withPath(async (path) => {
    const first = await share(path);
    const link = `${path}-link`;
    symlinkSync(path, link);
    const second = await share(link);
    await second.set('a', 1);
    assert.equal(await first.get('a'), 1);
    await first.close();
    assert.equal(await second.get('a'), 1);
    await second.close();
  }),
);

for (const leads of [true, false]) {
  test(`a thread ${leads ? 'follows' : 'leads'}`, () =>
    withPath(async (path) => {
      const thread = await Member.startThread();
      let db: Database | undefined = leads ? await share(path) : undefined;
      await thread.open(path);
      db ??= await share(path);
      await db.set('here', 1);
      assert.equal(await thread.get('here'), 1);
      await thread.set('there', 2);
      assert.equal(await db.get('there'), 2);
      if (leads) {
        await db.close();
        await thread.set('there', 3);
        assert.equal(await thread.get('there'), 3);
      } else {
        // Ended without closing anything: its lock is that of this process.
        await thread.close();
        await db.set('there', 3);
        assert.equal(await db.get('there'), 3);
        await db.close();
      }
    }));

  test(`another process ${leads ? 'follows' : 'leads'}`, () =>
    withPath(async (path) => {
      const other = Member.start();
      let db: Database | undefined = leads ? await share(path) : undefined;
      await other.open(path);
      db ??= await share(path);
      await db.set('here', 1);
      assert.equal(await other.get('here'), 1);
      await other.set('there', 2);
      assert.equal(await db.get('there'), 2);
      if (leads) await db.close();
      else await other.close();
      const left = leads ? other : db;
      await left.set('there', 3);
      assert.equal(await left.get('there'), 3);
      await (leads ? other.close() : db.close());
      await checkClean(path);
    }));
}

test('a read sees whatever was acknowledged before, to anybody', () =>
  withPath(async (path) => {
    const members = [await member(path), await member(path), await member(path)];
    for (let n = 0; n < 60; n++) {
      const writer = members[n % 3] as Member;
      await writer.set('n', n, { durability: n % 2 === 0 ? 'strict' : 'relaxed' });
      for (const reader of members) assert.equal(await reader.get('n'), n);
    }
  }));

test('transactions of four processes lose no update', () =>
  withPath(async (path) => {
    const members = await Promise.all(Array.from({ length: 4 }, () => member(path)));
    const attempts = await Promise.all(members.map((one) => one.ask<number>('add', 'db', 'counter', 50)));
    assert.equal(await members[0]?.get('counter'), 200);
    assert.ok(attempts.reduce((sum, count) => sum + count) >= 200);
  }));

test('a transaction runs again after a conflict with another process', () =>
  withPath(async (path) => {
    const leader = await member(path);
    const db = await share(path);
    await db.set('a', 1);
    for (const [own, other] of [
      [db, (value: number) => leader.set('a', value)],
      [leader, (value: number) => db.set('a', value)],
    ] as const) {
      if (own instanceof Member) continue;
      let attempts = 0;
      await own.transaction(async (tx) => {
        attempts++;
        const old = (await tx.get('a')) as number;
        if (attempts === 1) await other(10);
        await tx.set('a', old + 1);
      });
      assert.equal(attempts, 2);
      assert.equal(await leader.get('a'), 11);
    }
    await db.close();
  }));

test('commits are watched across processes', () =>
  withPath(async (path) => {
    const leader = await member(path);
    const follower = await member(path);
    const db = await share(path);
    for (const one of [leader, follower]) {
      await one.ask('watch', 'db', 'changes');
      await one.ask('subscribe', 'db', 'subscribed', { prefix: ['seen'] });
    }
    const query = liveValue(db, (from) => from.get(['seen', 5]));
    const stop = query.subscribe(() => {});
    await until('the query has read', () => query.getSnapshot().status === 'ready');
    const writers = [leader, follower, db];
    for (let n = 0; n < 12; n++) await writers[n % 3]?.set(['seen', n], n);
    const expected = Array.from({ length: 12 }, (_, n) => n);
    for (const one of [leader, follower]) {
      const changes = await one.watched('changes', 12);
      assert.deepEqual(valuesOf(changes), expected);
      assert.equal(new Set(versionsOf(changes)).size, 12);
      assert.deepEqual(valuesOf(await one.watched('subscribed', 12)), expected);
    }
    await until('the query is told', () => query.getSnapshot().value === 5);
    stop();
    await db.close();
  }));

test('a leader that closes hands over what others have open', () =>
  withPath(async (path) => {
    const leader = await member(path);
    await leader.call(
      'setMany',
      [1, 2, 3, 4, 5, 6].map((n) => [['it', n], n]),
    );
    const others = [await member(path), await member(path)];
    for (const other of others) await other.ask('watch', 'db', 'changes');
    for (const other of others) {
      await other.set('before', other.pid);
      await other.ask('snapshot', 'db', 'snapshot');
      assert.equal(await other.ask('snapshotCall', '', 'snapshot', 'get', ['it', 3]), 3);
      await other.ask('iterate', 'db', 'iterator', { prefix: ['it'] });
      assert.deepEqual(await other.ask('next', '', 'iterator'), [['it', 1], 1]);
    }
    for (const other of others) {
      await other.set('n', other.pid);
      // Both read what is there now.
      await other.ask('snapshot', 'db', 'newest');
    }
    for (const other of others) assert.equal(await other.ask('snapshotCall', '', 'newest', 'has', ['it', 6]), true);
    await leader.set('last', 1, { durability: 'relaxed' });
    for (const other of others) {
      await other.ask('snapshot', 'db', 'last');
      await other.ask('iterate', 'db', 'lastIterator', { prefix: ['it'] });
      assert.deepEqual(await other.ask('next', '', 'lastIterator'), [['it', 1], 1]);
      assert.equal(await other.ask('snapshotCall', '', 'last', 'get', 'last'), 1);
    }
    await leader.close();
    for (const other of others) {
      assert.equal(await other.ask('snapshotCall', '', 'last', 'get', ['it', 4]), 4);
      for (let n = 2; n <= 6; n++) assert.deepEqual(await other.ask('next', '', 'lastIterator'), [['it', n], n]);
      assert.equal(await other.ask('next', '', 'lastIterator'), null);
      // Nobody keeps the versions that these read.
      await rejects(other.ask('snapshotCall', '', 'snapshot', 'get', ['it', 3]), 'KV_SNAPSHOT_LOST');
    }
    for (const other of others) await other.set(['after', other.pid], 1);
    const [one, two] = await Promise.all(others.map((other) => other.watched('changes', 7)));
    assert.deepEqual(one?.slice(-5), two?.slice(-5));
    assert.deepEqual(valuesOf(two ?? []).slice(-5), [others[0]?.pid, others[1]?.pid, 1, 1, 1]);
  }));

/** Checks what the loads of members, alive or not, have written. */
async function checkLoads(reader: Member, writers: readonly Member[], name: (writer: Member) => string): Promise<void> {
  for (const writer of writers) {
    const written = await reader.list([name(writer)]);
    const numbers = new Set(written.map(([, n]) => n));
    for (const n of writer.doneBy(name(writer))) assert.ok(numbers.has(n), `${name(writer)} ${n} is lost`);
  }
}

const loadOf = (writer: Member): string => `load ${writer.pid}`;

for (const durability of ['strict', 'relaxed'] as const) {
  test(
    `a leader is killed while all write, ${durability}: others go on, and nothing is lost or done twice`,
    needsSignals,
    () =>
      withPath(async (path) => {
        const writers: Member[] = [];
        for (let count = 0; count < 4; count++) writers.push(await member(path));
        for (const writer of writers) await writer.ask('load', 'db', loadOf(writer), durability);
        let alive = writers;
        for (let round = 0; round < 3; round++) {
          const least = alive.map((writer) => writer.doneBy(loadOf(writer)).length + 30);
          await until('all write', () =>
            alive.every((writer, index) => writer.doneBy(loadOf(writer)).length >= (least[index] as number)),
          );
          const { pid } = await leaderOf(path);
          const leader = alive.find((writer) => writer.pid === pid) as Member;
          assert.ok(leader, `${pid} leads`);
          await leader.kill();
          alive = alive.filter((writer) => writer !== leader);
          await until('another leads', async () => alive.some((writer) => writer.pid === Number(leadPid(path))));
        }
        const [last] = alive as [Member];
        const failures = await last.ask('stop', '', loadOf(last));
        assert.deepEqual(failures, []);
        // Relaxed commits may end with the leader that has acknowledged them, unless the system has them.
        await checkLoads(last, durability === 'strict' ? writers : [last], loadOf);
        await last.close();
        await checkClean(path);
      }),
  );
}

/** Who leads according to the file, if that is there. */
function leadPid(path: string): number | undefined {
  try {
    return (JSON.parse(readFileSync(join(path, 'leader'), 'utf8')) as Leader).pid;
  } catch {
    return undefined;
  }
}

test('a leader that is stopped lets others wait as long as they want, and goes on', needsSignals, () =>
  withPath(async (path) => {
    const leader = await member(path);
    const follower = await member(path, { lockTimeout: 2000 });
    await follower.set('a', 1);
    leader.signal('SIGSTOP');
    const names = (error: unknown): boolean =>
      code('KV_TIMEOUT')(error) && String(error).includes(`process ${leader.pid}`);
    await assert.rejects(follower.set('a', 2), names);
    // What was not sent was not done.
    await assert.rejects(
      follower.get('a'),
      (error: { retryable?: boolean }) => names(error) && error.retryable === true,
    );
    await assert.rejects(
      share(path, { lockTimeout: 500 }),
      (error) => code('KV_LOCKED')(error) && String(error).includes(`process ${leader.pid}`),
    );
    leader.signal('SIGCONT');
    await follower.set('b', 3);
    assert.equal(await leader.get('b'), 3);
    assert.ok([1, 2].includes((await follower.get<number>('a')) ?? 0));
    await leader.set('a', 4);
    assert.equal(await follower.get('a'), 4);
    const db = await share(path);
    assert.equal(await db.get('a'), 4);
    await db.close();
  }),
);

test('a leader that is busy answers when it is done', () =>
  withPath(async (path) => {
    const leader = await member(path);
    const follower = await member(path, { lockTimeout: 30_000 });
    const hung = leader.ask('hang', '', 3000);
    await follower.set('a', 1);
    assert.equal(await follower.get('a'), 1);
    await hung;
  }));

for (const [which, takesOver] of [
  ['opened first', false],
  ['took over', true],
] as const) {
  test(`a leader that ${which} and never waits itself keeps nobody else waiting`, () =>
    withPath(async (path) => {
      const first = takesOver ? await share(path) : undefined;
      const db = await share(path);
      await first?.close();
      await db.set('n', 0);
      const other = await member(path);
      for (const durability of ['strict', 'relaxed'] as const) {
        let isDone = false;
        const written = other.set('a', 1).then(() => {
          isDone = true;
        });
        const end = Date.now() + LIMIT_MS;
        for (let n = 0; !isDone && Date.now() < end; n++)
          await db.batch().check([durability, n], null).set([durability, n], n).commit({ durability });
        assert.ok(isDone, `${durability}: the other one has no turn`);
        await written;
      }
      await db.close();
    }));
}

for (const takesOver of [false, true]) {
  test(`relaxed commits are flushed while others write, by one that ${takesOver ? 'took over' : 'opened first'}`, () =>
    withPath(async (path) => {
      const first = takesOver ? await share(path) : undefined;
      const db = await share(path);
      await first?.close();
      await db.set('n', 0);
      const errors: unknown[] = [];
      db.addEventListener('error', ({ error }) => errors.push(error));
      const others = [await member(path), await member(path)];
      for (const [index, other] of others.entries())
        await other.ask('load', 'db', loadOf(other), index === 0 ? 'strict' : 'relaxed');
      for (let n = 0; n < 300 && errors.length === 0; n++) {
        await db.set(['own', n], n, { durability: 'relaxed' });
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      assert.deepEqual(errors, []);
      for (const other of others) assert.deepEqual(await other.ask('stop', '', loadOf(other)), []);
      await checkLoads(others[0] as Member, others, loadOf);
      assert.equal(await db.count({ prefix: ['own'] }), 300);
      await db.close();
    }));
}

test('a leader that is stopped and killed has a successor', needsSignals, () =>
  withPath(async (path) => {
    const leader = await member(path);
    const follower = await member(path, { lockTimeout: 30_000 });
    leader.signal('SIGSTOP');
    const written = follower.set('a', 1);
    await leader.kill();
    await written;
    assert.equal(await follower.get('a'), 1);
  }),
);

test('a follower that is stopped keeps nobody waiting', needsSignals, () =>
  withPath(async (path) => {
    const leader = await member(path);
    const stopped = await member(path);
    const other = await member(path);
    await stopped.ask('watch', 'db', 'changes');
    await stopped.ask('snapshot', 'db', 'snapshot');
    await stopped.set('a', 1);
    stopped.signal('SIGSTOP');
    await other.ask('add', 'db', 'a', 20);
    await leader.ask('add', 'db', 'a', 20);
    await leader.close();
    assert.equal(await other.get('a'), 41);
    stopped.signal('SIGCONT');
    assert.equal(await stopped.get('a'), 41);
    assert.deepEqual(
      valuesOf(await stopped.watched('changes', 41)),
      Array.from({ length: 41 }, (_, n) => n + 1),
    );
  }),
);

test('the address is for its user only, and goes with the last handle', needsFiles, () =>
  withPath(async (path) => {
    const before = await share(path);
    await before.close();
    const files = readdirSync(path);
    const leader = await member(path);
    const { socket, pid } = await leaderOf(path);
    assert.equal(pid, leader.pid);
    assert.equal(socket, join(path, 'socket'));
    assert.equal(statSync(join(path, 'leader')).mode & 0o777, 0o600);
    assert.equal(statSync(socket).mode & 0o077, 0);
    const follower = await member(path);
    await leader.close();
    await follower.set('a', 1);
    assert.equal((await leaderOf(path)).pid, follower.pid);
    await follower.close();
    assert.deepEqual(readdirSync(path), files);
  }),
);

test('a long path has its socket in a directory of the user', needsFiles, () =>
  withPath(async (path) => {
    const long = join(path, 'x'.repeat(100));
    mkdirSync(path);
    const temporary = mkdtempSync(join(tmpdir(), 'mangrove-'));
    try {
      const env = { TMPDIR: temporary };
      const [leader, follower] = [Member.start(OWN_RUNTIME, env), Member.start()];
      await leader.open(long);
      await follower.open(long);
      const { socket } = await leaderOf(long);
      assert.equal(dirname(dirname(socket)), temporary);
      assert.equal(statSync(dirname(socket)).mode & 0o777, 0o700);
      await follower.set('a', 1);
      assert.equal(await leader.get('a'), 1);
      await leader.close();
      // In a directory that others can enter nobody listens.
      chmodSync(dirname(socket), 0o755);
      await until('the follower leads', async () => (await leaderOf(long)).pid !== leader.pid);
      await leader.open(long);
      assert.equal(await follower.get('a'), 1);
      await follower.close();
      await leader.close();
      await leader.open(long);
      await assert.rejects(
        follower.open(long, { lockTimeout: 2000 }),
        (error) => code('KV_LOCKED')(error) && String(error).includes('can be entered by other users'),
      );
      assert.equal(await leader.get('a'), 1);
    } finally {
      rmSync(temporary, { recursive: true, force: true });
    }
  }),
);

test("what a killed leader leaves is in nobody's way", needsFiles, () =>
  withPath(async (path) => {
    const leader = await member(path);
    await leader.set('a', 1);
    await leaderOf(path);
    await leader.kill();
    assert.ok(existsSync(join(path, 'leader')));
    const db = await open(path);
    assert.equal(await db.get('a'), 1);
    await db.close();
    const again = await member(path);
    assert.equal(await again.get('a'), 1);
    await leaderOf(path);
    await again.kill();
    assert.equal(await destroy(path), true);
    assert.equal(existsSync(path), false);
  }),
);

test("without share a database is one handle's", () =>
  withPath(async (path) => {
    const sharing = await member(path);
    await sharing.set('a', 1);
    await rejects(open(path, { lockTimeout: 100, share: false }), 'KV_LOCKED');
    assert.throws(() => openSync(path, { lockTimeout: 100, share: true }), code('KV_LOCKED'));
    await rejects(destroy(path), 'KV_LOCKED');
    await sharing.close();
    const alone = Member.start();
    await alone.open(path, { share: false });
    await assert.rejects(
      share(path, { lockTimeout: 200 }),
      (error: { retryable?: boolean }) => code('KV_LOCKED')(error) && error.retryable === true,
    );
    await rejects(sharing.open(path, { lockTimeout: 0 }), 'KV_LOCKED');
    const waits = share(path, { lockTimeout: 60_000 });
    await alone.close();
    const db = await waits;
    assert.equal(await db.get('a'), 1);
    await db.close();
  }));

test('a read-only handle is beside those who share, and reads what they have stored', () =>
  withPath(async (path) => {
    const leader = await member(path);
    await leader.set('a', 1);
    const reader = await member(path, { readOnly: true });
    assert.equal(await reader.get('a'), 1);
    const follower = await member(path);
    await follower.set('a', 2);
    await reader.call('refresh');
    assert.equal(await reader.get('a'), 2);
    await rejects(reader.set('a', 3), 'KV_READ_ONLY');
    await leader.kill();
    await follower.set('a', 4);
    await reader.call('refresh');
    assert.equal(await reader.get('a'), 4);
  }));

test('an encrypted database is shared by those who have its key', () =>
  withPath(async (path) => {
    const leader = await member(path, { key: 'right' });
    const follower = await member(path, { key: 'right' });
    await follower.set('a', 'secret text');
    const other = Member.start();
    await rejects(other.open(path, { key: 'wrong' }), 'KV_WRONG_KEY');
    await rejects(other.open(path), 'KV_WRONG_KEY');
    assert.equal(await leader.get('a'), 'secret text');
    await leader.kill();
    await rejects(other.open(path, { key: 'wrong' }), 'KV_WRONG_KEY');
    await rejects(other.open(path), 'KV_WRONG_KEY');
    assert.equal(await follower.get('a'), 'secret text');
    await other.open(path, { key: 'right' });
    assert.equal(await other.get('a'), 'secret text');
    await follower.close();
    await other.close();
    for (const name of ['data', 'log']) {
      if (existsSync(join(path, name))) assert.equal(readFileSync(join(path, name)).includes('secret text'), false);
    }
  }));

test('a key is refused for a database without encryption', () =>
  withPath(async (path) => {
    const leader = await member(path);
    await leader.set('a', 1);
    await assert.rejects(Member.start().open(path, { key: 'any' }), { name: 'KvError' });
    assert.equal(await leader.get('a'), 1);
  }));

test('a process that has nothing more to do ends by itself', () =>
  withPath(async (path) => {
    // It leads, and has another handle that follows.
    assert.equal(await runToEnd([path]), 0);
    assert.equal(await runToEnd([path, path]), 0);
    const db = await share(path);
    await leaderOf(path);
    assert.equal(await runToEnd([path]), 0);
    assert.equal(await db.count({ prefix: ['left'] }), 3);
    await db.set('a', 1);
    await db.close();
    await checkClean(path);
  }));

test('exclusive opens no database that another handle has open', () =>
  withPath(async (path) => {
    const leader = await member(path, { exclusive: true });
    await leader.set('a', 1);
    await rejects(share(path, { exclusive: true }), 'KV_EXISTS');
    await rejects(Member.start().open(path, { exclusive: true }), 'KV_EXISTS');
    const follower = await member(path);
    await leader.close();
    await rejects(leader.open(path, { exclusive: true }), 'KV_EXISTS');
    assert.equal(await follower.get('a'), 1);
    // It was created by this handle, which may well lead it.
    await rejects(share(path, { exclusive: true }), 'KV_EXISTS');
    const created = `${path}-2`;
    const [creator, other] = [await share(created, { exclusive: true }), await share(created)];
    await creator.close();
    assert.equal(await other.get('a'), undefined);
    await other.close();
  }));

test('many open a new database at once: one of them creates it', () =>
  withPath(async (path) => {
    const members = Array.from({ length: 4 }, () => Member.start());
    const outcomes = await Promise.all(
      members.map((one) =>
        one.open(path, { exclusive: true, lockTimeout: 30_000 }).then(
          () => 'open',
          (error: { code: string }) => error.code,
        ),
      ),
    );
    assert.deepEqual(outcomes.sort(), ['KV_EXISTS', 'KV_EXISTS', 'KV_EXISTS', 'open']);
  }));

test('an upgrade runs once, whichever process runs it', () =>
  withPath(async (path) => {
    const members = Array.from({ length: 3 }, () => Member.start());
    await Promise.all(members.map((one) => one.open(path, { upgradeTo: 1, lockTimeout: 30_000 })));
    assert.equal((await (members[0] as Member).list(['upgrade', 1])).length, 1);
    // A newer version takes over while those of the old one have it open, and they learn of it.
    const newer = Member.start();
    await newer.open(path, { upgradeTo: 2, lockTimeout: 30_000 });
    assert.deepEqual(
      (await newer.list(['upgrade'])).map(([key]) => key[1]),
      [1, 2],
    );
    await rejects(Member.start().open(path, { upgradeTo: 1 }), 'KV_VERSION_TOO_NEW');
  }));

for (const leads of ['node', 'deno', 'bun'] as const) {
  test(`all runtimes share a database that ${leads} has opened`, needsSignals, () =>
    withPath(async (path) => {
      const order = [leads, ...(['node', 'deno', 'bun'] as const).filter((runtime) => runtime !== leads)];
      const members: Member[] = [];
      for (const runtime of order) members.push(await member(path, { lockTimeout: 30_000 }, runtime));
      const [first, second, third] = members as [Member, Member, Member];
      await third.ask('watch', 'db', 'changes');
      for (const [index, one] of members.entries()) {
        await one.set(['from', index], index);
        for (const reader of members) assert.equal(await reader.get(['from', index]), index);
      }
      assert.equal((await third.watched('changes', 3)).length, 3);
      await Promise.all(members.map((one) => one.ask('add', 'db', 'counter', 20)));
      assert.equal(await second.get('counter'), 60);
      await Promise.all([second, third].map((one) => one.ask('load', 'db', loadOf(one))));
      await until('both write', () => [second, third].every((one) => one.doneBy(loadOf(one)).length > 10));
      await first.kill();
      const least = [second, third].map((one) => one.doneBy(loadOf(one)).length + 10);
      await until('both go on', () =>
        [second, third].every((one, index) => one.doneBy(loadOf(one)).length > (least[index] as number)),
      );
      for (const one of [second, third]) assert.deepEqual(await one.ask('stop', '', loadOf(one)), []);
      await checkLoads(second, [second, third], loadOf);
      await second.close();
      assert.equal(await third.get('counter'), 60);
    }),
  );
}

test('a hundred handles', () =>
  withPath(async (path) => {
    const leader = await member(path);
    const processes = [leader, await member(path), await member(path)];
    const handles = Array.from({ length: 99 }, (_, index) => ({
      own: processes[index % 3] as Member,
      name: `handle ${index}`,
    }));
    await Promise.all(handles.map(({ own, name }) => own.open(path, { lockTimeout: 60_000 }, name)));
    await Promise.all(handles.map(({ own, name }) => own.ask('add', name, ['own', name], 3)));
    await Promise.all(handles.map(({ own, name }, index) => own.ask('call', name, 'set', ['set', index], index)));
    const db = await share(path);
    assert.equal(await db.count({ prefix: ['own'] }), 99);
    assert.deepEqual(new Set(await db.values({ prefix: ['own'] }).toArray()), new Set([3]));
    await leader.kill();
    const left = handles.filter(({ own }) => own !== leader);
    await Promise.all(left.map(({ own, name }) => own.ask('add', name, ['own', name], 1)));
    assert.equal((await db.values({ prefix: ['own'] }).toArray()).filter((value) => value === 4).length, 66);
    assert.equal(await db.count({ prefix: ['set'] }), 99);
    await Promise.all(left.map(({ own, name }) => own.close(name)));
    await db.close();
  }));

test('a handle opened by new code takes over from that of the old, as a hot reload does', () =>
  withPath(async (path) => {
    let current = await share(path);
    const other = await member(path);
    for (let generation = 0; generation < 10; generation++) {
      const next = await share(path);
      await Promise.all([next.set(['generation', generation], 1), current.close()]);
      await other.set(['other', generation], 1);
      current = next;
    }
    assert.equal(await current.count({ prefix: ['generation'] }), 10);
    assert.equal(await current.count({ prefix: ['other'] }), 10);
    await current.close();
  }));

test('a connection that breaks is made again, and nothing is done twice', () =>
  withPath(async (path) => {
    const leader = await member(path);
    const net = process.getBuiltinModule('node:net');
    const { connect } = net;
    const sockets: Socket[] = [];
    net.connect = ((...args: Parameters<typeof connect>) => {
      const socket = connect(...args);
      sockets.push(socket);
      return socket;
    }) as typeof connect;
    try {
      const db = await share(path);
      for (let n = 0; n < 6; n++) {
        // The connection is made, and nothing is in flight.
        for (let count = 0; count < 3; count++) await within('a read', db.get('a'));
        await new Promise((resolve) => setTimeout(resolve, 20));
        // The request arrives, and its reply does not.
        if (n % 2 === 0) sockets.at(-1)?.pause();
        const written = db.batch().check(['n', n], null).set(['n', n], n).commit();
        await until('the leader has it', async () => (await leader.get(['n', n])) === n);
        sockets.at(-1)?.destroy();
        // With each commit the leader deletes what it remembers of those who have ended.
        for (let count = 0; count < 30; count++) {
          await leader.set('other', count);
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
        await within('a write', written);
      }
      assert.ok(sockets.length > 3);
      assert.equal((await leader.list(['n'])).length, 6);
      await db.close();
    } finally {
      net.connect = connect;
    }
  }));

test('the title of a process may be as long as it wants', () =>
  withPath(async (path) => {
    const leader = await member(path);
    // Node cuts it to the length of the command.
    const titled = Member.start('bun');
    assert.equal(await titled.ask('title', '', 10_000), 10_000);
    await titled.open(path);
    await titled.set('a', 1);
    assert.equal(await leader.get('a'), 1);
  }));

test('commits that die with the leader mislead nobody who has seen them', needsSignals, () =>
  withPath(async (path) => {
    const leader = await member(path);
    const db = await share(path);
    await db.set('before', 0);
    const shown = await mirror(db).ready;
    const query = liveQuery(db);
    const stop = query.subscribe(() => undefined);
    const seen: Commit[] = [];
    const watch = async (): Promise<void> => {
      for await (const commit of db.watch()) seen.push(commit);
    };
    const told = rejects(watch(), 'KV_TRUNCATED_FEED');
    await db.set('before', 1);
    // Visible, in no log; the next leader gives the version again.
    await leader.set('lost', 1, { durability: 'none' });
    await until(
      'the commit is seen',
      () => seen.length > 1 && shown.has('lost') && query.getSnapshot().entries.length === 2,
    );
    await leader.kill();
    await db.set('kept', 2);
    await until('the next one is shown', () => shown.has('kept') && !shown.isStale);
    const stored = await db.entries().toArray();
    await until(
      'the live query is whole',
      () => !query.getSnapshot().isStale && query.getSnapshot().entries.length === stored.length,
    );
    assert.deepEqual(shown.range(), stored);
    assert.deepEqual(query.getSnapshot().entries, stored);
    assert.equal(
      stored.some(([key]) => key === 'lost'),
      false,
    );
    await within('the watch', told);
    stop();
    await db.close();
  }),
);
