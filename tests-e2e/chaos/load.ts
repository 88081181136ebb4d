// What one page or process of a chaos run does to the database. It checks what it can judge by itself,
// and reports each write before and after the call.
import type { Commit, Database, Durability, KvIterator } from 'mangrove-kv';
import { COUNTERS, PARTS } from './messages.ts';
import type { Floors, Kind, Outcome, Report } from './messages.ts';
import { Random } from './random.ts';

/** A call in flight for this long, counting only time in which the page ran, is taken to hang. */
const LIMIT_MS = 60_000;
const TICK_MS = 250;
const STRENGTHS: readonly Durability[] = ['strict', 'relaxed'];

class Wrong extends Error {}

export interface Failure {
  readonly code?: string;
  readonly retryable?: boolean;
  readonly message?: string;
}

/** With these codes nothing was done, unless the message says otherwise. */
const UNDONE = new Set(['KV_CONFLICT', 'KV_CLOSED', 'KV_SNAPSHOT_LOST']);

function outcomeOf({ code, retryable, message }: Failure): Outcome {
  if (message?.includes('may or may not have taken effect')) return 'maybe';
  if (retryable === true || UNDONE.has(code ?? '')) return 'undone';
  return 'maybe';
}

export interface LoadOptions {
  readonly name: string;
  readonly seed: number;
  readonly lanes: number;
  database(): Database;
  report(report: Report): Promise<Floors>;
}

export class Load {
  readonly #load: string;
  readonly #random: Random;
  readonly #lanes: number;
  readonly #db: () => Database;
  readonly #report: (report: Report) => Promise<Floors>;
  #n = 0;
  #round = 0;
  #isOn = false;
  #running: Promise<unknown>[] = [];
  /** For how many milliseconds this page ran. */
  #awake = 0;
  /** The last value read since `start`, by counter. */
  #seen: number[] = [];
  /** Appends of this load in this round, by number: true if acknowledged, false if refused. */
  #appended = new Map<number, boolean>();

  constructor({ name, seed, lanes, database, report }: LoadOptions) {
    this.#load = name;
    this.#random = new Random(seed);
    this.#lanes = lanes;
    this.#db = database;
    this.#report = report;
    let last = performance.now();
    setInterval(() => {
      const now = performance.now();
      this.#awake += Math.min(now - last, 2 * TICK_MS);
      last = now;
    }, TICK_MS);
  }

  start(round: number): void {
    this.#round = round;
    this.#isOn = true;
    this.#seen = [];
    this.#appended.clear();
    const lanes: (() => Promise<void>)[] = Array.from({ length: this.#lanes }, () => () => this.#write());
    lanes.push(
      () => this.#put(),
      () => this.#readCounters(),
      () => this.#readAppended(),
      () => this.#readSnapshot(),
      () => this.#watch(),
    );
    this.#running = lanes.map((lane) => this.#loop(lane));
  }

  async stop(): Promise<void> {
    this.#isOn = false;
    await Promise.all(this.#running);
  }

  async #loop(lane: () => Promise<void>): Promise<void> {
    while (this.#isOn) {
      try {
        await lane();
      } catch (error) {
        if (error instanceof Wrong) this.#wrong(error.message);
        else this.note('read', error as Failure);
        await this.#pause(50);
      }
      await this.#pause(this.#random.below(12));
    }
  }

  async #write(): Promise<void> {
    const durability = this.#random.of(STRENGTHS);
    switch (this.#random.of(['append', 'append', 'update', 'insert', 'remove'] as const)) {
      case 'append':
        return this.#append(durability);
      case 'update': {
        const counter = this.#random.below(COUNTERS);
        const key = [this.#round, 'update', counter];
        const add = async (old: unknown): Promise<number> => {
          if (this.#random.below(4) === 0) await this.#pause(this.#random.below(8));
          return ((old as number | undefined) ?? 0) + 1;
        };
        await this.#reported(
          'update',
          counter,
          durability,
          () => this.#db().update(key, add, { durability }) as Promise<number>,
        );
        return;
      }
      case 'insert':
        return this.#insert(durability);
      case 'remove':
        return this.#remove(durability);
    }
  }

  /** Writes a counter and an entry with its new value: both or neither, and no value twice. */
  async #append(durability: Durability): Promise<void> {
    const counter = this.#random.below(COUNTERS);
    const { n } = await this.#reported(
      'append',
      counter,
      durability,
      (n) =>
        this.#db().transaction(
          async (tx) => {
            const [at, own] = [
              [this.#round, 'count', counter],
              [this.#round, 'append', this.#load, n],
            ];
            if (await tx.has(own)) throw new Wrong(`append ${n} is there before it is made`);
            const next = (((await tx.get(at)) as number | undefined) ?? 0) + 1;
            if (this.#random.below(3) === 0) await this.#pause(this.#random.below(25));
            void tx.set(at, next);
            void tx.set(own, [counter, next]);
            return next;
          },
          { durability },
        ),
      (n, outcome) => {
        if (outcome !== 'maybe') this.#appended.set(n, outcome === 'done');
      },
    );
    void n;
  }

  /** No other tab writes these keys: the check fails only if the batch is applied twice. */
  async #insert(durability: Durability): Promise<void> {
    await this.#reported('insert', 0, durability, async (n) => {
      const batch = this.#db().batch();
      const key = (part: number): (string | number)[] => [this.#round, 'insert', this.#load, n, part];
      batch.check(key(0), null);
      for (let part = 0; part < PARTS; part++) batch.set(key(part), n);
      const result = await batch.tryCommit({ durability });
      if (result.ok) return n;
      if (result.reason === 'conflict') throw new Wrong(`insert ${n} was applied before`);
      throw result.error;
    });
  }

