// A collection whose requests take their time, and whose leader is replaced now and then: what was open in the engine is gone
// then. Everything else is the real engine's.
import { KvError } from 'mangrove-kv';
import type { Collection } from 'mangrove-kv';
import type { Connection } from '../../src/wire/connection.ts';
import { Op } from '../../src/wire/opcodes.ts';
import { headOf } from '../support/requests.ts';
import type { Write } from '../support/requests.ts';
import type { Random } from '../tabs/random.ts';

/** By what opens a handle, what closes it. */
const CLOSING = new Map<number, number>([
  [Op.changesOpen, Op.changesClose],
  [Op.snapshotOpen, Op.snapshotClose],
]);

export class Flaky {
  readonly #random: Random;
  readonly #connection: Connection;
  /** By id of a feed, a snapshot or a scan, the number of the leader that has it. */
  readonly #leaders = new Map<number, number>();
  #leader = 1;
  #sending: Promise<unknown> = Promise.resolve();
  #replying: Promise<unknown> = Promise.resolve();
  readonly connection: unknown;
  takeOvers = 0;
  /** What is open in the engine, by its id, with the operation that closes it. Scans that end close themselves. */
  readonly open = new Map<number, number>();

  constructor(connection: Connection, random: Random) {
    this.#connection = connection;
    this.#random = random;
    this.connection = {
      request: (write: Write, read: never) => this.#request(write, (sent) => connection.request(sent, read)),
      requestLoading: (write: Write, read: never) =>
        this.#request(write, (sent) => connection.requestLoading(sent, read)),
      postLater: (write: Write) => {
        void this.#sending.then(() => {
          this.open.delete(headOf(write).numbers[0]!);
          connection.postLater(write);
        });
      },
      newId: () => connection.newId(),
      closedError: () => connection.closedError(),
      waiting: connection.waiting,
      get status() {
        return connection.status;
      },
    };
  }

  takeOver(): void {
    this.#leader++;
    this.takeOvers++;
    // What the leader had goes with it.
    void this.#sending.then(() => {
      for (const [id, close] of this.open)
        if (this.#leaders.get(id) !== this.#leader) {
          this.open.delete(id);
          this.#connection.postLater((writer) => writer.u8(close).uv(id));
        }
    });
    for (const wake of [...this.#connection.waiting.values()]) wake();
  }

  /** A collection that is read through this. Its writes go straight to the engine, as those of other tabs do. */
  through<K, V>(collection: Collection<K, V>): Collection<K, V> {
    const { verbs } = collection as unknown as { verbs: { target: object } };
    verbs.target = { ...verbs.target, connection: this.connection };
    return collection;
  }

  async #pause(): Promise<void> {
    for (let left = this.#random.below(4); left > 0; left--) await new Promise((resolve) => setImmediate(resolve));
  }

  /** Requests are sent in order, and answered in order. */
  #request<T>(write: Write, send: (write: Write) => Promise<T>): Promise<T> {
    const sent = this.#sending.then(() => this.#pause()).then(() => this.#send(write, send));
    this.#sending = sent.then(
      () => undefined,
      () => undefined,
    );
    const replied = this.#replying.then(() => sent.then(() => this.#pause()).then(() => sent));
    this.#replying = replied.then(
      () => undefined,
      () => undefined,
    );
    return replied;
  }

  #send<T>(write: Write, send: (write: Write) => Promise<T>): Promise<T> {
    const { op, numbers } = headOf(write);
    const [id = 0, view = 0] = numbers;
    const close = CLOSING.get(op);
    const isLost = (used: number): boolean => used !== 0 && this.#leaders.get(used) !== this.#leader;
    if (op === Op.changesOpen || op === Op.snapshotOpen) this.#leaders.set(id, this.#leader);
    if (op === Op.changesNext && isLost(id))
      return Promise.reject(new KvError('KV_TRUNCATED_FEED', 'the leader is gone'));
    if (op === Op.scanOpen || op === Op.indexScan) {
      if (isLost(view))
        return Promise.reject(new KvError('KV_SNAPSHOT_LOST', 'the leader is gone', { retryable: true }));
      this.#leaders.set(id, this.#leader);
    }
    if (op === Op.scanNext && isLost(id))
      return Promise.reject(new KvError('KV_SNAPSHOT_LOST', 'the leader is gone', { retryable: true }));
    if (close !== undefined) this.open.set(id, close);
    return send(write);
  }
}
