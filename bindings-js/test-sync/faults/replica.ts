// A device with a database that is kept in step, in a process or in a page. It writes until it is
// told to stop, and tells what it was promised.
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { syncDatabase } from 'mangrove-kv/sync';
import type { Sync } from 'mangrove-kv/sync';
import { natsLog } from 'mangrove-kv/sync/nats';
import type { NatsCredentials, NatsLogOptions } from 'mangrove-kv/sync/nats';
import { setClock } from './clock.ts';
import { Waits } from './waits.ts';

export const DATABASE = 'fleet';
/** Keys that all devices write. */
const SHARED = 8;

/** What a device tells the harness. An entry is promised from `wrote` on until `removing`. */
export type Told =
  | { readonly type: 'wrote' | 'removing' | 'removed'; readonly key: string }
  | { readonly type: 'counted'; readonly id: string; readonly value: number }
  | { readonly type: 'error'; readonly code: string; readonly message: string }
  | { readonly type: 'repair'; readonly records: number };

export interface ReplicaOptions {
  /** Of the device. */
  readonly name: string;
  /** Of the database's files. */
  readonly path: string;
  /** Of this start: keys contain it, so that no two are the same. */
  readonly life: string;
  readonly servers: readonly string[];
  readonly apiPrefix: string | undefined;
  readonly timeout: number;
  /** Whether strict transactions run, too. */
  readonly isStrict: boolean;
  /** Milliseconds by which the device's clock is wrong. */
  readonly clock: number;
}

export interface Surroundings {
  readonly tell: (told: Told) => Promise<void>;
  readonly credentials?: () => Promise<NatsCredentials>;
  readonly connect?: NatsLogOptions['connect'];
}

type Entry = readonly [unknown, unknown];

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));
const codeOf = (error: unknown): string => (error as { readonly code?: string }).code ?? String(error);

export class Replica {
  readonly #db: Database;
  readonly #sync: Sync;
  readonly #options: ReplicaOptions;
  readonly #tell: Surroundings['tell'];
  readonly #stop = new AbortController();
  readonly #waits = new Waits();
  #writing: Promise<unknown> | undefined;

  private constructor(db: Database, sync: Sync, options: ReplicaOptions, tell: Surroundings['tell']) {
    this.#db = db;
    this.#sync = sync;
    this.#options = options;
    this.#tell = tell;
  }

  static async start(options: ReplicaOptions, { tell, credentials, connect }: Surroundings): Promise<Replica> {
    setClock(options.clock);
    const { name, servers, apiPrefix, timeout } = options;
    const db = await open(options.path, { feed: true });
    const log = natsLog({ servers, database: DATABASE, device: name, apiPrefix, timeout, credentials, connect });
    const sync = await syncDatabase(db, { log, collections: { notes: {}, counted: { mode: 'strict' } } });
    sync.addEventListener('error', ({ error }) => void tell({ type: 'error', code: error.code, message: error.message }));
    sync.addEventListener('repair', ({ records }) => void tell({ type: 'repair', records }));
    return new Replica(db, sync, options, tell);
  }

  /** Writes until `halt`. */
  write(): void {
    this.#writing = Promise.all([this.#merge(), this.#options.isStrict ? this.#count() : undefined]);
    this.#writing.catch((error: unknown) => void this.#tell({ type: 'error', code: codeOf(error), message: `writing: ${error instanceof Error ? error.stack : String(error)}` }));
  }

  /** Ends writing. What waits for the log goes on until it answers. */
  async halt(): Promise<void> {
    this.#stop.abort();
    await this.#writing;
  }

  clock(offset: number): void {
    setClock(offset);
  }

  /** Resolves once all that was written is in the log. */
  async flush(): Promise<void> {
    for (;;) {
      try {
        return await this.#waits.for('flush', this.#sync.flush());
      } catch (error) {
        // A token had expired; the next connection asks for another one.
        if (codeOf(error) !== 'KV_LOG_REFUSED') throw error;
        await pause(100);
      }
    }
  }

  async overwrite(key: string, value: string): Promise<void> {
    await this.#db.collection('notes').set(key, value);
    await this.flush();
  }

  async content(): Promise<{ readonly notes: readonly Entry[]; readonly counted: readonly Entry[] }> {
    const [notes, counted] = await Promise.all(['notes', 'counted'].map((name) => this.#db.collection(name).entries().toArray()));
    return { notes: notes as Entry[], counted: counted as Entry[] };
  }

  async digest(): Promise<string> {
    const bytes = new TextEncoder().encode(JSON.stringify(await this.content()));
    return [...new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  }

  /** Of sync, and what this waits for. */
  state(): string {
    const { status, pending, position, lastError } = this.#sync.state;
    return `${status}, ${pending} pending, at ${position}, ${lastError?.message ?? 'no error'}, waits for ${this.#waits}`;
  }

  async problems(): Promise<number> {
    return (await this.#db.verify()).problems.length;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#waits.for('close of sync', this.#sync.close());
    await this.#writing?.catch(() => undefined);
    await this.#waits.for('close of the database', this.#db.close());
  }

  async #merge(): Promise<void> {
    const { name, life } = this.#options;
    const notes = this.#db.collection<string, string>('notes');
    const own: string[] = [];
    for (let nth = 0; !this.#stop.signal.aborted; nth++) {
      const key = `${life}/${nth}`;
      if (nth % 4 === 3) {
        await notes.set(`shared/${Math.floor(Math.random() * SHARED)}`, key);
      } else if (nth % 16 === 14) {
        const [removed = key] = own.splice(Math.floor(Math.random() * own.length), 1);
        // Told before, as it may be removed when this ends.
        await this.#tell({ type: 'removing', key: removed });
        await notes.delete(removed);
        await this.#tell({ type: 'removed', key: removed });
      } else {
        await notes.set(key, name);
        await this.#tell({ type: 'wrote', key });
        own.push(key);
      }
      await pause(50 + Math.random() * 200);
    }
  }

  /** Adds 1 to a number that all devices share, and notes to what. */
  async #count(): Promise<void> {
    for (let nth = 0; !this.#stop.signal.aborted; nth++) {
      const id = `${this.#options.life}/${nth}`;
      try {
        const value = await this.#waits.for('transaction', this.#sync.transaction(async (tx) => {
          const counted = tx.collection<string, number>('counted');
          const next = (await counted.get('sum') ?? 0) + 1;
          await counted.set('sum', next);
          await counted.set(id, next);
          return next;
        }));
        await this.#tell({ type: 'counted', id, value });
      } catch (error) {
        // Others write all the time, tokens expire; and it may have had its effect when this closes.
        if (!['KV_CONFLICT', 'KV_CLOSED', 'KV_LOG_REFUSED'].includes(codeOf(error))) throw error;
      }
      await pause(500 + Math.random() * 1500);
    }
  }
}
