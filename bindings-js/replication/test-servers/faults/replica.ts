// A device with a database that is kept in step, in a process or in a page. It writes until it is
// told to stop, and tells what it was promised.
import { keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { replicate } from '@mangrove-kv/replication';
import type { SnapshotStore, StrictTransaction, Replication } from '@mangrove-kv/replication';
import { setClock } from './clock.ts';
import { lying } from './lies.ts';
import { Waits } from './waits.ts';
import { openLog, openStore, pause } from './world.ts';
import type { BucketAddress, LogAccess, LogAddress } from './world.ts';

export const DATABASE = 'fleet';
/** Keys that all devices write. */
const SHARED = 8;
/** More than a record takes, so that it is an object of its own. */
const LARGE = 300_000;
/** Bytes of a hash at its start. */
const HASH = 32;
/** Stands for a large value that nobody has written. */
export const DAMAGED = 'damaged';
const EXPIRY = 3_600_000;
const LULL = 4000;
const LULL_EVERY = 10_000;
/** Failures of strict transactions and compactions among others that write, and while tokens expire. */
const TRANSACTION_FAILURES: ReadonlySet<string> = new Set(['KV_CONFLICT', 'KV_CLOSED', 'KV_LOG_REFUSED']);
const COMPACTION_FAILURES: ReadonlySet<string> = new Set([
  'KV_LOG_UNAVAILABLE',
  'KV_LOG_CONFLICT',
  'KV_CLOSED',
  'KV_LOG_REFUSED',
  'KV_SNAPSHOT_LOST',
]);
/** Where replication has its state. */
const STATE = 'mangrove:replication';
const STATE_CODECS = { key: keyCodecs.string, value: valueCodecs.json<State>() };

/** What a device does wrong, for a control: a harness has to find it. */
export const MISTAKES = ['lost', 'undead', 'stale', 'uncounted', 'entry', 'digest', 'large'] as const;
export type Mistake = (typeof MISTAKES)[number];

/** What a device tells the harness. An entry is promised from `wrote` on until `removing`, and has to be gone from `removed` on. */
export type Told =
  | { readonly type: 'wrote' | 'removing' | 'removed'; readonly key: string }
  /** The entry will have expired at this time, by a right clock. */
  | { readonly type: 'expiring'; readonly key: string; readonly at: number }
  /** A strict transaction: what it counted to, and what was counted before it began. */
  | { readonly type: 'counted'; readonly id: string; readonly value: number; readonly before: number }
  /** A strict transaction that only read. */
  | { readonly type: 'read'; readonly value: number; readonly before: number }
  | { readonly type: 'compacted' | 'loading' }
  | { readonly type: 'uncompacted'; readonly code: string; readonly message: string }
  | { readonly type: 'diverged'; readonly collection: string; readonly entries: number }
  | { readonly type: 'error'; readonly code: string; readonly message: string }
  | { readonly type: 'repair'; readonly records: number };

export interface ReplicaOptions {
  /** Of the device. */
  readonly name: string;
  /** Of the database's files. */
  readonly path: string;
  /** Of this start: keys contain it, so that no two are the same. */
  readonly life: string;
  readonly log: LogAddress;
  readonly store: BucketAddress;
  /** Bytes of the key with which records are sealed; the servers lie then. */
  readonly seal: readonly number[] | undefined;
  /** Whether strict transactions run, too. */
  readonly isStrict: boolean;
  /** Milliseconds by which the device's clock is wrong. */
  readonly clock: number;
  readonly mistake: Mistake | undefined;
}

export interface Surroundings extends LogAccess {
  readonly tell: (told: Told) => Promise<void>;
  /** The greatest number that some strict transaction is known to have counted to. */
  readonly counted: () => Promise<number>;
}

interface State {
  readonly digests: { readonly [collection: string]: readonly [count: number, sum: number] };
  readonly serial: number;
}

type Entry = readonly [key: string, value: unknown];

/** What a device has. Large values are in it as whether they are what was written. */
export interface Content {
  readonly notes: readonly Entry[];
  readonly counted: readonly Entry[];
}

const codeOf = (error: unknown): string => (error as { readonly code?: string }).code ?? String(error);

/** By a right clock. */
const now = (): number => performance.timeOrigin + performance.now();

/** From time to time nobody writes: compactions need that. How long this lasts, in milliseconds; not positive: it is not now. */
const lull = (): number => LULL - (now() % LULL_EVERY);

const sha256 = async (bytes: Uint8Array): Promise<Uint8Array> =>
  new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as BufferSource));
