// Devices and a log that take the steps of a history, beside an oracle that says what all devices have in the end.
import assert from 'node:assert/strict';
import { deflateRawSync } from 'node:zlib';
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import type { Database, KvError } from 'mangrove-kv';
import { crc32c } from '../src/bytes.ts';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { decodeRow } from '../src/row.ts';
import { runStrict } from '../src/strict.ts';
import { chance } from '../../kv/test/support/kit.ts';
import { Device, Disk } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { Oracle, isContent, isInRange } from './oracle.ts';
import type { Content, Logged } from './oracle.ts';
import { openPlain, openSlow } from './slow-feed.ts';
import type { SlowFeed } from './slow-feed.ts';

const KEYS = ['a', 'b', 'c', 'd', 'e', 'f'];
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const START = 20_000 * DAY;
export const MAX_DEVICES = 5;

/** What `amount` means depends on the step. */
export interface Step {
  readonly type: string;
  readonly device: number;
  readonly key: number;
  readonly other: number;
  readonly amount: number;
}

export type Collections = NonNullable<DeviceOptions['collections']>;

/** The program of devices whose profile names none: the collections that it knows. */
export const NOTES: Collections = { notes: {} };

/** The steps that write, and how often each is taken, in proportion. */
export const WRITES = { set: 8, delete: 3, pair: 3, clear: 2, drop: 1 };

export interface Profile {
  readonly name: string;
  /** How often each step is taken, in proportion. */
  readonly steps: { readonly [type: string]: number };
  /** That of each device at the beginning. At the end all have the last one. */
  readonly programs?: readonly Collections[];
  readonly strict?: { readonly collection: string; readonly prefix: string };
  readonly maxSteps?: number;
  readonly maxCompactions?: number;
  readonly isSlow?: boolean;
  /** Devices' engines read a clock of their own, and entries expire. */
  readonly hasClocks?: boolean;
  /** Databases keep no feed, or one that loses commits: replication compares entries with the base. */
  readonly feed?: 'none' | 'lossy';
  /** What has to have happened, in so many of two hundred histories. */
  readonly subjects: { readonly [subject: string]: number };
}

const EXPECTED = new Set(['KV_LOG_UNAVAILABLE', 'KV_LOG_CONFLICT', 'KV_REPLICATION_GAP', 'KV_CORRUPT']);

/** A write that the database has acknowledged. */
interface Write {
  readonly device: number;
  readonly value: string;
  readonly collection: string;
  readonly keys: readonly string[];
  readonly isExpiring: boolean;
  /** Replication may have compared entries with the base, and has not seen commits. */
  isCompared: boolean;
}

/** A value that the application saw at a key when it wrote or deleted that. */
interface Replaced {
  readonly device: number;
  readonly collection: string;
  readonly key: string;
  readonly name: string;
  readonly isExpiring: boolean;
  readonly isRemoved: boolean;
  /** The database has acknowledged it. */
  isDone: boolean;
}

const realNow = Date.now;
const realRandom = crypto.getRandomValues.bind(crypto);
const storedKey = (key: string): string => Buffer.from(keyCodecs.any.encode(key)).toString('hex');
const storedValue = (value: unknown): string => Buffer.from(valueCodecs.structured().encode(value)).toString('base64');

const POISON = 7n;

/** A record of a device that is none. */
function poisonOf(kind: number, number: number): Uint8Array {
  const bodies: readonly (readonly [flags: number, body: Uint8Array])[] = [
    [0, new Uint8Array([1, 2, 3])],
    [0, new Uint8Array(0)],
    [4, new Uint8Array([1, 2, 3])],
    [4, new Uint8Array([0, 0, 0, 9, 0, 0, 0, 0, 1])],
    [8, new Uint8Array([255, 255, 255])],
    [8, deflateRawSync(new Uint8Array(2 << 20))],
    [1, new Uint8Array([1, 1, 99, 0, 0, 0, 0, 0, 0, 0, 1, 0])],
  ];
  const [flags, body] = bodies[kind % bodies.length] as readonly [number, Uint8Array];
  const bytes = Buffer.concat([
    Buffer.from([1, flags, 0, 0, 0, 0, 0, 0, 0, 7, number % 100, 1]),
    body,
    Buffer.alloc(4),
  ]);
  bytes.writeUInt32BE(crc32c(bytes.subarray(0, -4)), bytes.length - 4);
  if (kind >= bodies.length) bytes[5 + (kind % 6)]! ^= 16;
  return bytes;
}

