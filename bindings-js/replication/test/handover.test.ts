// What replication loses with the tab that had the database's files: transactions, snapshots and the feed.
// `tests-e2e` closes real tabs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CommitIterator, Database, KvErrorCode, Snapshot, Transaction, TransactionOptions } from 'mangrove-kv';
import { KvError } from 'mangrove-kv';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { runStrict } from '../src/strict.ts';
import { code, overriding } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import { collections, equal, stopAll } from './helpers.ts';

const gone = (why: KvErrorCode): KvError => new KvError(why, 'the tab is gone', { retryable: true });

/** A database that another tab takes over, when the test says so. */
class Shared {
  /** What the next transactions fail with after their first read. */
  transactions: KvErrorCode[] = [];
  /** How many snapshots are still lost, each after its first read. */
  snapshots = 0;
  #endFeed: (error: KvError) => void = () => undefined;
  readonly db: Database;

  constructor(db: Database) {
    const own: { [name: string | symbol]: unknown } = {
      begin: (options?: TransactionOptions) => this.#begin(db, options),
      snapshot: () => this.#snapshot(db),
      changes: (...args: Parameters<Database['changes']>) => this.#changes(db.changes(...args)),
    };
    this.db = overriding(db, (name) => own[name]);
  }

  /** The feed's commits died with the tab. */
  truncate(): void {
    this.#endFeed(gone('KV_TRUNCATED_FEED'));
  }

  #begin(db: Database, options?: TransactionOptions): Transaction {
    const why = this.transactions.shift();
    if (why === undefined) return db.begin(options);
    const end = new AbortController();
    const tx = db.begin({ ...options, signal: end.signal });
    // A transaction that has ended fails with the reason.
    void tx.baseVersion.then(async () => tx.size).then(() => end.abort(gone(why)));
    return tx;
  }

  #snapshot(db: Database): Snapshot {
    const snapshot = db.snapshot();
    let reads = 0;
    return overriding(snapshot, (name) => {
      if (name === 'collection' && reads++ > 0 && this.snapshots > 0) {
        this.snapshots--;
        throw gone('KV_SNAPSHOT_LOST');
      }
      return undefined;
    });
  }

  #changes(commits: ReturnType<Database['changes']>): ReturnType<Database['changes']> {
    const ended = new Promise<never>((_, reject) => {
      this.#endFeed = reject;
    });
    ended.catch(() => undefined);
    const next = (): ReturnType<CommitIterator<unknown, unknown>['next']> => Promise.race([commits.next(), ended]);
    return overriding(commits, (name) => (name === 'next' ? next : undefined));
  }
}

async function start(
  server: MemoryServer,
  snapshots = new MemorySnapshotStore(),
): Promise<{ readonly device: Device; readonly shared: Shared }> {
  const first = await Device.start(server, { collections, snapshots });
  first.replica.stop();
  const shared = new Shared(first.db);
  return { device: await Device.adopt(server, { collections, snapshots }, shared.db), shared };
}

test('a strict transaction runs again if what it read is lost', async () => {
  const server = new MemoryServer();
  const { device, shared } = await start(server);
  let runs = 0;
  const bump = (maxRetries: number): Promise<number> =>
    runStrict(
      device.replica,
      async (tx) => {
        runs++;
        const accounts = tx.collection<string, number>('accounts');
        let old = 0;
        // Time to lose it.
        for (let read = 0; read < 20; read++) old = (await accounts.get('n')) ?? 0;
        await accounts.set('n', old + 1);
        return old + 1;
      },
      { maxRetries },
    );
  shared.transactions = ['KV_CONFLICT', 'KV_SNAPSHOT_LOST'];
  assert.equal(await bump(2), 1);
  assert.equal(runs, 3);
  shared.transactions = ['KV_CONFLICT', 'KV_CONFLICT'];
  await assert.rejects(bump(1), code('KV_CONFLICT'));
  assert.equal(runs, 5);
  shared.transactions = ['KV_IO'];
  await assert.rejects(bump(5), code('KV_IO'));
  assert.equal(runs, 6);
  assert.equal(await device.db.collection('accounts').get('n'), 1);
  await device.stop();
});

test('a strict transaction runs again if the feed ends while it runs', async () => {
  const server = new MemoryServer();
  const [{ device, shared }, other] = [await start(server), await Device.start(server, { collections })];
  let runs = 0;
  await runStrict(
    device.replica,
    async (tx) => {
      if (++runs === 1) {
        shared.truncate();
        // Past replication: has to be undone, although the feed does not tell of it.
        await shared.db.collection('accounts').set('wrong', 1);
      }
      const accounts = tx.collection<string, number>('accounts');
      await accounts.set('n', await accounts.count());
    },
    {},
  );
  assert.equal(runs, 2);
  await converge([device, other]);
  await equal([device, other]);
  assert.deepEqual(await other.db.collection('accounts').entries().toArray(), [['n', 0]]);
  assert.deepEqual(
    device.alarms.map((alarm) => alarm.code),
    ['KV_REPLICATION_MODE'],
  );
  await stopAll([device, other]);
});

test('comparing everything starts over if the snapshot is lost', async () => {
  const server = new MemoryServer();
  const [{ device, shared }, other] = [await start(server), await Device.start(server, { collections })];
  await device.exchange();
  shared.truncate();
  shared.snapshots = 2;
  await shared.db.collection('notes').set('a', 1);
  await converge([device, other]);
  assert.equal(shared.snapshots, 0);
  assert.deepEqual(await other.db.collection('notes').entries().toArray(), [['a', 1]]);
  assert.deepEqual(device.alarms, []);
  await stopAll([device, other]);
});

test("a snapshot for the object store is taken again if the database's is lost", async () => {
  const server = new MemoryServer();
  const store = new MemorySnapshotStore();
  const { device, shared } = await start(server, store);
  for (const key of ['a', 'b']) await shared.db.collection('notes').set(key, key);
  await device.exchange();
  shared.snapshots = 2;
  assert.ok((await device.replica.compact())?.position);
  assert.equal(shared.snapshots, 0);
  const late = await Device.start(server, { collections, snapshots: store });
  await late.exchange();
  await equal([device, late]);
  await shared.db.collection('notes').set('c', 1);
  await device.exchange();
  shared.snapshots = Infinity;
  await assert.rejects(device.replica.compact(), code('KV_SNAPSHOT_LOST'));
  shared.snapshots = 0;
  assert.ok(await device.replica.compact());
  await stopAll([device, late]);
});
