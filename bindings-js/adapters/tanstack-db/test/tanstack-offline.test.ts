// The storage of offline transactions, under TanStack's own outbox and executor.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OutboxManager, startOfflineExecutor } from '@tanstack/offline-transactions';
import type { StorageAdapter } from '@tanstack/offline-transactions';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MangroveStorageAdapter } from '@mangrove-kv/tanstack-db/offline';
import { until } from './support/until.ts';
import { tanStackOf } from './support/versions.ts';

const { createCollection, localOnlyCollectionOptions } = await tanStackOf('@tanstack/offline-transactions');

const memory = (): Promise<Database> => open('offline', { storage: 'memory' });

test('what the interface of IndexedDBAdapter says', async () => {
  const db = await memory();
  const storage: StorageAdapter = new MangroveStorageAdapter(Promise.resolve(db));
  assert.equal(await storage.get('a'), null);
  await storage.set('b', '');
  await storage.set('a', 'one');
  await storage.set('b', 'two');
  assert.equal(await storage.get('b'), 'two');
  assert.deepEqual(await storage.keys(), ['b', 'a'], 'in the order of their first storing');
  await storage.delete('b');
  await storage.delete('missing');
  await storage.set('b', 'three');
  assert.deepEqual(await storage.keys(), ['a', 'b']);
  const other = new MangroveStorageAdapter(db, { collection: 'others' });
  assert.deepEqual(await other.keys(), []);
  await storage.clear();
  assert.deepEqual(await storage.keys(), []);
  await db.close();
  for (const call of [
    () => storage.get('a'),
    () => storage.set('a', ''),
    () => storage.keys(),
    () => storage.delete('a'),
    () => storage.clear(),
  ])
    await assert.rejects(call(), { code: 'KV_CLOSED' });
});

test('transactions of one millisecond come out of the outbox in the order in which they went in', async () => {
  const db = await memory();
  const outbox = new OutboxManager(new MangroveStorageAdapter(db), {});
  const createdAt = new Date();
  const ids = Array.from({ length: 50 }, (_, n) => String((n * 37) % 50));
  for (const id of ids) {
    await outbox.add({
      id,
      mutationFnName: 'send',
      mutations: [],
      keys: [],
      idempotencyKey: id,
      createdAt,
      retryCount: 0,
      nextAttemptAt: 0,
      version: 1,
    });
  }
  await outbox.update(ids[0]!, { retryCount: 1 });
  const again = new OutboxManager(new MangroveStorageAdapter(db), {});
  assert.deepEqual(
    (await again.getAll()).map(({ id }) => id),
    ids,
  );
  await again.removeMany(ids.slice(1));
  assert.deepEqual(
    (await outbox.getAll()).map(({ id, retryCount }) => [id, retryCount]),
    [[ids[0], 1]],
  );
  await db.close();
});

test('a transaction that was made offline is sent by the next page', async () => {
  const db = await memory();
  const collection = () =>
    createCollection(localOnlyCollectionOptions<{ id: number }, number>({ id: 'todos', getKey: ({ id }) => id }));
  let isOnline = false;
  const listeners = new Set<() => void>();
  const sent: unknown[] = [];
  const executor = (todos: ReturnType<typeof collection>) =>
    startOfflineExecutor({
      collections: { todos } as never,
      mutationFns: {
        send: ({ transaction }) => {
          sent.push(transaction.mutations.map(({ modified }) => modified));
          return Promise.resolve();
        },
      },
      storage: new MangroveStorageAdapter(db),
      // Those of the package need a browser.
      leaderElection: {
        requestLeadership: () => Promise.resolve(true),
        releaseLeadership: () => undefined,
        isLeader: () => true,
        onLeadershipChange: () => () => undefined,
      },
      onlineDetector: {
        isOnline: () => isOnline,
        subscribe: (listener: () => void) => {
          listeners.add(listener);
          return () => listeners.delete(listener);
        },
        notifyOnline: () => {
          for (const listener of listeners) listener();
        },
        dispose: () => listeners.clear(),
      },
    });
  const todos = collection();
  const first = executor(todos);
  await first.waitForInit();
  const transaction = first.createOfflineTransaction({ mutationFnName: 'send', autoCommit: false });
  transaction.mutate(() => todos.insert({ id: 1 }));
  void transaction.commit().catch(() => undefined);
  const storage = new MangroveStorageAdapter(db);
  await until(async () => (await storage.keys()).length > 0);
  assert.deepEqual(sent, []);
  first.dispose();

  isOnline = true;
  const second = executor(collection());
  await second.waitForInit();
  await until(() => sent.length > 0);
  assert.deepEqual(sent, [[{ id: 1 }]]);
  await until(async () => (await storage.keys()).length === 0);
  second.dispose();
  await db.close();
});
