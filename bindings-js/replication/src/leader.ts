// Replication in the background: follows the log, sends local commits, and calls `resolve`, until it is
// told to end.
import { abortable, AbortController, attempt, ReadableStream } from 'mangrove-kv/internal';
import { KvError } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import type { RawConflict } from './apply.ts';
import { Bell } from './bell.ts';
import { toKvError } from './failures.ts';
import { GATHER_MS } from './local-feed.ts';
import type { ReplicationConflict, ReplicationOptions, ReplicationProgress } from './options.ts';
import type { RawDivergence } from './replica-context.ts';
import type { RemoteLog, SnapshotStore } from './remote-log.ts';
import { Replica } from './replica.ts';
import type { Tables } from './tables.ts';
import { isHidden } from './visibility.ts';

/** What a leader tells. */
export interface LeaderEvents {
  state(change: Partial<ReplicationProgress>): void;
  conflicts(conflicts: readonly RawConflict[]): void;
  repaired(records: number): void;
  diverged(divergences: readonly RawDivergence[]): void;
  alarm(error: KvError): void;
}

/** A hint may be lost, most likely when a connection is new: after the last one the log is read again, less and less often. */
const MIN_POLL_MS = 1000;
const MAX_POLL_MS = 30_000;
export const MIN_BACKOFF_MS = 50;
export const MAX_BACKOFF_MS = 30_000;
/** Each record that waits for the log lets the next one gather commits for longer; of so many records. */
const MAX_GATHERING = 10;
/** Failures after which trying again does not help. */
const FINAL: ReadonlySet<string> = new Set([
  'KV_CLOSED',
  'KV_REPLICATION_FENCED',
  'KV_REPLICATION_MODE',
  'KV_VERSION_UNSUPPORTED',
  'KV_VERSION_CHANGED',
  'KV_INVALID_ARGUMENT',
  'KV_READ_ONLY',
  'KV_CODEC_MISMATCH',
  'KV_INDEX_MISMATCH',
]);

const isFinal = (error: unknown): boolean => FINAL.has((error as Partial<KvError>).code ?? '');

/** A conflict with the values that the application's codecs make of the stored bytes. */
export function decodeConflict(
  tables: Tables,
  { collection, key, mine, theirs }: RawConflict,
): ReplicationConflict | undefined {
  const table = tables.byName.get(collection);
  if (table === undefined) return undefined;
  const { key: keys, value: values } = table;
  return {
    collection,
    key: keys.decode(key),
    mine: mine ? values.decode(mine.value) : undefined,
    theirs: theirs ? values.decode(theirs.value) : undefined,
  };
}

/** A log whose calls end with replication, also those that would never answer. */
function logUntil(signal: AbortSignal, log: RemoteLog): RemoteLog {
  return {
    append: (...given) => attempt(() => log.append(...given), signal),
    read: (...given) => attempt(() => log.read(...given), signal),
    at: (...given) => attempt(() => log.at(...given), signal),
    manifest: () => attempt(() => log.manifest(), signal),
    replaceManifest: (...given) => attempt(() => log.replaceManifest(...given), signal),
    purge: (...given) => attempt(() => log.purge(...given), signal),
    wake: (...given) => log.wake(...given),
    close: () => log.close(),
  };
}

/** The same for an object store. */
function storeUntil(signal: AbortSignal, store: SnapshotStore): SnapshotStore {
  return {
    put: (key, stream, given) => attempt(() => store.put(key, streamUntil(signal, stream), given), signal),
    get: async (...given) => {
      const stream = await attempt(() => store.get(...given), signal);
      return stream && streamUntil(signal, stream);
    },
    list: (...given) => attempt(() => store.list(...given), signal),
    delete: (...given) => attempt(() => store.delete(...given), signal),
  };
}

