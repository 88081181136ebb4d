// Devices for the tests of replication: databases whose disk can be cut, copied and restored, and whose
// steps are called one by one.
import { open } from 'mangrove-kv';
import type { CustomStorage, Database, KvError, StorageFile } from 'mangrove-kv';
import type { RawConflict } from '../src/apply.ts';
import { MemoryLog } from '../src/memory-log.ts';
import type { MemoryServer } from '../src/memory-log.ts';
import type { SnapshotStore } from '../src/remote-log.ts';
import type { RawDivergence } from '../src/replica-context.ts';
import { Replica } from '../src/replica.ts';
import type { ReplicaOptions } from '../src/replica.ts';

/** Bytes that grow at their end. */
class Bytes {
  #buffer = new Uint8Array(0);
  size = 0;

  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.size);
  }

  /** New bytes are zeros. */
  resize(size: number): void {
    if (size > this.#buffer.length) {
      const grown = new Uint8Array(Math.max(size, 2 * this.#buffer.length));
      grown.set(this.bytes);
      this.#buffer = grown;
    } else if (size < this.size) this.#buffer.fill(0, size, this.size);
    this.size = size;
  }

  write(at: number, from: Uint8Array): void {
    if (at + from.length > this.size) this.resize(at + from.length);
    this.#buffer.set(from, at);
  }
}

/** A file, and what a power cut leaves of it. */
class DiskFile {
  readonly now = new Bytes();
  readonly flushed = new Bytes();
  /** A power cut removes a file that was never flushed. */
  isFlushed = false;
  /** Where the two may differ. */
  #from = Infinity;
  #to = 0;

  static of(bytes: Uint8Array): DiskFile {
    const file = new DiskFile();
    file.write(0, bytes);
    file.flush();
    return file;
  }

  write(at: number, from: Uint8Array): void {
    this.#from = Math.min(this.#from, at, this.now.size);
    this.now.write(at, from);
    this.#to = Math.max(this.#to, at + from.length);
  }

  truncate(size: number): void {
    this.#from = Math.min(this.#from, size, this.now.size);
    this.#to = Math.max(this.#to, size);
    this.now.resize(size);
  }

  flush(): void {
    this.isFlushed = true;
    this.flushed.resize(this.now.size);
    if (this.#from < this.now.size) this.flushed.write(this.#from, this.now.bytes.subarray(this.#from, this.#to));
    [this.#from, this.#to] = [Infinity, 0];
  }
}

/** A disk that loses what was not flushed, and can fail from any operation on. */
export class Disk implements CustomStorage {
  readonly #files = new Map<string, DiskFile>();
  /** Writes and flushes that still succeed. */
  left = Infinity;
  operations = 0;

  open(name: string): StorageFile {
    const file = this.#files.get(name) ?? new DiskFile();
    this.#files.set(name, file);
    return {
      read: (at, into) => {
        if (at + into.length > file.now.size) throw new Error('the file ends before');
        into.set(file.now.bytes.subarray(at, at + into.length));
      },
      write: (at, from) => {
        this.#step();
        file.write(at, from);
      },
      flush: () => {
        this.#step();
        file.flush();
      },
      size: () => file.now.size,
      truncate: (size) => {
        this.#step();
        file.truncate(size);
      },
      close: () => undefined,
    };
  }

  list(): string[] {
    return [...this.#files.keys()];
  }

  remove(name: string): void {
    this.#files.delete(name);
  }

  /** The files after a power cut. */
  afterPowerCut(): Disk {
    const disk = new Disk();
    for (const [name, { isFlushed, flushed }] of this.#files)
      if (isFlushed) disk.#files.set(name, DiskFile.of(flushed.bytes));
    return disk;
  }

  /** The files as they are: after the death of the process, or a copy. */
  copy(): Disk {
    const disk = new Disk();
    for (const [name, { now }] of this.#files) disk.#files.set(name, DiskFile.of(now.bytes));
    return disk;
  }

  #step(): void {
    this.operations++;
    if (this.left-- <= 0) throw new Error('the power is gone');
  }
}

/** Reads without which a device that can reach everything has settled. */
const MAX_READS = 1000;

/** A log that fails when a device goes on reading and never settles. */
class CountedLog extends MemoryLog {
  left = Infinity;

  override read(after: number, limit: number): ReturnType<MemoryLog['read']> {
    if (--this.left < 0) throw new Error(`the device does not settle: it has read the log ${MAX_READS} times`);
    return super.read(after, limit);
  }
}

export type DeviceOptions = Omit<ReplicaOptions, 'log' | 'collections'> &
  Partial<Pick<ReplicaOptions, 'collections' | 'log'>> & {
    readonly snapshots?: SnapshotStore;
    readonly isInMemory?: boolean;
    readonly feed?: boolean;
  };

export class Device {
  readonly disk: Disk;
  readonly db: Database;
  readonly replica: Replica;
  readonly conflicts: RawConflict[] = [];
  readonly alarms: KvError[] = [];
  readonly repairs: number[] = [];
  readonly divergences: RawDivergence[] = [];
  readonly #log: CountedLog;

  private constructor(disk: Disk, db: Database, server: MemoryServer, options: DeviceOptions) {
    this.disk = disk;
    this.db = db;
    this.#log = new CountedLog(server);
    // The types of the built package and of the sources have symbols of their own.
    this.replica = new Replica(
      db as never,
      { log: this.#log, collections: { notes: {} }, ...options },
      {
        conflicts: (conflicts) => this.conflicts.push(...conflicts),
        alarm: (error) => this.alarms.push(error),
        repaired: (records) => this.repairs.push(records),
        diverged: (divergences) => this.divergences.push(...divergences),
        changed: () => undefined,
      },
    );
  }

  static async start(server: MemoryServer, options: DeviceOptions = {}, disk = new Disk()): Promise<Device> {
    const db = await open('device', {
      storage: options.isInMemory ? 'memory' : disk,
      feed: options.feed ?? true,
      advanced: { unitBytes: 512, nodeBytes: 2048 },
    });
    const device = new Device(disk, db, server, options);
    await device.replica.start();
    return device;
  }

  /** A device with a database that is open already. */
  static async adopt(server: MemoryServer, options: DeviceOptions, db: Database, disk = new Disk()): Promise<Device> {
    const device = new Device(disk, db, server, options);
    await device.replica.start();
    return device;
  }

  /** The same file in another process, perhaps with another program. */
  async restart(server: MemoryServer, options: DeviceOptions): Promise<Device> {
    this.replica.stop();
    await this.db.close();
    return Device.start(server, options, this.disk);
  }

  /** Everything that can be done now; failures of the log are repeated. */
  async exchange(): Promise<void> {
    this.#log.left = MAX_READS;
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          return await this.replica.settle();
        } catch (error) {
          const { code } = error as KvError;
          if (!['KV_LOG_UNAVAILABLE', 'KV_REPLICATION_GAP', 'KV_CORRUPT'].includes(code) || attempt > 200) throw error;
          this.replica.reconnect();
        }
      }
    } finally {
      this.#log.left = Infinity;
    }
  }

  /** All replicated entries. */
  async digest(): Promise<string> {
    const parts: unknown[] = [];
    for (const name of this.replica.tables.byName.keys())
      parts.push([name, await this.db.collection(name).entries().toArray()]);
    return JSON.stringify(parts, (_, value: unknown) =>
      value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value,
    );
  }

  async stop(): Promise<void> {
    this.replica.stop();
    await this.db.close().catch(() => undefined);
  }
}

/** Lets all devices exchange everything. */
export async function converge(devices: readonly Device[]): Promise<void> {
  for (let round = 0; round < 3; round++) for (const device of devices) await device.exchange();
}
