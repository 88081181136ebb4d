// Any interleaving of steps, failures and crashes: all devices end with the same entries, and each
// transaction takes effect once.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import { valueCodecs } from 'mangrove-kv';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import type { KvError } from 'mangrove-kv';
import { decodeRow } from '../src/row.ts';
import { runStrict } from '../src/strict.ts';
import { chance } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';

const KEYS = ['a', 'b', 'c', 'd', 'e', 'f'];
const DAY_MS = 86_400_000;

type Step =
  | { readonly type: 'set'; readonly device: number; readonly key: number }
  | { readonly type: 'delete'; readonly device: number; readonly key: number }
  | { readonly type: 'pair'; readonly device: number; readonly key: number; readonly other: number }
  | { readonly type: 'clear'; readonly device: number; readonly from: number; readonly to: number }
  | { readonly type: 'drop'; readonly device: number }
  | { readonly type: 'pull'; readonly device: number }
  | { readonly type: 'drain'; readonly device: number }
  | { readonly type: 'publish'; readonly device: number }
  | { readonly type: 'crash'; readonly device: number; readonly isPowerCut: boolean }
  | { readonly type: 'cut'; readonly device: number; readonly operations: number }
  | { readonly type: 'time'; readonly ms: number }
  | { readonly type: 'forget' }
  | { readonly type: 'replay'; readonly record: number }
  | { readonly type: 'clone'; readonly device: number }
  | { readonly type: 'compact'; readonly device: number }
  | { readonly type: 'strict'; readonly device: number; readonly key: number }
  | { readonly type: 'reconnect'; readonly device: number }
  | { readonly type: 'lose'; readonly records: number };

const DEVICES = 3;
const device = fc.nat({ max: DEVICES - 1 });
const key = fc.nat({ max: KEYS.length - 1 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ type: fc.constant('set' as const), device, key }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('delete' as const), device, key }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('pair' as const), device, key, other: key }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('clear' as const), device, from: key, to: key }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('drop' as const), device }) },
  { weight: 8, arbitrary: fc.record({ type: fc.constant('pull' as const), device }) },
  { weight: 6, arbitrary: fc.record({ type: fc.constant('drain' as const), device }) },
  { weight: 6, arbitrary: fc.record({ type: fc.constant('publish' as const), device }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('crash' as const), device, isPowerCut: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('cut' as const), device, operations: fc.nat({ max: 12 }) }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('time' as const), ms: fc.nat({ max: 200_000 }) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('forget' as const) }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('replay' as const), record: fc.nat({ max: 50 }) }) },
);

/** What happens less often, and to more than one record at once. */
const disaster: fc.Arbitrary<Step> = fc.oneof(
  { weight: 1, arbitrary: fc.record({ type: fc.constant('clone' as const), device }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('compact' as const), device }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('strict' as const), device, key }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('reconnect' as const), device }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('lose' as const), records: fc.integer({ min: 1, max: 6 }) }) },
);

const EXPECTED = new Set(['KV_LOG_UNAVAILABLE', 'KV_LOG_CONFLICT', 'KV_REPLICATION_GAP']);
const MAX_DEVICES = 5;

/** Devices, a server that fails at random, and clocks that are days apart. */
class World {
  readonly #chance: () => number;
  readonly server: MemoryServer;
  readonly devices: Device[] = [];
  readonly #options: DeviceOptions;
  /** Where strict transactions write. */
  readonly strict: { readonly collection: string; readonly prefix: string };
  isFailing = true;
  serverNow = 1000 * DAY_MS;
  readonly #skews = [0, 3 * DAY_MS, -2 * DAY_MS];
  #writes = 0;
  /** Values that were acknowledged. */
  readonly #acknowledged = new Set<string>();