/** A stream that fails when replication ends, and lets its source go then. */
function streamUntil(signal: AbortSignal, stream: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  const reader = stream.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const step = await attempt(() => reader.read(), signal);
        if (step.done) controller.close();
        else controller.enqueue(step.value);
      } catch (error) {
        reader.cancel(error).catch(() => undefined);
        throw error;
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

export class Leader {
  readonly replica: Replica;
  /** Resolves when the replica has started, and is the only writer if it has to be; rejects if it never will. */
  readonly started: Promise<void>;
  #isStarted = false;
  readonly #options: ReplicationOptions;
  readonly #events: LeaderEvents;
  readonly #stop = new AbortController();
  readonly #incoming = new Bell();
  readonly #outgoing = new Bell();
  readonly #conflicted = new Bell();
  /** Of loops that wait after a failure. */
  readonly #pauses = new Set<Bell>();
  readonly #ended: Promise<void>;
  /** Until when commits gather for the next record. */
  #gatherUntil = 0;
  readonly #gathering = new Bell();
  /** A record with commits of a burst was sent, and was not read back. */
  #isReturning = false;
  #failure: KvError | undefined;

  constructor(db: Database, tables: Tables, log: RemoteLog, options: ReplicationOptions, events: LeaderEvents) {
    this.#options = options;
    this.#events = events;
    const { snapshots, collections, mode, seal, exclusive, resolve } = options;
    const { signal } = this.#stop;
    const services = { log: logUntil(signal, log), snapshots: snapshots && storeUntil(signal, snapshots) };
    this.replica = new Replica(
      db,
      { ...services, collections, mode, seal, tables, isExclusive: exclusive, keepsConflicts: resolve !== undefined },
      {
        conflicts: (conflicts) => {
          events.conflicts(conflicts);
          this.#conflicted.ring();
        },
        alarm: (error) => events.alarm(error),
        repaired: (records) => events.repaired(records),
        diverged: (divergences) => events.diverged(divergences),
        changed: () => this.#outgoing.ring(),
      },
    );
    const begun = this.#begin();
    this.started = begun.then(() => this.#start());
    this.started.catch(() => undefined);
    this.#ended = begun.then(() => this.#run());
    this.#ended.catch(() => undefined);
  }

  /** Aborted when this ends, for whatever reason. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Resolves after `end`; rejects with the failure that ended it otherwise. */
  async ended(): Promise<void> {
    try {
      await this.#ended;
    } catch (error) {
      if (this.#failure !== undefined || !this.#isStopped) throw error;
    } finally {
      this.end(new KvError('KV_CLOSED', 'replication has ended'));
    }
  }

  /** Commits nothing from here on, and sends nothing that is not on its way. */
  end(reason: KvError): void {
    this.replica.stop();
    if (!this.#isStopped) this.#stop.abort(reason);
    for (const bell of [this.#incoming, this.#outgoing, this.#conflicted, this.#gathering, ...this.#pauses])
      bell.ring();
  }

  /** There may be something new in the log. */
  wake(): void {
    this.#incoming.ring();
  }

  /** The network may be back: what has failed is tried again now. */
  retry(): void {
    for (const bell of this.#pauses) bell.ring();
    this.#incoming.ring();
  }

  get #isStopped(): boolean {
    return this.#stop.signal.aborted;
  }

  async #begin(): Promise<void> {
    await this.replica.start();
    await this.refresh();
  }

  async #start(): Promise<void> {
    if (this.#options.exclusive) await this.#fence();
    this.#isStarted = true;
  }

  async #run(): Promise<void> {
    const receiving = this.started.then(() => this.#loop(this.#incoming, (onProgress) => this.#receive(onProgress)));
    const loops = [
      receiving,
      this.#loop(this.#outgoing, () => this.#send()),
      this.#loop(this.#conflicted, () => this.#resolveConflicts()),
    ];
    await Promise.all(loops).catch((error: unknown) => {
      if (this.#isStopped) return;
      this.#failure = toKvError(error);
      this.end(this.#failure);
    });
    await Promise.allSettled(loops);
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #fence(): Promise<void> {
    for (let wait = MIN_BACKOFF_MS; ; wait = Math.min(wait * 2, MAX_BACKOFF_MS)) {
      this.#stop.signal.throwIfAborted();
      try {
        await this.replica.fence(this.#stop.signal);
        return;
      } catch (error) {
        this.#stop.signal.throwIfAborted();
        if (isFinal(error)) throw error;
        this.replica.reconnect();
        this.#events.state({ status: 'offline', lastError: toKvError(error) });
      }
      await this.#incoming.wait(wait);
    }
  }

  /** Does work when the bell rings, and again, later and later, after failures. */
  async #loop(bell: Bell, work: (onProgress: () => void) => Promise<void>): Promise<void> {
    let [backoff, poll] = [MIN_BACKOFF_MS, MIN_POLL_MS];
    let [answers, wasAnswered] = [this.replica.answers, true];
    const onProgress = (): void => {
      backoff = MIN_BACKOFF_MS;
    };
    while (!this.#isStopped) {
      try {
        await work(onProgress);
        onProgress();
        if (this.#isStopped) return;
        const isRung = await bell.wait(poll);
        // What the log has acknowledged may be lost: the sooner it is looked for, the sooner it is sent again.
        poll = isRung || this.replica.isAwaiting ? MIN_POLL_MS : Math.min(poll * 2, MAX_POLL_MS);
      } catch (error) {
        if (this.#isStopped) return;
        if (isFinal(error)) {
          this.#failure = toKvError(error);
          return this.end(this.#failure);
        }
        this.replica.reconnect();
        this.#events.state({ status: 'offline', lastError: toKvError(error) });
        if ((error as Partial<KvError>).code !== 'KV_LOG_UNAVAILABLE') this.#events.alarm(toKvError(error));
        const isAnswered = this.replica.answers > answers;
        // The log is back, and the failure is another one.
        if (isAnswered && !wasAnswered) backoff = MIN_BACKOFF_MS;
        [answers, wasAnswered] = [this.replica.answers, isAnswered];
        await this.#pause(backoff * (0.5 + Math.random() / 2));
        backoff = Math.min(backoff * 2, MAX_BACKOFF_MS);
        // Nothing is sent before the log was read again.
        this.#incoming.ring();
      }
    }
  }

  async #pause(milliseconds: number): Promise<void> {
    const pause = new Bell();
    this.#pauses.add(pause);
    await pause.wait(milliseconds);
    this.#pauses.delete(pause);
  }

  /** Tells how far replication is now. */
  async refresh(change: Partial<ReplicationProgress> = {}): Promise<void> {
    const [pending, { cursor }] = await Promise.all([this.replica.pending(), this.replica.recall()]);
    if (!this.#isStopped) this.#events.state({ ...change, pending, position: cursor.position });
  }

  async #receive(onProgress?: () => void): Promise<void> {
    const wasCaughtUp = this.replica.isCaughtUp;
    let hasMore = true;
    while (!this.#isStopped && (hasMore = await this.replica.pull(this.#stop.signal)) && !this.replica.isAtEnd) {
      onProgress?.();
      await this.refresh({ status: 'catching-up' });
    }
    if (this.#isStopped) return;
    await this.refresh({ status: 'live', lastError: undefined });
    // Sending waits until the log was read. What gathered while that could not be reached goes out now.
    if (!wasCaughtUp) this.#gathering.ring();
    this.#outgoing.ring();
    if (hasMore) this.#incoming.ring();
  }

  async #send(): Promise<void> {
    const before = this.replica.drained;
    // A record costs much more than a commit in it.
    const wait = this.#gatherUntil - performance.now();
    if (wait > 0 && !isHidden() && (this.#isReturning || this.replica.hasCommits)) await this.#gathering.wait(wait);
    if (this.#isReturning) {
      // Reading captures what was committed before: earlier, it would cut the burst in two.
      this.#isReturning = false;
      await this.#receive();
    }
    // What was committed since goes into the next record.
    const isCaptured = this.replica.drained > before;
    while (!this.#isStopped && !isCaptured && this.replica.isDrainDue && (await this.replica.drain()));
    // Where each commit waits for an answer to the one before, none of them would gain anything.
    const isBurst = this.replica.drained > before + 1;
    const drainedAt = performance.now();
    let isSent = false;
    // Only what the fence has to follow goes out before it.
    while (!this.#isStopped && this.#isStarted && (await this.replica.publish(this.#stop.signal))) isSent = true;
    const pending = await this.replica.pending();
    // While the log cannot be reached, records that wait do not become ever more.
    const waiting = this.replica.isCaughtUp ? 0 : Math.min(pending, MAX_GATHERING);
    this.#gatherUntil = drainedAt + GATHER_MS * Math.max(waiting, isBurst ? 1 : 0);
    if (!this.#isStopped) this.#events.state({ pending });
    if (!isSent) return;
    this.#isReturning = isBurst;
    (isBurst ? this.#outgoing : this.#incoming).ring();
  }

  async #resolveConflicts(): Promise<void> {
    const { resolve } = this.#options;
    if (resolve === undefined) return;
    for (
      let next = await this.replica.nextConflict();
      next !== undefined && !this.#isStopped;
      next = await this.replica.nextConflict(next.id)
    ) {
      try {
        const conflict = decodeConflict(this.replica.tables, next.conflict);
        if (conflict !== undefined) await abortable(Promise.resolve(resolve(conflict)), this.#stop.signal);
      } catch (error) {
        if (this.#isStopped) return;
        // It stays, and comes again later.
        this.#events.alarm(toKvError(error));
        continue;
      }
      await this.replica.removeConflict(next.id);
    }
  }
}
