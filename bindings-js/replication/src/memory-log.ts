// A log and an object store in memory: for tests and examples. They keep the whole contract, and
// can fail in every way that real ones do.
import { collect } from './wire.ts';
import { logConflict, logTruncated, logUnavailable } from './remote-log.ts';
import type { AppendOptions, LoggedRecord, Position, RemoteLog, SnapshotStore } from './remote-log.ts';

/** Which calls fail, and how. Each function is asked once per call. */
export interface MemoryFaults {
  /** The call fails before it has an effect. */
  readonly isUnreachable?: ((call: string) => boolean) | undefined;
  /** The call has its effect, and its reply is lost. */
  readonly isReplyLost?: ((call: string) => boolean) | undefined;
  /** An append is executed twice although it has an idempotency key, as after the key's time is over. */
  readonly isDuplicated?: (() => boolean) | undefined;
  /** Resolves when the call goes on. */
  readonly delay?: ((call: string) => Promise<void>) | undefined;
  /** The log's clock. Default: the device's. */
  readonly serverTime?: (() => number) | undefined;
  /** A wake is not delivered. */
  readonly isWakeLost?: (() => boolean) | undefined;
}

/** The servers' side of a log, which any number of `MemoryLog` connect to. */
export class MemoryServer {
  #records: LoggedRecord[] = [];
  #last: Position = 0;
  #purged: Position = 0;
  #manifest: { revision: Position; manifest: Uint8Array } | undefined;
  #revisions = 0;
  readonly #keys = new Map<string, Position>();
  readonly #listeners = new Set<{ readonly listener: () => void; readonly log: MemoryLog }>();
  readonly #faults: MemoryFaults;

  /** `faults` say which calls fail; by default none does. */
  constructor(faults: MemoryFaults = {}) {
    this.#faults = faults;
  }

  /** All records that are there. */
  get records(): readonly LoggedRecord[] {
    return this.#records;
  }

