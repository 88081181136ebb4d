// What a comparison of all entries with the base sends: at each start of a database without a feed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MemoryServer } from '../src/memory-log.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { collections, equal, stopAll } from './helpers.ts';
import { Oracle } from './oracle.ts';
import type { OracleTransaction } from './oracle.ts';
import { openPlain } from './slow-feed.ts';

/** What the application does while replication does not run. */
async function away(
  server: MemoryServer,
  device: Device,
  options: DeviceOptions,
  work: (db: Database) => Promise<unknown>,
): Promise<Device> {
  device.replica.stop();
  await device.db.close();
  const db = await openPlain(device.disk, options.feed !== false);
  await work(db);
  await db.close();
  return Device.start(server, options, device.disk);
}

/** Transactions behind a position of the log. */
const sent = (server: MemoryServer, after: number): OracleTransaction[] =>
  new Oracle(server.records).accepted
    .filter(({ position }) => position > after)
    .flatMap(({ transactions }) => transactions);
const named = ({ operations }: OracleTransaction): string[] =>
  operations.map(({ kind, key }) => `${kind} ${String(keyCodecs.any.decode(Buffer.from(key, 'hex')))}`);

test('what was written without replication is sent once, as writes that knew what the device had applied', async () => {
  const server = new MemoryServer();
  const options = { feed: false };
  const [other, before] = [await Device.start(server), await Device.start(server, options)];
  for (const key of ['changed', 'deleted', 'kept']) await other.db.collection('notes').set(key, 1);
  await converge([other, before]);
  const end = (server.records.at(-1) as { readonly position: number }).position;
  const device = await away(server, before, options, async (db) => {
    const notes = db.collection('notes');
    await notes.set('new', 1);
    await notes.set('new', 2);
    await notes.set('changed', 2);
    await notes.delete('deleted');
  });
  await converge([device, other]);
  const transactions = sent(server, end);
  assert.deepEqual(transactions.flatMap(named).sort(), ['delete deleted', 'set changed', 'set new']);
  for (const { base } of transactions) assert.equal(base, end);
  await equal([device, other]);
  assert.deepEqual(await other.db.collection('notes').entries().toArray(), [
    ['changed', 2],
    ['kept', 1],
    ['new', 2],
  ]);
  await stopAll([device, other]);
});

test('what was written to strict keys without replication is undone', async () => {
  const server = new MemoryServer();
  const options = { feed: false, collections };
  const before = await Device.start(server, options);
  await before.exchange();
  const device = await away(server, before, options, (db) => db.collection('accounts').set('a', 1));
  await device.exchange();
  assert.deepEqual(await device.db.collection('accounts').entries().toArray(), []);
  assert.deepEqual([device.alarms.map(({ code }) => code), sent(server, 0)], [['KV_REPLICATION_MODE'], []]);
  await device.stop();
});

test('where there is a feed, a comparison for another collection leaves transactions whole', async () => {
  const server = new MemoryServer();
  const before = await Device.start(server);
  await before.exchange();
  const device = await away(server, before, { collections: { notes: {}, tasks: {} } }, async (db) => {
    await db.collection('notes').setMany([
      ['a', 1],
      ['b', 1],
    ]);
    await db.collection('notes').set('a', 2);
  });
  await device.exchange();
  assert.deepEqual(sent(server, 0).map(named), [['set a', 'set b'], ['set a']]);
  await device.stop();
});