class World {
  readonly server: MemoryServer;
  readonly devices: Device[] = [];
  readonly counts = new Map<string, number>();
  readonly #profile: Profile;
  readonly #chance: () => number;
  readonly #snapshots = new MemorySnapshotStore();
  /** Which program each device has, and how far its clock is ahead. */
  readonly #programs: number[] = [];
  readonly #skews = [0, 3 * DAY, -2 * DAY, HOUR, -HOUR];
  readonly #jumps = [0, 0, 0, 0, 0];
  readonly #writes: Write[] = [];
  readonly #replaced: Replaced[] = [];
  /** Values that went past replication. */
  readonly #past = new Set<string>();
  readonly #feeds: (SlowFeed | undefined)[] = [];
  /** Devices that may not have compared entries yet since they had to, and those that ever had to. */
  readonly #comparing = new Set<number>();
  readonly #compared = new Set<number>();
  readonly #strict = new Map<string, string>();
  /** Every record that the log accepted and has not lost, by position. Compaction removes none of them here. */
  readonly #kept = new Map<number, Logged>();
  /** The log as it was before each loss. */
  readonly #lost: Logged[][] = [];
  /** How far the server's clock goes back at times. */
  readonly #jitter: number;
  #serial = 0;
  isFailing = true;
  now = START;

