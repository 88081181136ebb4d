// The records of a plan as a log that ends with them, and that nobody can write.
import { KvError } from 'mangrove-kv';
import { logRefused } from '../remote-log.ts';
import type { LoggedRecord, Position, RemoteLog } from '../remote-log.ts';
import type { RestorePlan } from './plan.ts';

/** At most this much is read ahead. */
const BATCH_BYTES = 8 << 20;

export class PlanLog implements RemoteLog {
  readonly #plan: RestorePlan;
  readonly #manifest: Uint8Array | undefined;
  #records: AsyncIterator<LoggedRecord> | undefined;
  /** Records that were read and not asked for, or asked for and not applied. */
  #queue: LoggedRecord[] = [];
  #last: Position;
  #isAtEnd = false;
  /** Records that were given out and are not asked for again. */
  #done = 0;
  /** What ended the records. To read on would pass over what is missing. */
  #failure: { readonly error: unknown } | undefined;

  /** `manifest` names the plan's snapshot, if there is one. */
  constructor(plan: RestorePlan, manifest: Uint8Array | undefined) {
    this.#plan = plan;
    this.#manifest = manifest;
    this.#last = plan.snapshot?.position ?? 0;
  }

  async read(after: Position, limit: number, signal?: AbortSignal): Promise<readonly LoggedRecord[]> {
    const start = this.#plan.snapshot?.position ?? 0;
    if (this.#records === undefined && after !== start) {
      throw new KvError(
        'KV_CORRUPT',
        `the archive says that ${this.#plan.snapshot?.key ?? 'the log'} has everything up to position ${start}, but that is ${after}`,
      );
    }
    this.#records ??= this.#plan.records[Symbol.asyncIterator]();
    this.#forget(after);
    let bytes = this.#queue.reduce((sum, { record }) => sum + record.length, 0);
    while (this.#queue.length < limit && bytes < BATCH_BYTES && !this.#isAtEnd) {
      signal?.throwIfAborted();
      const record = await this.#next(this.#records);
      if (record === undefined) break;
      this.#queue.push(record);
      bytes += record.record.length;
    }
    return this.#queue.slice(0, limit);
  }

  /** Number of records up to a position that was applied. */
  countUpTo(position: Position): number {
    this.#forget(position);
    return this.#done;
  }

  #forget(applied: Position): void {
    const left = this.#queue.filter(({ position }) => position > applied);
    this.#done += this.#queue.length - left.length;
    this.#queue = left;
  }

  /** Whether the records ended with a failure: reading again does not help. */
  get isBroken(): boolean {
    return this.#failure !== undefined;
  }

  async #next(records: AsyncIterator<LoggedRecord>): Promise<LoggedRecord | undefined> {
    if (this.#failure !== undefined) throw this.#failure.error;
    try {
      const { done, value } = await records.next();
      if (done === true) {
        this.#isAtEnd = true;
        return undefined;
      }
      if (value.position <= this.#last)
        throw new KvError('KV_CORRUPT', `the plan has position ${value.position} after ${this.#last}`);
      this.#last = value.position;
      return value;
    } catch (error) {
      this.#failure = { error };
      throw error;
    }
  }

  async manifest(): Promise<{ readonly revision: Position; readonly manifest: Uint8Array } | undefined> {
    return this.#manifest && { revision: 1, manifest: this.#manifest };
  }

  at(): Promise<never> {
    return Promise.reject(logRefused('a plan has no records but those that it gives out in order'));
  }

  append(): Promise<never> {
    return Promise.reject(readOnly());
  }

  replaceManifest(): Promise<never> {
    return Promise.reject(readOnly());
  }

  purge(): Promise<never> {
    return Promise.reject(readOnly());
  }

  wake(): () => void {
    return () => undefined;
  }

  async close(): Promise<void> {
    await this.#records?.return?.();
  }
}

const readOnly = (): KvError => logRefused('what is restored is read and never written');
