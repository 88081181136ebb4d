// One of the two devices: a database of its own, kept in step over the log, with a switch for its
// connection.
import { open } from 'mangrove-kv';
import type { Collection, Database, Subscription } from 'mangrove-kv';
import { logUnavailable, replicate } from '@mangrove-kv/replication';
import type { RemoteLog, Replication, ReplicationConflict, ReplicationProgress } from '@mangrove-kv/replication';
import { natsLog } from '@mangrove-kv/replication-nats';

export interface Log {
  /** Address of the server. */
  readonly server: string;
  /** Name of the log, which the devices share. */
  readonly name: string;
}

/** The value that the visitor wants; undefined deletes the note. */
export interface Choice {
  readonly text: string | undefined;
}

export interface DeviceEvents {
  onProgress(progress: ReplicationProgress): void;
  /** Asks the visitor; rejects when `signal` is aborted. */
  onConflict(conflict: ReplicationConflict, signal: AbortSignal): Promise<Choice>;
  onError(error: Error): void;
}

/** A log that cannot be reached: replication goes on counting what it has to send. */
class Unplugged implements RemoteLog {
  readonly #fail = (): Promise<never> => Promise.reject(logUnavailable('this device is switched offline'));
  readonly append = this.#fail;
  readonly read = this.#fail;
  readonly at = this.#fail;
  readonly manifest = this.#fail;
  readonly replaceManifest = this.#fail;
  readonly purge = this.#fail;

  wake(): () => void {
    return () => undefined;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

export class Device {
  readonly notes: Collection<string, string>;
  readonly #db: Database;
  readonly #log: Log;
  readonly #id: string;
  readonly #events: DeviceEvents;
  #replication: Replication | undefined;
  #isOnline = true;
  #restart = new AbortController();
  #connecting: Promise<void> = Promise.resolve();

  private constructor(db: Database, log: Log, id: string, events: DeviceEvents) {
    this.#db = db;
    this.notes = db.collection('notes');
    this.#log = log;
    this.#id = id;
    this.#events = events;
  }

  static async open(name: string, log: Log, events: DeviceEvents): Promise<Device> {
    const db = await open(name, { feed: true });
    // In the default collection, which is not replicated: no two devices may have the same id.
    const id = String(await db.getOrInsert('device', crypto.randomUUID()));
    const device = new Device(db, log, id, events);
    await device.connect(true);
    return device;
  }

  get isOnline(): boolean {
    return this.#isOnline;
  }

  /** Starts replication anew, at once, with or without a connection. */
  connect(isOnline: boolean): Promise<void> {
    this.#isOnline = isOnline;
    // Before `close`, which waits for the answer of the visitor.
    this.#restart.abort();
    this.#connecting = this.#connecting
      .then(() => this.#start())
      .catch((error: unknown) => this.#events.onError(error as Error));
    return this.#connecting;
  }

  async #start(): Promise<void> {
    await this.#replication?.close();
    const restart = new AbortController();
    this.#restart = restart;
    const log = this.#isOnline
      ? natsLog({ servers: this.#log.server, database: this.#log.name, device: this.#id })
      : new Unplugged();
    const replication = await replicate(this.#db, {
      log,
      collections: { notes: {} },
      resolve: (conflict) => this.#resolve(conflict, restart.signal),
    });
    this.#replication = replication;
    const report = (): void => {
      if (this.#replication === replication && !restart.signal.aborted) this.#events.onProgress(replication.state);
    };
    replication.subscribe(report);
    replication.addEventListener('error', ({ error }) => {
      if (!restart.signal.aborted) this.#events.onError(error);
    });
    report();
  }

  async #resolve(conflict: ReplicationConflict, signal: AbortSignal): Promise<void> {
    const { text } = await this.#events.onConflict(conflict, signal);
    const key = conflict.key as string;
    if (text === conflict.theirs) return;
    if (text === undefined) await this.notes.delete(key);
    else await this.notes.set(key, text);
  }

  list(): Promise<[string, string][]> {
    return this.notes.entries().toArray();
  }

  follow(onChange: () => void): Subscription {
    return this.notes.subscribe({}, onChange);
  }

  async add(text: string): Promise<void> {
    // Keys in the order of time, and never the same on two devices.
    await this.notes.set(`${String(Date.now()).padStart(15, '0')} ${crypto.randomUUID()}`, text);
  }
}