  constructor(seed: number, options: DeviceOptions = {}, strict = { collection: 'accounts', prefix: '' }) {
    this.strict = strict;
    this.#chance = chance(seed);
    const happens = (probability: number) => (): boolean => this.isFailing && this.#chance() < probability;
    this.server = new MemoryServer({
      isUnreachable: happens(0.15),
      isReplyLost: happens(0.15),
      isDuplicated: happens(0.15),
      // Servers' clocks differ, too, but do not stand still.
      serverTime: () => ++this.serverNow + (this.#chance() < 0.2 ? -30_000 : 0),
    });
    this.#options = options;
  }

  async start(count: number): Promise<void> {
    for (let index = 0; index < count; index++) {
      const device = await this.#open(index);
      // The first scan: from here on the feed has every write.
      await device.replica.drain();
      this.devices.push(device);
    }
  }

  #open(index: number, disk?: Device['disk']): Promise<Device> {
    return Device.start(
      this.server,
      { ...this.#options, clock: () => this.serverNow + (this.#skews[index % 3] as number) },
      disk,
    );
  }

  async restart(index: number, isPowerCut: boolean): Promise<void> {
    const old = this.devices[index] as Device;
    old.replica.stop();
    // The engine's thread is gone: what it had not written is lost.
    const disk = isPowerCut ? old.disk.afterPowerCut() : old.disk.copy();
    old.disk.left = 0;
    await old.stop();
    this.devices[index] = await this.#open(index, disk);
  }

  /** Each value is written once: where it is from is known. */
  value(index: number): string {
    return `${index}:${++this.#writes}`;
  }

  async run(step: Step): Promise<void> {
    const { type } = step;
    if (type === 'time') {
      this.serverNow += step.ms;
      return;
    }
    if (type === 'forget') {
      this.server.forgetKeys();
      return;
    }
    if (type === 'replay') {
      // A delivery that was under way for long.
      const old = this.server.records[step.record % (this.server.records.length || 1)];
      if (old !== undefined) this.server.append(old.record, { idempotencyKey: `replay ${this.#writes++}` });
      return;
    }
    if (type === 'lose') {
      const kept = this.server.records.at(-1 - step.records)?.position;
      if (kept !== undefined) this.server.loseHistory(kept);
      // Servers that restart end all connections.
      for (const device of this.devices) device.replica.reconnect();
      return;
    }
    const device = this.devices[step.device] as Device;
    const notes = device.db.collection<string, string>('notes');
    try {
      if (type === 'set') {
        const value = this.value(step.device);
        await notes.set(KEYS[step.key] as string, value);
        this.#acknowledged.add(value);
      } else if (type === 'delete') await notes.delete(KEYS[step.key] as string);
      else if (type === 'pair') {
        const value = this.value(step.device);
        await notes.setMany([
          [KEYS[step.key] as string, value],
          [KEYS[step.other] as string, value],
        ]);
        this.#acknowledged.add(value);
      } else if (type === 'clear')
        await notes.clear({
          gte: KEYS[Math.min(step.from, step.to)] as string,
          lte: KEYS[Math.max(step.from, step.to)] as string,
        });
      else if (type === 'drop') await device.db.dropCollection('notes');
      else if (type === 'pull') await device.replica.pull();
      else if (type === 'drain') await device.replica.drain();
      else if (type === 'publish') await device.replica.publish();
      else if (type === 'reconnect') device.replica.reconnect();
      else if (type === 'compact') await device.replica.compact();
      else if (type === 'strict')
        await runStrict(
          device.replica,
          (tx) =>
            tx
              .collection<string, number>(this.strict.collection)
              .update(this.strict.prefix + (KEYS[step.key] as string), (old = 0) => old + 1),
          { maxRetries: 3 },
        );
      else if (type === 'clone') {
        if (this.devices.length < MAX_DEVICES && device.disk.left === Infinity)
          this.devices.push(await this.#open(this.devices.length, device.disk.copy()));
      } else if (type === 'crash') await this.restart(step.device, step.isPowerCut);
      else device.disk.left = step.operations;
    } catch (error) {
      if (EXPECTED.has((error as KvError).code) || (type === 'strict' && (error as KvError).code === 'KV_CONFLICT'))
        return;
      // The disk was cut: the process is gone.
      if (device.disk.left > 0 || device.disk.left === Infinity) throw error;
      await this.restart(step.device, true);
    }
  }

  async finish(): Promise<void> {
    this.isFailing = false;
    for (const device of this.devices) device.replica.reconnect();
    for (const [index, device] of this.devices.entries()) {
      if (device.disk.left !== Infinity) await this.restart(index, true);
    }
    await converge(this.devices);
    // A device that comes later sees the same.
    this.devices.push(await this.#open(this.devices.length));
    await converge(this.devices);
  }

  /** `isExact`: the log has each record once, and nothing was lost. */
  async check(isExact: boolean): Promise<void> {
    const digests = await Promise.all(this.devices.map((device) => device.digest()));
    for (const digest of digests) assert.equal(digest, digests.at(-1));
    for (const device of this.devices) {
      assert.equal(await device.replica.pending(), 0);
      if (isExact) assert.deepEqual(device.alarms, []);
      for (const table of device.replica.tables.byName.values()) {
        for await (const [, row] of table.rows.entries())
          assert.equal(decodeRow(row).pending, undefined, 'no local write is left');
      }
    }
    if (isExact) await this.#checkRecords();
  }

  /**
   * Each record names the one before it, no sequence number stands for two different records, and
   * each acknowledged write is in one record.
   */
  async #checkRecords(): Promise<void> {
    const { COMPRESSED, decodeBody, decodeRecord } = await import('../src/record.ts');
    const places = new Map<string, Set<string>>();
    for (const { record } of this.server.records) {
      const { header, body } = decodeRecord(record);
      const plain = header.flags & COMPRESSED ? inflateRawSync(body) : body;
      for (const { ops } of decodeBody(new Uint8Array(plain)).transactions) {
        for (const op of ops) {
          if (op.type !== 'set') continue;
          const value = String(valueCodecs.structured().decode(op.value));
          const found = places.get(value) ?? new Set();
          places.set(value, found.add(`${header.device}:${header.seq}`));
        }
      }
    }
    for (const [value, found] of places) assert.equal(found.size, 1, `${value} is in records ${[...found].join()}`);
    for (const value of this.#acknowledged) assert.ok(places.has(value), `${value} is in no record`);
    const last = new Map<bigint, Map<number, string>>();
    const newest = new Map<bigint, number>();
    for (const { record } of this.server.records) {
      const { header, body } = decodeRecord(record);
      const seqs = last.get(header.device) ?? new Map<number, string>();
      last.set(header.device, seqs);
      const text = Buffer.from(body).toString('hex');
      const known = seqs.get(header.seq);
      if (known === undefined) {
        assert.equal(header.seq - header.back, newest.get(header.device) ?? 0);
        newest.set(header.device, header.seq);
      }
      // The same record may be in the log more than once.
      else assert.equal(text, known);
      seqs.set(header.seq, text);
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.devices.map((device) => device.stop()));
  }
}

const RUNS = Number(process.env['REPLICATION_RUNS'] ?? 25);

/** Runs random steps in worlds that `make` makes, and checks that all devices converge. */
async function explore(steps: fc.Arbitrary<Step>, make: (seed: number) => World, isExact: boolean): Promise<void> {
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.array(steps, { minLength: 10, maxLength: 60 }), async (seed, list) => {
      const world = make(seed);
      await world.start(DEVICES);
      try {
        for (const each of list) await world.run(each);
        await world.finish();
        await world.check(isExact);
      } finally {
        await world.stop();
      }
    }),
    {
      numRuns: RUNS,
      includeErrorInReport: true,
      endOnFailure: process.env['REPLICATION_SHRINK'] === undefined,
      ...(process.env['REPLICATION_SEED'] && { seed: Number(process.env['REPLICATION_SEED']) }),
      ...(process.env['REPLICATION_PATH'] && { path: process.env['REPLICATION_PATH'] }),
    },
  );
}

test('devices converge, whatever fails in whatever order', () => explore(step, (seed) => new World(seed), true));

const LAYOUTS = {
  'collections of both modes': {
    collections: { notes: {}, accounts: { mode: 'strict' } },
    strict: { collection: 'accounts', prefix: '' },
  },
  // Between other keys, so that they are in cleared ranges.
  'both modes in one collection': {
    collections: { notes: { prefixModes: [{ prefix: 'c/', mode: 'strict' }] } },
    strict: { collection: 'notes', prefix: 'c/' },
  },
} as const;

const stepOrDisaster = fc.oneof({ weight: 5, arbitrary: step }, { weight: 1, arbitrary: disaster });

for (const [name, { collections, strict }] of Object.entries(LAYOUTS)) {
  test(`devices converge after copies of files, compaction and lost history, too, with ${name}`, () =>
    explore(
      stepOrDisaster,
      (seed) => new World(seed, { snapshots: new MemorySnapshotStore(), collections }, strict),
      false,
    ));
}
