// What tests of several devices have in common.
import assert from 'node:assert/strict';
import { keyCodecs } from 'mangrove-kv';
import type { MemoryServer } from '../src/memory-log.ts';
import { replaceDigest } from '../src/model.ts';
import { decodeRow } from '../src/row.ts';
import type { ReplicaState } from '../src/state.ts';
import { converge } from './device.ts';
import type { Device } from './device.ts';

export const collections = { notes: {}, accounts: { mode: 'strict' } } as const;

export async function equal(devices: readonly Device[]): Promise<void> {
  const digests = await Promise.all(devices.map((device) => device.digest()));
  for (const digest of digests) assert.equal(digest, digests[0]);
  for (const device of devices) {
    assert.equal(await device.replica.pending(), 0);
    for (const table of device.replica.tables.byName.values())
      for await (const [, row] of table.rows.entries()) assert.equal(decodeRow(row).pending, undefined);
  }
}

export async function stopAll(devices: readonly Device[]): Promise<void> {
  await Promise.all(devices.map((device) => device.stop()));
}

/** Writes an entry and sends it, without reading it back. */
export async function publish(device: Device, key: string): Promise<void> {
  await device.db.collection('notes').set(key, key);
  while (await device.replica.drain());
  while (await device.replica.publish());
}

/** What a connection that was interrupted does. */
export async function reconnect(devices: readonly Device[]): Promise<void> {
  for (const device of devices) device.replica.reconnect();
  await converge(devices);
}

/** Writes as long as a device's first records are in the log, which only its snapshot has afterwards. */
export async function cutOff(server: MemoryServer, device: Device): Promise<void> {
  const end = server.records.at(-1)?.position ?? 0;
  for (let round = 0; (server.records[0]?.position ?? 0) <= end; round++) {
    assert.ok(round < 5);
    await device.db.collection('notes').set('round', round);
    await device.replica.compact();
  }
}

/** What a device would have that had never applied the record of a key. */
export async function withhold({ replica }: Device, key: string): Promise<void> {
  const { tables } = replica;
  const notes = tables.byName.get('notes')!;
  const bytes = keyCodecs.any.encode(key).slice();
  await tables.db.transaction(async (tx) => {
    const [rows, data, states] = [tx.collection(notes.rows), tx.collection(notes.data), tx.collection(tables.state)];
    const state = (await states.get('state')) as ReplicaState;
    const { base } = decodeRow((await rows.get(bytes)) as Uint8Array);
    await rows.delete(bytes);
    await data.delete(bytes);
    await states.set('state', {
      ...state,
      serial: state.serial + 1,
      digests: { ...state.digests, notes: replaceDigest(state.digests['notes'], bytes, base, undefined) },
    });
  });
}
