// Strict transactions of tabs that do not replicate: each has its effect once, whatever happens to
// the tab that does and to what the tabs say. `tests-e2e` has real tabs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from 'mangrove-kv';
import { MemoryLog, MemoryServer } from '../src/memory-log.ts';
import { STRICT } from '../src/record.ts';
import { logUnavailable } from '../src/remote-log.ts';
import type { StrictHost } from '../src/strict.ts';
import { runStrict } from '../src/strict.ts';
import type { Call } from '../src/verbs.ts';
import { hostOf, perform } from '../src/verbs.ts';
import { chance, code } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';

const collections = { accounts: { mode: 'strict' }, notes: {} } as const;

/** Tabs of one database, one of which replicates. */
class Origin {
  readonly #server: MemoryServer;
  readonly db: Database;
  leader: Device;

  constructor(server: MemoryServer, leader: Device) {
    this.#server = server;
    this.db = leader.db;
    this.leader = leader;
  }

  static async start(server: MemoryServer): Promise<Origin> {
    return new Origin(server, await Device.start(server, { collections }));
  }

  /** Another tab replicates; the earlier one may still have work to do. */
  async takeOver(): Promise<void> {
    this.leader.replica.stop();
    this.leader = await Device.adopt(this.#server, { collections }, this.db);
  }

  call: Call = (verb, args, signal) => perform(this.leader.replica, verb, args, signal ?? new AbortController().signal);

  host(call: Call = this.call): StrictHost<string> {
    return hostOf(this.leader.replica.tables, 'tab', call);
  }

  async offered(): Promise<number> {
    return this.leader.replica.tables.offered.count();
  }
}

const bump = (tx: { collection(name: string): unknown }): Promise<unknown> =>
  (tx.collection('accounts') as { update(key: string, change: (old?: number) => number): Promise<unknown> }).update(
    'n',
    (old = 0) => old + 1,
  );

test('a record that was offered before a take-over has one outcome, whoever is asked', async () => {
  const server = new MemoryServer();
  const origin = await Origin.start(server);
  await origin.leader.exchange();
  const key = Uint8Array.of(0x30, 0x61);
  const ops = [{ type: 'delete' as const, collection: 'accounts', key }];
  assert.equal(await origin.call('offer', ['tab/1', STRICT, ops, 0], undefined), true);
  // Only one at a time.
  assert.equal(await origin.call('offer', ['tab/2', STRICT, ops, 0], undefined), false);
  await origin.takeOver();
  assert.equal(await origin.call('outcome', ['tab/1'], undefined), true);
  assert.equal(server.records.length, 1);

  // Refused: another device wrote.
  const position = (await origin.leader.replica.state()).cursor.position;
  const other = await Device.start(server, { collections });
  await other.db.collection('notes').set('a', 1);
  assert.equal(await origin.call('offer', ['tab/3', STRICT, ops, position], undefined), true);
  await other.exchange();
  await origin.takeOver();
  // In the background.
  await origin.leader.exchange();
  assert.equal(await origin.call('outcome', ['tab/3'], undefined), false);
  await origin.takeOver();
  assert.deepEqual(
    [await origin.call('outcome', ['tab/3'], undefined), await origin.call('outcome', ['tab/1'], undefined)],
    [false, true],
  );

  // Given up before it arrives, and offered to a tab that does not replicate any more.
  assert.equal(await origin.call('outcome', ['tab/4'], undefined), false);
  await origin.call('forget', ['tab/4'], undefined);
  const end = (await origin.leader.replica.state()).cursor.position;
  assert.equal(await origin.call('offer', ['tab/4', STRICT, ops, end], undefined), false);
  const former = origin.leader.replica;
  await origin.takeOver();
  await assert.rejects(former.offer(STRICT, ops, end, { id: 'tab/5' }), code('KV_CLOSED'));
  assert.equal(await origin.call('outcome', ['tab/5'], undefined), false);
  assert.deepEqual([server.records.length, await origin.leader.replica.pending()], [2, 0]);

  for (const id of ['tab/1', 'tab/3']) await origin.call('forget', [id], undefined);
  assert.equal(await origin.offered(), 2);
  await origin.leader.replica.forget((id) => id.startsWith('tab/'));
  assert.equal(await origin.offered(), 0);
  await Promise.all([origin.leader.stop(), other.stop()]);
});

test('a tab that was replaced and does not know it yet skips nothing', async () => {
  const server = new MemoryServer();
  const [frozen, early] = [await Device.start(server), await Device.start(server)];
  for (const key of ['a', 'b', 'c']) {
    await early.db.collection('notes').set(key, 1);
    await early.exchange();
  }
  await frozen.exchange();
  // The log loses records 2 and 3, and gets others.
  server.loseHistory(1);
  for (const keys of [['d', 'e'], ['f']]) {
    const device = await Device.start(server);
    for (const key of keys) {
      await device.db.collection('notes').set(key, 2);
      await device.exchange();
    }
    await device.stop();
  }
  // Another tab takes over, begins to read the log from its start, and gets no answer.
  const log = new MemoryLog(server);
  const taker = await Device.adopt(server, { log }, frozen.db);
  log.read = () => Promise.reject(logUnavailable('no answer'));
  await assert.rejects(taker.replica.pull(), { code: 'KV_LOG_UNAVAILABLE' });
  assert.equal((await taker.replica.state()).cursor.position, 0);
  // The frozen one still remembers position 3.
  await frozen.replica.pull();
  taker.replica.stop();
  const next = await Device.adopt(server, {}, frozen.db);
  early.replica.reconnect();
  await converge([next, early]);
  assert.equal(await next.digest(), await early.digest());
  assert.deepEqual(await early.db.collection('notes').keys().toArray(), ['a', 'b', 'c', 'd', 'e', 'f']);
  assert.deepEqual([frozen.alarms, next.alarms], [[], []]);
  await Promise.all([next.stop(), early.stop()]);
});

for (const seed of [1, 2, 3, 4]) {
  test(`transactions of tabs take effect once although messages are lost and other tabs take over, seed ${seed}`, async () => {
    const random = chance(seed);
    const server = new MemoryServer();
    const [origin, other] = [await Origin.start(server), await Device.start(server, { collections })];
    let [lost, taken] = [0, 0];
    /** One tab takes over after another, as there is one leader at a time. */
    let taking = Promise.resolve();
    let isOver = false;
    const lossy: Call = async (verb, args, signal) => {
      if (random() < 0.1) {
        lost++;
        throw logUnavailable('the question was lost');
      }
      if (random() < 0.1 && !isOver) {
        taken++;
        taking = taking.then(() => origin.takeOver());
        await taking;
      }
      const done = origin.call(verb, args, signal).catch((error: unknown) => {
        throw (error as { code?: string }).code === 'KV_CLOSED' ? logUnavailable('another tab took over') : error;
      });
      if (random() < 0.15) {
        lost++;
        done.catch(() => undefined);
        throw logUnavailable('the answer was lost');
      }
      return done;
    };
    const run = async (host: StrictHost<string>): Promise<void> => {
      for (const sent = {}; ; ) {
        try {
          await runStrict(host, bump, { maxRetries: 1000 }, sent);
          return;
        } catch (error) {
          if ((error as { code?: string }).code !== 'KV_LOG_UNAVAILABLE') throw error;
        }
      }
    };
    await Promise.all(
      [0, 1, 2].map(async (tab) => {
        for (let nth = 0; nth < 8; nth++) {
          await run(origin.host(lossy));
          await origin.db.collection('notes').set(`${tab} ${nth}`, nth);
          if (tab === 0) await runStrict(other.replica, bump, { maxRetries: 1000 });
        }
      }),
    );
    // Nobody waits for the last `forget`, which may still let another tab take over.
    isOver = true;
    await taking;
    await origin.leader.exchange();
    await other.exchange();
    assert.equal(await origin.db.collection('accounts').get('n'), 32);
    assert.equal(await origin.leader.digest(), await other.digest());
    assert.ok(lost > 10 && taken > 3);
    await Promise.all([origin.leader.stop(), other.stop()]);
  });
}

test('a tab that was replaced and does not know it yet sends nothing again', async () => {
  const server = new MemoryServer();
  const [frozen, other] = [await Device.start(server), await Device.start(server)];
  const notes = ({ db }: Device) => db.collection('notes');
  await converge([frozen, other]);
  const taker = await Device.adopt(server, {}, frozen.db);
  await notes(taker).set('k', 'old');
  await converge([taker, other]);
  await notes(other).set('k', 'new');
  await converge([other, taker]);
  // Its feed has the first commit.
  while (await frozen.replica.drain());
  frozen.replica.stop();
  await converge([taker, other]);
  assert.equal(server.records.length, 2);
  for (const each of [taker, other]) assert.equal(await notes(each).get('k'), 'new');
  assert.equal(await taker.replica.pending(), 0);
  await Promise.all([taker.stop(), other.stop()]);
});
