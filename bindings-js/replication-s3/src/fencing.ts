// One writer at a time, without clocks and leases.
import { KvError } from 'mangrove-kv';
import { logRefused } from '@mangrove-kv/replication';
import type { LoggedRecord, Position, RemoteLog } from '@mangrove-kv/replication';

/** How a writer takes over. */
export interface TakeOverOptions {
  /** Position of the last record that the new writer knows. Default: 0. */
  readonly after?: Position | undefined;
  /** What is appended first. The writer before this one fails from then on. */
  readonly fence: Uint8Array;
  /** Of the fence. */
  readonly idempotencyKey: string;
  /** Called with the records that come before the fence, in order. */
  readonly onRecords?: ((records: readonly LoggedRecord[]) => void | Promise<void>) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A writer that appends only as long as nobody else does. */
export interface FencedWriter {
  /** Position of the last record. */
  readonly position: Position;
  /**
   * Appends. Rejects with `KV_LOG_REFUSED`, then and ever after, if another writer has taken over;
   * with `KV_LOG_UNAVAILABLE`, the same record has to be appended again before another one.
   */
  append(record: Uint8Array, idempotencyKey: string): Promise<Position>;
}

/**
 * Becomes the writer of a log: reads what there is, and appends a fence after it. Repeats both if
 * somebody else appends in between.
 */
export async function takeOver(log: RemoteLog, options: TakeOverOptions): Promise<FencedWriter> {
  const { after = 0, fence, idempotencyKey, onRecords, signal } = options;
  for (let position = after; ; ) {
    for (
      let records = await log.read(position, 500, signal);
      records.length > 0;
      records = await log.read(position, 500, signal)
    ) {
      await onRecords?.(records);
      position = (records.at(-1) as LoggedRecord).position;
    }
    try {
      return new Writer(log, await log.append(fence, { idempotencyKey, expect: position, signal }));
    } catch (error) {
      if (!(error instanceof KvError) || error.code !== 'KV_LOG_CONFLICT') throw error;
    }
  }
}

class Writer implements FencedWriter {
  readonly #log: RemoteLog;
  #position: Position;
  #fenced: KvError | undefined;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(log: RemoteLog, position: Position) {
    this.#log = log;
    this.#position = position;
  }

  get position(): Position {
    return this.#position;
  }

  append(record: Uint8Array, idempotencyKey: string): Promise<Position> {
    const appended = this.#tail.then(async () => {
      if (this.#fenced !== undefined) throw this.#fenced;
      try {
        this.#position = await this.#log.append(record, { idempotencyKey, expect: this.#position });
        return this.#position;
      } catch (error) {
        if (error instanceof KvError && error.code === 'KV_LOG_CONFLICT') {
          this.#fenced = logRefused('another writer has taken over this log: stop writing', error);
          throw this.#fenced;
        }
        throw error;
      }
    });
    this.#tail = appended.catch(() => undefined);
    return appended;
  }
}