const toHex = (bytes: Uint8Array): string => [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');

/** A value that does not compress, begins with a hash of its rest, and has its key behind that. */
async function largeOf(key: string): Promise<Uint8Array> {
  const value = new Uint8Array(LARGE);
  for (let at = 0; at < LARGE; at += 65_536) crypto.getRandomValues(value.subarray(at, at + 65_536));
  value.set(new TextEncoder().encode(key), HASH);
  value.set(await sha256(value.subarray(HASH)));
  return value;
}

/** Its hash, if it is what was written under that key. */
async function shown([key, value]: Entry): Promise<Entry> {
  if (!(value instanceof Uint8Array)) return [key, value];
  const [hash, name] = [toHex(await sha256(value.subarray(HASH))), new TextEncoder().encode(key)];
  const isIntact =
    value.length === LARGE &&
    hash === toHex(value.subarray(0, HASH)) &&
    name.every((byte, at) => byte === value[HASH + at]);
  return [key, isIntact ? hash : DAMAGED];
}

/** A store that tells of snapshots that are being loaded. */
function told(store: SnapshotStore, tell: Surroundings['tell']): SnapshotStore {
  return {
    put: (...args) => store.put(...args),
    get: async (key, signal) => {
      const found = await store.get(key, signal);
      if (found !== undefined && key.startsWith('snapshot/')) void tell({ type: 'loading' });
      return found;
    },
    list: (prefix) => store.list(prefix),
    delete: (key) => store.delete(key),
  };
}

export class Replica {
  readonly #db: Database;
  readonly #replication: Replication;
  readonly #options: ReplicaOptions;
  readonly #surroundings: Surroundings;
  readonly #stop = new AbortController();
  readonly #waits = new Waits();
  #writing: Promise<unknown> | undefined;

  private constructor(db: Database, replication: Replication, options: ReplicaOptions, surroundings: Surroundings) {
    this.#db = db;
    this.#replication = replication;
    this.#options = options;
    this.#surroundings = surroundings;
  }

  static async start(options: ReplicaOptions, surroundings: Surroundings): Promise<Replica> {
    setClock(options.clock);
    const { name, path, log: address, store, seal } = options;
    const { tell } = surroundings;
    const db = await open(path, { feed: true });
    const log = openLog(address, DATABASE, name, surroundings);
    const key =
      seal && (await crypto.subtle.importKey('raw', Uint8Array.from(seal), 'AES-GCM', false, ['encrypt', 'decrypt']));
    const replication = await replicate(db, {
      log: key === undefined ? log : lying(log),
      snapshots: told(openStore(store), tell),
      collections: { notes: {}, counted: { mode: 'strict' } },
      seal: key && { key, database: DATABASE },
    });
    replication.addEventListener(
      'error',
      ({ error }) => void tell({ type: 'error', code: error.code, message: error.message }),
    );
    replication.addEventListener('repair', ({ records }) => void tell({ type: 'repair', records }));
    replication.addEventListener(
      'diverged',
      ({ collection, entries }) => void tell({ type: 'diverged', collection, entries }),
    );
    return new Replica(db, replication, options, surroundings);
  }

  /** Writes until `halt`. */
  write(): void {
    const { isStrict } = this.#options;
    this.#writing = Promise.all([this.#merge(), this.#compact(), ...(isStrict ? [this.#count(), this.#read()] : [])]);
    this.#writing.catch(
      (error: unknown) =>
        void this.#surroundings.tell({
          type: 'error',
          code: codeOf(error),
          message: `writing: ${error instanceof Error ? error.stack : String(error)}`,
        }),
    );
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
        return await this.#waits.for('flush', this.#replication.flush());
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

  async content(): Promise<Content> {
    const [notes, counted] = await Promise.all(
      ['notes', 'counted'].map((name) => this.#db.collection<string, unknown>(name).entries().toArray()),
    );
    return { notes: await Promise.all((notes as Entry[]).map(shown)), counted: counted as Entry[] };
  }

  /** A hash of all entries. */
  async digest(): Promise<string> {
    return toHex(await sha256(new TextEncoder().encode(JSON.stringify(await this.content()))));
  }

  /** What replication itself says of its base. */
  async base(): Promise<string> {
    const state = await this.#db.collection(STATE, STATE_CODECS).get('state');
    return JSON.stringify(Object.entries(state?.digests ?? {}).sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Of replication, and what this waits for. */
  state(): string {
    const { status, pending, position, lastError } = this.#replication.state;
    return `${status}, ${pending} pending, at ${position}, ${lastError?.message ?? 'no error'}, waits for ${this.#waits}`;
  }

  async problems(): Promise<number> {
    return (await this.#db.verify()).problems.length;
  }

  /** Makes a mistake of replication, as if it had applied a record wrongly. */
  async spoil(): Promise<void> {
    const { mistake } = this.#options;
    if (mistake !== 'entry' && mistake !== 'digest' && mistake !== 'large') return;
    await this.#db.transaction(async (tx) => {
      const notes = tx.collection<string, unknown>('notes');
      const states = tx.collection(this.#db.collection(STATE, STATE_CODECS));
      const state = (await states.get('state')) as State;
      if (mistake === 'entry') await notes.set('shared/1', 'of nobody');
      if (mistake === 'large') {
        const [key] = await notes.keys({ gte: 'large/', limit: 1 }).toArray();
        if (key !== undefined) await notes.set(key, new Uint8Array(LARGE));
      }
      const [count, sum] = state.digests['notes'] ?? [0, 0];
      const digests = mistake === 'digest' ? { ...state.digests, notes: [count, sum + 1] as const } : state.digests;
      // Commits that write it are not the application's.
      await states.set('state', { ...state, digests, serial: state.serial + 1 });
    });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#waits.for('close of replication', this.#replication.close());
    await this.#writing?.catch(() => undefined);
    await this.#waits.for('close of the database', this.#db.close());
  }

  async #merge(): Promise<void> {
    const { name, life, seal, mistake } = this.#options;
    const { tell } = this.#surroundings;
    const notes = this.#db.collection<string, unknown>('notes');
    const own: string[] = [];
    const remove = async (keys: readonly string[], work: () => Promise<unknown>): Promise<void> => {
      // Told before, as they may be removed when this ends.
      for (const key of keys) await tell({ type: 'removing', key });
      await work();
      for (const key of keys) await tell({ type: 'removed', key });
    };
    for (let nth = 0; !this.#stop.signal.aborted; nth++) {
      const key = `${life}/${nth}`;
      if (nth % 4 === 3) {
        await notes.set(`shared/${Math.floor(Math.random() * SHARED)}`, key);
      } else if (nth % 16 === 14) {
        const [removed = key] = own.splice(Math.floor(Math.random() * own.length), 1);
        await remove([removed], async () => mistake !== 'undead' && notes.delete(removed));
      } else if (nth % 64 === 45) {
        const keys = ['a', 'b', 'c'].map((letter) => `range/${key}/${letter}`);
        await notes.setMany(keys.map((each) => [each, name] as const));
        await pause(Math.random() * 500);
        await remove(keys, () => notes.clear({ gte: `range/${key}/`, lt: `range/${key}0` }));
      } else if (nth % 32 === 17) {
        const at = now() + 3000 + Math.random() * 10_000;
        await notes.set(key, name, { expireAt: at });
        await tell({ type: 'expiring', key, at });
      } else if (nth % 32 === 9) {
        // With a clock that is ahead this would be over already, as where servers lie about the time and a writer's clock is ahead.
        const at = now() + EXPIRY;
        if (seal !== undefined || Date.now() > at - EXPIRY / 2) continue;
        await notes.set(key, name, { expireAt: at });
        await tell({ type: 'wrote', key });
      } else if (nth % 32 === 5) {
        const pair = [`${key}/a`, `${key}/b`] as const;
        await this.#db.transaction(async (tx) => {
          for (const each of pair) await tx.collection<string, unknown>('notes').set(each, name);
        });
        for (const each of pair) await tell({ type: 'wrote', key: each });
      } else if (nth % 128 === 25) {
        await notes.set(`large/${key}`, await largeOf(`large/${key}`));
        await tell({ type: 'wrote', key: `large/${key}` });
      } else {
        if (mistake !== 'lost' || nth % 64 !== 0) await notes.set(key, name);
        await tell({ type: 'wrote', key });
        own.push(key);
      }
      await this.#rest(50 + Math.random() * 200);
    }
  }

  /** Adds 1 to a number that all devices share, and notes to what. */
  async #count(): Promise<void> {
    const { tell, counted: count } = this.#surroundings;
    for (let nth = 0; !this.#stop.signal.aborted; nth++) {
      const id = `${this.#options.life}/${nth}`;
      const before = await count();
      const value = await this.#strict(async (tx) => {
        const counted = tx.collection<string, number>('counted');
        const next = ((await counted.get('sum')) ?? 0) + 1;
        await counted.set('sum', next);
        await counted.set(id, next);
        return next;
      });
      const shift = this.#options.mistake === 'uncounted' && nth === 1 ? 1 : 0;
      if (value !== undefined) await tell({ type: 'counted', id, value: value + shift, before });
      await this.#rest(500 + Math.random() * 1500);
    }
  }

  /** Reads the number: what was counted before must be in it. */
  async #read(): Promise<void> {
    const { tell, counted: count } = this.#surroundings;
    while (!this.#stop.signal.aborted) {
      const before = await count();
      const value =
        this.#options.mistake === 'stale'
          ? ((await this.#db.collection<string, number>('counted').get('sum')) ?? 0)
          : await this.#strict(async (tx) => (await tx.collection<string, number>('counted').get('sum')) ?? 0);
      if (value !== undefined) await tell({ type: 'read', value, before });
      await this.#rest(300 + Math.random() * 2000);
    }
  }

  /** Undefined: others wrote all the time, a token expired, or this closes, and then it may have had its effect. */
  async #strict(run: (tx: StrictTransaction) => Promise<number>): Promise<number | undefined> {
    try {
      return await this.#waits.for('transaction', this.#replication.transaction(run));
    } catch (error) {
      if (!TRANSACTION_FAILURES.has(codeOf(error))) throw error;
      return undefined;
    }
  }

  /** Compacts in each lull, unless this began in it. */
  async #compact(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await pause(Math.max(0, LULL_EVERY - LULL + lull()) + 300 + Math.random() * 2000);
      if (this.#stop.signal.aborted) return;
      try {
        const made = await this.#waits.for('compaction', this.#replication.compact({ signal: this.#stop.signal }));
        if (made !== undefined) await this.#surroundings.tell({ type: 'compacted' });
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        if (!COMPACTION_FAILURES.has(codeOf(error))) throw error;
        await this.#surroundings.tell({ type: 'uncompacted', code: codeOf(error), message: String(error) });
      }
    }
  }

  /** Between two writes. */
  async #rest(milliseconds: number): Promise<void> {
    await pause(milliseconds);
    while (lull() > 0 && !this.#stop.signal.aborted) await pause(Math.min(lull(), 200));
  }
}