  constructor(seed: number, profile: Profile) {
    this.#profile = profile;
    this.#chance = chance(seed);
    const happens = (probability: number) => (): boolean => this.isFailing && this.#chance() < probability;
    this.#jitter = profile.steps['lose'] === undefined && profile.feed === undefined ? 30_000 : 0;
    this.server = new MemoryServer({
      isUnreachable: happens(0.15),
      isReplyLost: happens(0.15),
      isDuplicated: happens(0.15),
      serverTime: () => ++this.now - (this.#chance() < 0.2 ? this.#jitter : 0),
    });
    const { server } = this;
    const purge = server.purge.bind(server);
    server.purge = (upTo) => {
      this.#keep();
      purge(upTo);
    };
  }

  count(subject: string, by = 1): void {
    this.counts.set(subject, (this.counts.get(subject) ?? 0) + by);
  }

  #clock(index: number): number {
    return this.now + ((this.#profile.hasClocks ? this.#jumps : this.#skews)[index] as number);
  }

  /** Runs what a device does by its own clock. */
  async #as<T>(index: number, work: () => Promise<T>): Promise<T> {
    if (this.#profile.hasClocks) Date.now = () => this.#clock(index);
    return work();
  }

  async #open(index: number, disk = new Disk()): Promise<Device> {
    const { programs = [NOTES], feed } = this.#profile;
    const collections = programs[(this.#programs[index] ??= index % programs.length)] as Collections;
    const options = { collections, snapshots: this.#snapshots, clock: () => this.#clock(index) };
    if (feed === undefined) return Device.start(this.server, options, disk);
    const slow = await openSlow(disk, feed === 'lossy');
    const { left = Infinity, delay = 0 } = this.#feeds[index] ?? {};
    slow.left = left;
    slow.delay = delay;
    slow.onLoss = () => {
      this.count('feeds cut off');
      this.#compare(index);
    };
    this.#feeds[index] = slow;
    return Device.adopt(this.server, options, slow.db, disk);
  }

  async start(): Promise<void> {
    for (let index = 0; index < 3; index++) {
      const device = await this.#open(index);
      await device.replica.drain();
      this.devices.push(device);
    }
  }

  async #restart(index: number, how: 'crash' | 'power cut', meanwhile: readonly Step[] = []): Promise<void> {
    const old = this.devices[index] as Device;
    old.replica.stop();
    const disk = how === 'power cut' ? old.disk.afterPowerCut() : old.disk.copy();
    old.disk.left = 0;
    await old.stop();
    this.#note(old);
    if (this.#profile.feed === 'none') {
      this.count('starts');
      this.#compare(index);
    }
    if (meanwhile.length > 0) {
      const db = await openPlain(disk, this.#profile.feed !== 'none');
      for (const step of meanwhile) await this.#work(step, index, db);
      await db.close();
    }
    this.devices[index] = await this.#open(index, disk);
  }

  /** What has not been sent is found by comparing entries with the base: what is overwritten by then is not. */
  #compare(index: number): void {
    this.#comparing.add(index);
    this.#compared.add(index);
    // A copy compares what the original had written, which sends that, too.
    if (this.#profile.steps['clone'] !== undefined) for (const write of this.#writes) write.isCompared = true;
    const sent = new Set(
      [...this.#lost, this.log]
        .flatMap((records) => new Oracle(records).accepted.flatMap(setsOf))
        .map(([, name]) => name),
    );
    for (const write of this.#writes)
      if (write.device === index && !sent.has(nameOfStored(write.value))) write.isCompared = true;
  }

  #note({ repairs, conflicts }: Device): void {
    this.count(
      'repairs',
      repairs.reduce((sum, each) => sum + each, 0),
    );
    this.count('conflicts', conflicts.length);
  }

  /** Copies what the log has, before some of it is removed. */
  #keep(): void {
    for (const record of this.server.records) this.#kept.set(record.position, record);
  }

  get log(): Logged[] {
    this.#keep();
    return [...this.#kept.values()].sort((a, b) => a.position - b.position);
  }

  #lose(records: number): void {
    this.#keep();
    const kept = this.server.records.at(-1 - records)?.position;
    if (kept === undefined) return;
    this.#lost.push(this.log);
    this.count('losses');
    this.server.loseHistory(kept);
    for (const position of [...this.#kept.keys()]) if (position > kept) this.#kept.delete(position);
    for (const device of this.devices) device.replica.reconnect();
  }

  #value(index: number): string {
    return `${index}:${++this.#serial}`;
  }

  async run(step: Step): Promise<void> {
    const index = step.device % this.devices.length;
    const device = this.devices[index] as Device;
    // These need so many answers that they would hardly ever succeed.
    this.isFailing = !(step.type === 'compact' || step.type === 'strict') || step.amount % 4 === 0;
    try {
      await this.#as(index, () => this.#step(step, index, device));
    } catch (error) {
      const { code } = error as KvError;
      if (EXPECTED.has(code) || (step.type === 'strict' && code === 'KV_CONFLICT')) return;
      if (device.disk.left > 0) throw error;
      this.count('disks cut');
      await this.#restart(index, 'power cut');
    } finally {
      this.isFailing = true;
    }
    if (step.amount % 4 === 0 && this.#lost.length === 0) await this.#checkPrefix(this.devices[index] as Device);
  }

  async #step(step: Step, index: number, device: Device): Promise<void> {
    const { type, amount } = step;
    const { db, replica } = device;
    const key = KEYS[step.key % KEYS.length] as string;
    switch (type) {
      case 'time':
        this.now += amount * 2000;
        return;
      case 'hours':
        this.now += (amount * HOUR) / 40;
        return;
      case 'forget':
        this.server.forgetKeys();
        return;
      case 'lose':
        this.#lose(1 + (amount % 6));
        return;
      case 'poison':
        this.server.append(poisonOf(amount, ++this.#serial), { idempotencyKey: `poison ${this.#serial}` });
        return;
      case 'replay': {
        const old = this.server.records[amount % (this.server.records.length || 1)];
        if (old !== undefined) this.server.append(old.record, { idempotencyKey: `replay ${++this.#serial}` });
        return;
      }
      case 'strict': {
        const { collection, prefix } = this.#profile.strict as { collection: string; prefix: string };
        if (!replica.tables.byName.has(collection)) return;
        const token = `${this.#value(index)},`;
        await runStrict(
          replica,
          (tx) => tx.collection<string, string>(collection).update(prefix + key, (old = '') => old + token),
          { maxRetries: 3 },
        );
        this.#strict.set(token, storedKey(prefix + key));
        return;
      }
      case 'pull':
        await replica.pull();
        return;
      case 'drain':
        await replica.drain();
        return;
      case 'publish':
        await replica.publish();
        return;
      case 'exchange': {
        while (await replica.pull());
        await replica.drain();
        while (await replica.publish());
        return;
      }
      case 'reconnect':
        replica.reconnect();
        return;
      case 'jump': {
        this.#jumps[index] = [0, 0, 2 * HOUR, -2 * HOUR, 3 * DAY, -DAY, 30_000][amount % 7] as number;
        this.count('jumps');
        return;
      }
      case 'purge':
        this.count('purges', Number((await db.purgeExpired()) as unknown) > 0 ? 1 : 0);
        return;
      case 'compact': {
        if ((this.counts.get('compactions') ?? 0) >= (this.#profile.maxCompactions ?? Infinity)) return;
        const { length } = this.server.records;
        const done = await replica.compact();
        if (done !== undefined) this.count('compactions');
        if (this.server.records.length < length) this.count('logs cut off');
        return;
      }
      case 'clone': {
        if (this.devices.length >= MAX_DEVICES || device.disk.left !== Infinity) return;
        const next = this.devices.length;
        this.#programs[next] = this.#programs[index] as number;
        this.devices.push(await this.#open(next, device.disk.copy()));
        if (this.#profile.feed === 'none') this.#compare(next);
        this.count('clones');
        return;
      }
      case 'program': {
        if (device.disk.left !== Infinity) return;
        this.#programs[index] = amount % (this.#profile.programs as readonly Collections[]).length;
        await this.#restart(index, 'crash');
        this.count('programs changed');
        return;
      }
      case 'crash':
        await this.#restart(index, 'crash');
        this.count('crashes');
        return;
      case 'power cut':
        await this.#restart(index, 'power cut');
        this.count('power cuts');
        return;
      // A failed disk stays failed until the device restarts.
      case 'cut':
        device.disk.left = Math.min(device.disk.left, amount % 13);
        return;
      case 'offline':
        if (device.disk.left !== Infinity) return;
        return this.#restart(
          index,
          'crash',
          Array.from({ length: 1 + (amount % 4) }, () => this.#anyWork()),
        );
      case 'meanwhile': {
        const feed = this.#feeds[index] as SlowFeed;
        const work = this.#anyWork();
        let left = amount % 8;
        feed.onTransaction = async () => {
          if (left-- !== 0) return;
          await this.#work(work, index, db);
          this.count('writes between commits of replication');
        };
        return;
      }
      case 'lose commits':
        (this.#feeds[index] as SlowFeed).left = amount % 4;
        return;
      case 'slow feed':
        (this.#feeds[index] as SlowFeed).delay = amount % 3;
        return;
      default:
        return this.#work(step, index, db);
    }
  }

  /** The application does nothing between the commits of replication any more. */
  #quiet(index: number): void {
    const feed = this.#feeds[index];
    if (feed !== undefined) feed.onTransaction = async () => undefined;
  }

  /** Something that the application does without replication. */
  #anyWork(): Step {
    const types = Object.entries(this.#profile.steps)
      .filter(([type]) => type in WRITES || type === 'past replication' || type === 'set for a while')
      .flatMap(([type, weight]) => Array.from({ length: weight }, () => type));
    const any = (count: number): number => Math.floor(this.#chance() * count);
    return { type: types[any(types.length)] as string, device: 0, key: any(6), other: any(6), amount: any(100) };
  }

  async #work({ type, key: keyIndex, other, amount }: Step, index: number, db: Database): Promise<void> {
    const key = KEYS[keyIndex % KEYS.length] as string;
    const set = (keys: readonly string[], value: unknown, expireAt?: number): Promise<void> =>
      this.#set(index, db, 'notes', keys, value, expireAt);
    const noise = (length: number): Uint8Array => Uint8Array.from({ length }, () => Math.floor(this.#chance() * 256));
    switch (type) {
      case 'set':
        return set([key], this.#value(index));
      case 'set for a while':
        return set([key], this.#value(index), Math.max(1, this.now + ((amount - 5) * HOUR) / 20));
      case 'pair':
        return set([...new Set([key, KEYS[other % KEYS.length] as string])], this.#value(index));
      case 'task': {
        // Of a collection that no program on the file has named yet the later ones are sent.
        const isNamed = Object.hasOwn((await (this.devices[index] as Device).replica.state()).collections, 'tasks');
        if (isNamed) await this.#set(index, db, 'tasks', [key], this.#value(index));
        else await db.collection('tasks').set(key, this.#value(index));
        this.count('tasks');
        return;
      }
      case 'large': {
        const size = amount < 60 ? Math.ceil(2 ** ((amount / 60) * 18)) : (256 + (144 * (amount - 60)) / 39) * 1024;
        await set([key], {
          id: this.#value(index),
          bytes: other % 2 === 0 ? Uint8Array.from({ length: size }, (_, at) => at % 7) : noise(size),
        });
        if (size > 256 * 1024) this.count('large values');
        return;
      }
      case 'many':
        return set(
          Array.from({ length: 240 }, (_, at) => `m${at}`),
          { id: this.#value(index), bytes: noise(4096) },
        );
      case 'delete':
        return this.#remove(index, db, { gte: key, lte: key }, (notes) => notes.delete(key));
      case 'clear': {
        const [from, to] = [keyIndex, other].map((at) => KEYS[at % KEYS.length]).sort() as [string, string];
        return this.#remove(index, db, { gte: from, lte: to }, (notes) => notes.clear({ gte: from, lte: to }));
      }
      case 'drop':
        return this.#remove(index, db, {}, () => db.dropCollection('notes'));
      case 'past replication': {
        const { collection, prefix } = this.#profile.strict as { collection: string; prefix: string };
        const value = `past ${this.#value(index)}`;
        this.#past.add(nameOfStored(storedValue(value)));
        if (amount % 3 === 0) await db.collection<string, string>(collection).delete(prefix + key);
        else await db.collection<string, string>(collection).set(prefix + key, value);
        this.count('writes past replication');
        return;
      }
      default:
        throw new Error(`no step ${type}`);
    }
  }

  async #set(
    index: number,
    db: Database,
    collection: string,
    keys: readonly string[],
    value: unknown,
    expireAt?: number,
  ): Promise<void> {
    const replaced: Replaced[] = [];
    for (const key of keys)
      replaced.push(...(await this.#replace(index, db, collection, { gte: key, lte: key }, false)));
    const entries = db.collection<string, unknown>(collection);
    if (expireAt !== undefined) await entries.set(keys[0] as string, value, { expireAt });
    else if (keys.length === 1) await entries.set(keys[0] as string, value);
    else await entries.setMany(keys.map((key) => [key, value]));
    for (const each of replaced) each.isDone = true;
    this.#writes.push({
      device: index,
      value: storedValue(value),
      collection,
      keys: keys.map(storedKey),
      isExpiring: expireAt !== undefined,
      isCompared: this.#comparing.has(index),
    });
  }

  async #remove(
    index: number,
    db: Database,
    range: { readonly gte?: string; readonly lte?: string },
    work: (notes: ReturnType<typeof db.collection<string, unknown>>) => Promise<unknown>,
  ): Promise<void> {
    const replaced = await this.#replace(index, db, 'notes', range, true);
    await work(db.collection<string, unknown>('notes'));
    for (const each of replaced) each.isDone = true;
  }

  /** Notes what is there before it is replaced: also if that fails, it may have been. */
  async #replace(
    index: number,
    db: Database,
    collection: string,
    range: { readonly gte?: string; readonly lte?: string },
    isRemoved: boolean,
  ): Promise<Replaced[]> {
    const entries = db.collection<string, unknown>(collection);
    const { strict } = this.#profile;
    const found: Replaced[] = [];
    for (const key of await entries.keys(range).toArray()) {
      if (collection === strict?.collection && key.startsWith(strict.prefix)) continue;
      const entry = await entries.getEntry(key);
      if (entry !== undefined)
        found.push({
          device: index,
          collection,
          key: storedKey(key),
          name: nameOfStored(storedValue(entry.value)),
          isExpiring: entry.expiresAt !== undefined,
          isRemoved,
          isDone: false,
        });
    }
    this.#replaced.push(...found);
    return found;
  }

  /** What a device has of the log at its position, where nothing local is over it. */
  async #checkPrefix(device: Device): Promise<void> {
    if (device.disk.left !== Infinity) return;
    const { replica } = device;
    const index = this.devices.indexOf(device);
    for (let tries = 0; tries < 3; tries++) {
      while (await replica.drain());
      this.#quiet(index);
    }
    this.#comparing.delete(index);
    const { cursor, rejoin, isLoading, digests } = await replica.state();
    // A snapshot of which a part is there, after a power cut, is no prefix of the log.
    if (rejoin !== undefined || isLoading) return;
    const oracle = new Oracle(this.log.filter(({ position }) => position <= cursor.position));
    for (const name of oracle.collections.keys())
      assert.equal(
        digests[name]?.[0] ?? 0,
        oracle.entries(name).size,
        `number of values of ${name} at position ${cursor.position}`,
      );
    await this.#checkStamps(device, oracle);
    if ((await replica.pending()) === 0 && !this.#profile.hasClocks) await this.#checkEntries(device, oracle);
    this.count('prefixes');
  }

  /** Who has written each value, when and where, is what the oracle says: also of deleted ones, and of collections that the program does not name. */
  async #checkStamps({ replica }: Device, oracle: Oracle): Promise<void> {
    const { declared, history } = await replica.state();
    for (const [name, cells] of oracle.collections) {
      const found = new Map<string, string>();
      for await (const [key, bytes] of replica.tables.table(name, declared[name] as string).rows.entries()) {
        const row = decodeRow(bytes);
        if (row.history !== history || row.base === undefined) continue;
        const { h, device, n, position, isDead } = row.base.stamp;
        found.set(Buffer.from(key).toString('hex'), stampText(h, device, n, position, isDead));
      }
      const expected = new Map(
        [...cells].map(([key, { clock, device, n, position, content }]) => [
          key,
          stampText(clock, device, n, position, content === undefined),
        ]),
      );
      for (const key of new Set([...found.keys(), ...expected.keys()]))
        assert.equal(found.get(key), expected.get(key), `stamp of ${text(key)} of ${name}`);
    }
  }

  /** Entries are those of the oracle, byte for byte, with their expiry. */
  async #checkEntries(device: Device, oracle: Oracle): Promise<void> {
    const { byName } = device.replica.tables;
    for (const [name, { data }] of byName) {
      const expected = oracle.entries(name);
      // What has expired by the clock of the engine, and not by the log's, cannot be seen.
      for (const [key, { expiry }] of expected)
        if (this.#profile.hasClocks && expiry <= Date.now()) expected.delete(key);
      const found = new Map(
        (await data.entries().toArray()).map(([key, value]) => [Buffer.from(key).toString('hex'), value]),
      );
      assert.deepEqual([...found.keys()].map(text), [...expected.keys()].sort().map(text), `keys of ${name}`);
      for (const [key, value] of found) {
        const content = expected.get(key) as Content;
        assert.ok(
          isContent(content, value),
          `${text(key)} of ${name} is ${show(value)}, and by the log ${show(content.bytes)}`,
        );
        if (content.expiry === Infinity && !this.#profile.hasClocks) continue;
        const entry = await data.getEntry(Buffer.from(key, 'hex'));
        assert.equal(entry?.expiresAt ?? Infinity, content.expiry, `expiry of ${text(key)} of ${name}`);
      }
    }
  }

  async finish(): Promise<void> {
    this.isFailing = false;
    this.#jumps.fill(0);
    for (const index of this.devices.keys()) this.#quiet(index);
    for (const feed of this.#feeds) if (feed !== undefined) feed.delay = 0;
    const { programs = [NOTES] } = this.#profile;
    for (const [index, device] of this.devices.entries()) {
      device.replica.reconnect();
      const isLast = this.#programs[index] === programs.length - 1;
      this.#programs[index] = programs.length - 1;
      await this.#as(index, async () => {
        if (device.disk.left !== Infinity) await this.#restart(index, 'power cut');
        else if (!isLast) await this.#restart(index, 'crash');
      });
    }
    if (this.#profile.hasClocks) for (const index of this.devices.keys()) await this.#compareAgain(index);
    await this.#settle();
    // A device that comes later sees the same.
    this.#programs[this.devices.length] = programs.length - 1;
    this.devices.push(await this.#as(0, () => this.#open(this.devices.length)));
    await this.#settle();
  }

  /** What a clock that was ahead hid from a comparison the next one finds. */
  async #compareAgain(index: number): Promise<void> {
    const feed = this.#feeds[index];
    if (this.#profile.feed === 'none') await this.#as(index, () => this.#restart(index, 'crash'));
    if (this.#profile.feed !== 'lossy' || feed === undefined) return;
    feed.left = 0;
    await this.#as(index, () => this.#set(index, feed.db, 'notes', ['a'], this.#value(index)));
  }

  async #settle(): Promise<void> {
    for (let round = 0; round < 3; round++)
      for (const [index, device] of this.devices.entries()) await this.#as(index, () => device.exchange());
  }

  async check(): Promise<void> {
    const { log } = this;
    const oracle = new Oracle(log, { maxKeyBytes: 10_000 });
    await this.#as(0, async () => {
      for (const device of this.devices) {
        assert.equal(await device.replica.pending(), 0, 'the outbox is empty');
        assert.equal((await device.replica.state()).cursor.position, oracle.position);
        await this.#checkEntries(device, oracle);
        await this.#checkStamps(device, oracle);
        const { digests, declared } = await device.replica.state();
        assert.deepEqual(Object.keys(declared).sort(), [...oracle.collections.keys()].sort());
        for (const name of oracle.collections.keys())
          assert.equal(digests[name]?.[0] ?? 0, oracle.entries(name).size, `number of values of ${name}`);
        assert.deepEqual(device.divergences, [], 'nobody diverges');
        assert.deepEqual(
          device.alarms.filter(({ code }) => code === 'KV_REPLICATION_DIVERGED'),
          [],
        );
        this.#note(device);
      }
      const all = await Promise.all(this.devices.map(async (device) => (await device.replica.state()).digests));
      for (const digests of all) assert.deepEqual(digests, all[0], 'digests are equal');
    });
    if (this.#lost.length === 0) this.#checkExact(oracle);
    else this.#checkLost(oracle);
    this.#checkReplaced(oracle);
    this.#checkStrict(oracle);
    this.#count(oracle);
  }

  /** Each acknowledged write is in exactly one transaction, with all that was written with it. */
  #checkExact(oracle: Oracle): void {
    const found = new Map<string, string[][]>();
    for (const { transactions, isRepair } of oracle.accepted) {
      assert.ok(!isRepair, 'nothing is repaired where nothing was lost');
      for (const { operations } of transactions) {
        const keys = new Map<string, string[]>();
        for (const { kind, key, content } of operations)
          if (kind === 'set')
            keys.set(nameOf(content as Content), [...(keys.get(nameOf(content as Content)) ?? []), key]);
        for (const [value, each] of keys) found.set(value, [...(found.get(value) ?? []), each.sort()]);
      }
    }
    // A copy of a file sends again what was pending in it.
    const isOnce = this.#profile.steps['clone'] === undefined;
    for (const write of this.#writes) {
      const { value, keys, isCompared } = write;
      const there = found.get(nameOfStored(value)) ?? [];
      const what = show(Buffer.from(value, 'base64'));
      if (!isCompared) {
        assert.ok(isOnce ? there.length === 1 : there.length > 0, `${what} is in ${there.length} transactions`);
        for (const each of there) assert.deepEqual(each, [...keys].sort());
        continue;
      }
      this.count('writes compared');
      for (const key of keys) {
        const { length } = there.filter((each) => each.includes(key));
        assert.ok(
          (!isOnce || length <= 1) && (length > 0 || this.#isOver(write, key)),
          `${what} of ${text(key)} is in ${length} transactions`,
        );
      }
    }
    assert.deepEqual(
      oracle.gaps.filter(({ device }) => device !== POISON),
      [],
    );
  }

  /** Whether a comparison need not find a write, as the entry was something else by then. */
  #isOver({ device, value, collection, isExpiring, isCompared }: Write, key: string): boolean {
    return (
      isCompared &&
      (isExpiring ||
        this.#replaced.some(
          (each) =>
            each.device === device &&
            each.collection === collection &&
            each.key === key &&
            each.name === nameOfStored(value),
        ))
    );
  }

  /** A write that knew a value supersedes it permanently, and replication sends only what the application wrote. */
  #checkReplaced(oracle: Oracle): void {
    for (const { transactions } of oracle.accepted) {
      for (const { operations } of transactions)
        for (const { content } of operations)
          assert.ok(content === undefined || !this.#past.has(nameOf(content)), 'a write past replication is sent');
    }
    // What is put back, or sent again by a copy, has its old time.
    if (this.#lost.length > 0 || this.#profile.steps['clone'] !== undefined) return;
    // Under the id that a device takes when the log was cut off nothing but its clock makes its writes the later ones.
    if (this.#jitter > 0 && this.#profile.steps['compact'] !== undefined) return;
    for (const { device, collection, key, name, isExpiring, isDone } of this.#replaced) {
      // A comparison cannot tell a delete of what expires.
      if (!isDone || (isExpiring && this.#compared.has(device))) continue;
      const content = oracle.collections.get(collection)?.get(key)?.content;
      assert.ok(
        content === undefined || nameOf(content) !== name,
        `${show(content?.bytes)} of ${text(key)} is back, which device ${device} had replaced`,
      );
    }
    if (this.#profile.hasClocks) return;
    const removed = new Map<string, number>();
    for (const { collection, key, isRemoved } of this.#replaced)
      if (isRemoved) removed.set(`${collection} ${key}`, (removed.get(`${collection} ${key}`) ?? 0) + 1);
    for (const { transactions } of oracle.accepted) {
      for (const { operations } of transactions) {
        for (const { kind, collection, key } of operations) {
          if (kind !== 'delete') continue;
          const left = removed.get(`${collection} ${key}`) ?? 0;
          assert.ok(left > 0, `nobody has deleted ${text(key)} of ${collection} so often`);
          removed.set(`${collection} ${key}`, left - 1);
        }
      }
    }
  }

  /** What is neither in the log nor had been replaced is lost. */
  #checkLost(oracle: Oracle): void {
    const inLog = new Set(oracle.accepted.flatMap(setsOf).map(([key, name]) => `${key} ${name}`));
    const former = this.#lost.map((records) => new Oracle(records));
    for (const write of this.#writes) {
      const { value, keys, collection } = write;
      for (const key of keys) {
        if (this.#isOver(write, key)) continue;
        if (inLog.has(`${key} ${nameOfStored(value)}`)) continue;
        const cell = oracle.collections.get(collection)?.get(key);
        // The newest of the histories that had it.
        const last = [...former]
          .reverse()
          .find(({ accepted }) =>
            accepted.some(({ transactions }) =>
              transactions.some(({ operations }) =>
                operations.some(
                  (each) =>
                    each.kind === 'set' && each.key === key && nameOf(each.content as Content) === nameOfStored(value),
                ),
              ),
            ),
          );
        assert.ok(last !== undefined, `${show(Buffer.from(value, 'base64'))} never was in the log`);
        const then = last.collections.get(collection)?.get(key);
        const isReplaced = then?.content === undefined || nameOf(then.content) !== nameOfStored(value);
        const isLater = (clock: bigint): boolean => clock >= (then?.clock ?? 0n);
        const isCleared = oracle.accepted.some(({ transactions }) =>
          transactions.some(
            ({ clock, operations }) =>
              isLater(clock) &&
              operations.some(
                (each) => each.kind === 'clear' && each.collection === collection && isInRange(each, key),
              ),
          ),
        );
        assert.ok(
          isReplaced || isCleared || (cell !== undefined && isLater(cell.clock)),
          `${show(Buffer.from(value, 'base64'))} of ${text(key)} is lost`,
        );
      }
    }
  }

  /** Each strict transaction has read what the one before it has left. */
  #checkStrict(oracle: Oracle): void {
    const { strict } = this.#profile;
    if (strict === undefined || this.#lost.length > 0) return;
    const values = new Map<string, string>();
    for (const { isStrict, transactions } of oracle.accepted) {
      if (!isStrict) continue;
      for (const { operations } of transactions) {
        for (const { kind, key, content } of operations) {
          assert.equal(kind, 'set');
          const value = String(valueCodecs.structured().decode((content as Content).bytes as Uint8Array));
          const before = values.get(key) ?? '';
          assert.ok(
            value.startsWith(before) && /^\d+:\d+,$/.test(value.slice(before.length)),
            `${value} follows ${before}`,
          );
          values.set(key, value);
        }
      }
    }
    for (const [token, key] of this.#strict)
      assert.ok(`,${values.get(key) ?? ''}`.includes(`,${token}`), `${token} was acknowledged`);
  }

  #count(oracle: Oracle): void {
    this.count('numbers skipped', oracle.skipped.length);
    this.count('expiries', oracle.expired.length);
    this.count('checks', oracle.checks.length);
    this.count('records refused', oracle.refused.length);
    this.count('strict transactions', oracle.accepted.filter(({ isStrict }) => isStrict).length);
    this.count('transactions in parts', oracle.accepted.filter(({ parts }) => parts > 1).length);
    this.count(
      'clears',
      oracle.accepted.filter(({ transactions }) =>
        transactions.some(({ operations }) => operations.some(({ kind }) => kind === 'clear')),
      ).length,
    );
    this.count('new ids', new Set(oracle.accepted.map(({ device }) => device)).size > 3 ? 1 : 0);
  }

  async stop(): Promise<void> {
    await Promise.all(this.devices.map((device) => device.stop()));
  }
}

const stampText = (clock: bigint, device: bigint, n: number, position: number, isDead: boolean): string =>
  `${clock >> 16n}+${clock & 65_535n} ${device.toString(16)} ${n} @${position}${isDead ? ' dead' : ''}`;
const sha = (bytes: Uint8Array): string => `${bytes.length} ${crc32c(bytes)}`;
const nameOf = ({ bytes, size, checksum }: Content): string =>
  bytes === undefined ? `${size} ${(checksum - 1) % 2 ** 32}` : sha(bytes);
const nameOfStored = (value: string): string => sha(Buffer.from(value, 'base64'));
/** Keys and names of the values that a record sets. */
const setsOf = ({ transactions }: Oracle['accepted'][number]): (readonly [key: string, name: string])[] =>
  transactions.flatMap(({ operations }) =>
    operations.flatMap(({ kind, key, content }) =>
      kind === 'set' ? [[key, nameOf(content as Content)] as const] : [],
    ),
  );
const text = (key: string): string => String(keyCodecs.any.decode(Buffer.from(key, 'hex')));
const show = (bytes: Uint8Array | undefined): string =>
  bytes === undefined
    ? 'a large value'
    : bytes.length > 100
      ? `${bytes.length} bytes`
      : JSON.stringify(valueCodecs.structured().decode(bytes));

/** Returns how often each subject occurred. */
export async function play(
  profile: Profile,
  seed: number,
  steps: readonly Step[],
): Promise<ReadonlyMap<string, number>> {
  const world = new World(seed, profile);
  // The ids of devices, too, are the seed's.
  const random = chance(~seed);
  crypto.getRandomValues = <T extends ArrayBufferView | null>(array: T): T => {
    if (array !== null)
      new Uint8Array(array.buffer, array.byteOffset, array.byteLength).forEach(
        (_, at, bytes) => void (bytes[at] = Math.floor(random() * 256)),
      );
    return array;
  };
  try {
    await world.start();
    for (const each of steps) await world.run(each);
    await world.finish();
    await world.check();
    return world.counts;
  } finally {
    Date.now = realNow;
    crypto.getRandomValues = realRandom;
    await world.stop();
  }
}
