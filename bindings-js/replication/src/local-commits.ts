// The commits that replication makes in the database, one at a time, and what the last of them left.
import { KvError } from 'mangrove-kv';
import type { Transaction } from 'mangrove-kv';
import { Mutex } from './mutex.ts';
import type { ReplicaState } from './state.ts';
import type { Tables } from './tables.ts';

export class LocalCommits {
  readonly tables: Tables;
  readonly #alarm: (error: KvError) => void;
  readonly #turns = new Mutex();
  #isStopped = false;
  /** As of the last commit; undefined if that is not known. */
  #state: ReplicaState | undefined;
  /** Size of the outbox, if it is known. */
  #pending: number | undefined;
  #changes = 0;

  constructor(tables: Tables, alarm: (error: KvError) => void) {
    this.tables = tables;
    this.#alarm = alarm;
  }

  async state(): Promise<ReplicaState> {
    this.#checkRunning();
    return (
      (await this.tables.state.get('state')) ?? this.change('relaxed', async (_, state) => ({ state, result: state }))
    );
  }

  /** The state as this replica left it. Another tab that took over may have written a newer one. */
  async recall(): Promise<ReplicaState> {
    this.#checkRunning();
    return this.#state ?? this.change('relaxed', async (_, state) => ({ state, result: state }));
  }

  /** Number of records that the log has not confirmed. */
  async pending(): Promise<number> {
    if (this.#pending !== undefined) return this.#pending;
    const changes = this.#changes;
    const size = await this.tables.outbox.size;
    if (changes === this.#changes) this.#pending = size;
    return size;
  }

  /** Commits what `work` writes, and the state that it returns. */
  change<T>(
    durability: 'strict' | 'relaxed',
    work: (tx: Transaction, state: ReplicaState) => Promise<{ readonly state: ReplicaState; readonly result: T }>,
  ): Promise<T> {
    return this.run(async () => {
      let next: ReplicaState | undefined;
      this.#state = undefined;
      try {
        const result = await this.tables.change(async (tx, state) => {
          const changed = await work(tx, state);
          this.#checkRunning();
          next = changed.state;
          return changed;
        }, durability);
        this.#state = next;
        for (const error of this.tables.leftOut) this.#alarm(error);
        return result;
      } finally {
        this.#pending = undefined;
        this.#changes++;
      }
    });
  }

  /** Runs `work` while no commit of replication is under way. */
  run<T>(work: () => Promise<T>): Promise<T> {
    return this.#turns.run(work);
  }

  /** Another tab may replicate already. */
  #checkRunning(): void {
    if (this.#isStopped) throw new KvError('KV_CLOSED', 'replication has ended in this tab');
  }

  /** Nothing is committed from here on. */
  stop(): void {
    this.#isStopped = true;
  }
}