  /** Checks that `delete` found the entry, which it does unless the removal is applied twice. */
  async #remove(durability: Durability): Promise<void> {
    const put = await this.#reported('restore', 0, durability, async (n) => {
      await this.#db().set([this.#round, 'remove', this.#load, n], n, { durability });
      return n;
    });
    if (put.outcome !== 'done' || this.#random.below(8) === 0) return;
    await this.#reported('remove', put.n, durability, async () => {
      const was = await this.#db().delete([this.#round, 'remove', this.#load, put.n], { durability });
      if (!was) throw new Wrong(`the entry ${put.n} was gone before it was removed`);
      return put.n;
    });
  }

  /** Writes one key sequentially: each read returns the last write. */
  async #put(): Promise<void> {
    const key = [this.#round, 'put', this.#load];
    const durability = this.#random.of(STRENGTHS);
    const { n, outcome } = await this.#reported('put', 0, durability, async (n) => {
      await this.#db().set(key, n, { durability });
      return n;
    });
    if (outcome !== 'done') return;
    const found = await this.timed('get', this.#db().get(key));
    if (found !== n) throw new Wrong(`${String(found)} was read where ${n} was put and acknowledged`);
  }

  /** Counters never go back, nor behind a value that any tab was told. */
  async #readCounters(): Promise<void> {
    const floors = await this.#report({ type: 'seen', what: 'floors', code: '' });
    const round = this.#round;
    const keys = floors.map((_, counter) => [round, 'count', counter]);
    const values = await this.timed('getMany', this.#db().getMany(keys));
    for (const [counter, value] of values.entries()) {
      const read = (value as number | undefined) ?? 0;
      const least = Math.max(floors[counter] ?? 0, this.#seen[counter] ?? 0);
      if (read < least) throw new Wrong(`counter ${counter} is ${read} after it was ${least}`);
      this.#seen[counter] = read;
    }
    await this.#pause(20);
  }

  async #readAppended(): Promise<void> {
    const known = [...this.#appended];
    const keys = this.#db().keys({ prefix: [this.#round, 'append', this.#load] }) as unknown as KvIterator<
      readonly unknown[]
    >;
    const found = new Set<unknown>();
    for await (const [, , , n] of { [Symbol.asyncIterator]: () => keys }) found.add(n);
    for (const [n, isDone] of known) {
      if (found.has(n) !== isDone)
        throw new Wrong(`append ${n} was ${isDone ? '' : 'not '}done, and is ${isDone ? 'not ' : ''}there`);
    }
    await this.#pause(200 + this.#random.below(300));
  }

  /** A snapshot never changes and contains whole transactions only. */
  async #readSnapshot(): Promise<void> {
    const snapshot = this.#db().snapshot();
    try {
      const look = async (): Promise<string> => {
        const counters = await this.timed('snapshot', snapshot.entries({ prefix: [this.#round, 'count'] }).toArray());
        const count = await this.timed('snapshot', snapshot.count({ prefix: [this.#round, 'append'] }));
        const sum = counters.reduce((all, [, value]) => all + (value as number), 0);
        if (sum !== count) throw new Wrong(`a snapshot has counters of ${sum} and ${count} appends`);
        return JSON.stringify(counters);
      };
      const before = await look();
      await this.#pause(this.#random.below(400));
      const after = await look();
      if (before !== after) throw new Wrong(`a snapshot changed from ${before} to ${after}`);
    } finally {
      snapshot.close().catch(() => undefined);
    }
    await this.#pause(200);
  }

  /** Each commit increments a counter by one, so a missing or repeated commit is detected. */
  async #watch(): Promise<void> {
    const round = this.#round;
    const stop = new AbortController();
    const timer = setInterval(() => {
      if (!this.#isOn) stop.abort();
    }, 50);
    const values: number[] = [];
    try {
      for await (const commit of this.#db().watch({
        prefix: [round, 'count'],
        signal: stop.signal,
      }) as AsyncIterable<Commit>) {
        for (const change of commit.changes) {
          if (change.type !== 'set') throw new Wrong(`a watch saw ${change.type}`);
          const counter = (change.key as [number, string, number])[2];
          const [value, before] = [change.value as number, values[counter]];
          if (before !== undefined && value !== before + 1) throw new Wrong(`a watch saw ${value} after ${before}`);
          values[counter] = value;
        }
      }
      // The database was closed.
    } catch (error) {
      if (!stop.signal.aborted) throw error;
    } finally {
      clearInterval(timer);
    }
  }

  /** Reports an operation before calling it, so the ledger knows everything that can be found. */
  async #reported(
    kind: Kind,
    counter: number,
    durability: Durability,
    call: (n: number) => Promise<number>,
    settle: (n: number, outcome: Outcome) => void = () => {},
  ): Promise<{ n: number; outcome: Outcome }> {
    const n = ++this.#n;
    const [load, round] = [this.#load, this.#round];
    await this.#report({ type: 'start', load, round, n, kind, counter, durability });
    const since = performance.now();
    let [outcome, code, value]: [Outcome, string, number] = ['done', '', 0];
    try {
      value = await this.timed(kind, call(n));
    } catch (error) {
      if (error instanceof Wrong) throw error;
      const failure = error as Failure;
      outcome = outcomeOf(failure);
      code = codeOf(failure);
    }
    settle(n, outcome);
    void this.#report({
      type: 'end',
      load,
      round,
      n,
      outcome,
      code,
      value,
      ms: performance.now() - since,
      at: Date.now(),
    });
    if (outcome !== 'done') await this.#pause(50);
    return { n, outcome };
  }

  /** Fails the run if a call takes too long, counting only time in which the page ran. */
  async timed<T>(what: string, call: Promise<T>): Promise<T> {
    const since = this.#awake;
    const timer = setInterval(() => {
      if (this.#awake - since < LIMIT_MS) return;
      clearInterval(timer);
      this.#wrong(`${what} is not answered after ${LIMIT_MS} ms`);
    }, 4 * TICK_MS);
    try {
      return await call;
    } finally {
      clearInterval(timer);
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      setTimeout(resolve, ms);
    });
  }

  note(what: string, failure: Failure): void {
    void this.#report({ type: 'seen', what, code: codeOf(failure) });
  }

  #wrong(what: string): void {
    void this.#report({ type: 'wrong', load: this.#load, what });
  }
}

/** Errors other than KvError are reported in full. */
function codeOf(failure: Failure): string {
  if (failure.code === 'KV_IO' && failure.retryable) return `KV_IO, retryable: ${failure.message}`;
  return failure.code?.startsWith?.('KV_')
    ? failure.code
    : Object.keys(failure).length === 0 && !(failure instanceof Error)
      ? ''
      : String(failure);
}