  /** Forgets all records after a position, as servers that restart from stale disks do. */
  loseHistory(after: Position): void {
    this.#records = this.#records.filter(({ position }) => position <= after);
    this.#last = Math.min(this.#last, after);
    for (const [key, position] of this.#keys) if (position > after) this.#keys.delete(key);
  }

  /** Forgets which appends it has seen, as servers do after some time. */
  forgetKeys(): void {
    this.#keys.clear();
  }

  /** @internal */
  append(record: Uint8Array, { idempotencyKey, expect }: AppendOptions, sender?: MemoryLog): Position {
    const known = this.#keys.get(idempotencyKey);
    if (known !== undefined) return known;
    if (expect !== undefined && expect !== this.#last)
      throw logConflict(`the newest record is at ${this.#last}, not at ${expect}`);
    const position = ++this.#last;
    this.#keys.set(idempotencyKey, position);
    this.#records.push({ position, serverTime: (this.#faults.serverTime ?? Date.now)(), record: record.slice() });
    for (const { listener, log } of this.#listeners)
      if (log !== sender && this.#faults.isWakeLost?.() !== true) queueMicrotask(listener);
    return position;
  }

  /** @internal */
  read(after: Position, limit: number): readonly LoggedRecord[] {
    if (after < this.#purged) throw this.#truncated();
    return this.#records.filter(({ position }) => position > after).slice(0, limit);
  }

  /** @internal */
  at(position: Position): LoggedRecord | undefined {
    if (position <= this.#purged && position > 0) throw this.#truncated();
    return this.#records.find((each) => each.position === position);
  }

  /** @internal */
  manifest(): { readonly revision: Position; readonly manifest: Uint8Array } | undefined {
    return this.#manifest;
  }

  /** @internal */
  replaceManifest(previous: Position, next: Uint8Array): Position {
    if ((this.#manifest?.revision ?? 0) !== previous) throw logConflict('the manifest was replaced meanwhile');
    this.#manifest = { revision: ++this.#revisions, manifest: next.slice() };
    return this.#manifest.revision;
  }

  /** @internal */
  purge(upTo: Position): void {
    this.#purged = Math.max(this.#purged, upTo);
    this.#records = this.#records.filter(({ position }) => position > upTo);
  }

  /** @internal */
  wake(listener: () => void, log: MemoryLog): () => void {
    const subscription = { listener, log };
    this.#listeners.add(subscription);
    return () => this.#listeners.delete(subscription);
  }

  /** @internal */
  async call<T>(name: string, work: () => T): Promise<T> {
    const { isUnreachable, isReplyLost, delay } = this.#faults;
    await delay?.(name);
    if (isUnreachable?.(name) === true) throw logUnavailable(`${name}: the log in memory was told to be unreachable`);
    const result = work();
    if (isReplyLost?.(name) === true) throw logUnavailable(`${name}: the log in memory was told to lose the reply`);
    return result;
  }

  /** @internal */
  duplicates(): boolean {
    return this.#faults.isDuplicated?.() === true;
  }

  #truncated(): Error {
    return logTruncated(`records up to ${this.#purged} were removed`);
  }
}

/** A device's connection to a `MemoryServer`. */
export class MemoryLog implements RemoteLog {
  readonly #server: MemoryServer;
  readonly #ends = new Set<() => void>();
  #isClosed = false;

  /** Connects to a server. */
  constructor(server: MemoryServer) {
    this.#server = server;
  }

  append(record: Uint8Array, options: AppendOptions): Promise<Position> {
    return this.#call('append', () => {
      const position = this.#server.append(record, options, this);
      if (options.expect === undefined && this.#server.duplicates())
        this.#server.append(record, { idempotencyKey: `${options.idempotencyKey} again` }, this);
      return position;
    });
  }

  read(after: Position, limit: number): Promise<readonly LoggedRecord[]> {
    return this.#call('read', () => this.#server.read(after, limit));
  }

  at(position: Position): Promise<LoggedRecord | undefined> {
    return this.#call('at', () => this.#server.at(position));
  }

  wake(listener: () => void): () => void {
    const end = this.#server.wake(listener, this);
    this.#ends.add(end);
    return () => {
      this.#ends.delete(end);
      end();
    };
  }

  manifest(): Promise<{ readonly revision: Position; readonly manifest: Uint8Array } | undefined> {
    return this.#call('manifest', () => this.#server.manifest());
  }

  replaceManifest(previous: Position, next: Uint8Array): Promise<Position> {
    return this.#call('replaceManifest', () => this.#server.replaceManifest(previous, next));
  }

  purge(upTo: Position): Promise<void> {
    return this.#call('purge', () => this.#server.purge(upTo));
  }

  close(): Promise<void> {
    this.#isClosed = true;
    for (const end of this.#ends) end();
    this.#ends.clear();
    return Promise.resolve();
  }

  #call<T>(name: string, work: () => T): Promise<T> {
    if (this.#isClosed) return Promise.reject(logUnavailable('the log is closed'));
    return this.#server.call(name, work);
  }
}

/** Objects in memory. */
export class MemorySnapshotStore implements SnapshotStore {
  readonly #objects = new Map<string, Uint8Array>();
  readonly #faults: MemoryFaults;

  /** `faults` say which calls fail; by default none does. */
  constructor(faults: MemoryFaults = {}) {
    this.#faults = faults;
  }

  async put(key: string, bytes: ReadableStream<Uint8Array>): Promise<void> {
    const object = await collect(bytes);
    await this.#call('put', () => {
      if (this.#objects.has(key)) throw logConflict(`there is an object ${key} already`);
      this.#objects.set(key, object);
    });
  }

  get(key: string): Promise<ReadableStream<Uint8Array> | undefined> {
    return this.#call('get', () => {
      const object = this.#objects.get(key);
      return object && new Blob([object as Uint8Array<ArrayBuffer>]).stream();
    });
  }

  list(prefix: string): Promise<readonly string[]> {
    return this.#call('list', () => [...this.#objects.keys()].filter((key) => key.startsWith(prefix)).sort());
  }

  delete(key: string): Promise<void> {
    return this.#call('delete', () => void this.#objects.delete(key));
  }

  async #call<T>(name: string, work: () => T): Promise<T> {
    const { delay, isUnreachable, isReplyLost } = this.#faults;
    await delay?.(name);
    if (isUnreachable?.(name) === true) throw logUnavailable(`${name}: the store in memory was told to be unreachable`);
    const result = work();
    if (isReplyLost?.(name) === true) throw logUnavailable(`${name}: the store in memory was told to lose the reply`);
    return result;
  }
}
