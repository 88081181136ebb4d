// Chains of lives: a database dies within merges, again and again, with the process or by a power
// cut, between commits or at any operation of the storage, which is full now and then. Each image is
// compared with a model. MANGROVE_LIVES is the number of lives, MANGROVE_LIVES_SEED the first seed.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { test } from 'node:test';
import type { Database } from 'mangrove-kv';
import { Disk } from '../faults/disk.ts';
import type { Cut, Fault, Image } from '../faults/disk.ts';
import { open, plainly, withKey } from '../faults/life.ts';
import type { Engine } from '../faults/life.ts';
import { Random } from '../tabs/random.ts';
import { apply, commitOf, differenceAt, make, read } from './workload.mjs';
import type { Commit, State } from './workload.mjs';

const moduleOf = (name: string): WebAssembly.Module =>
  new WebAssembly.Module(readFileSync(new URL(`../../dist/${name}_bg.wasm`, import.meta.url)));
const engines = [plainly(moduleOf('mangrove')), withKey(moduleOf('mangrove'))] as const;
const lives = Number(process.env['MANGROVE_LIVES'] ?? 24);
const firstSeed = Number(process.env['MANGROVE_LIVES_SEED'] ?? 1);

const TICK_MS = 1000;
/** Within the range of dates, and ahead of the clock of the machine. */
const EPOCH_MS = 4_000_000_000_000;
const MAX_COMMITS = 250;

interface Counts {
  lives: number;
  images: number;
  commits: number;
  refused: number;
  /** Partial checkpoints and others. */
  checkpoints: number;
  /** Lives that had several checkpoints, and died with changes that were not merged. */
  withinMerges: number;
}

interface Made {
  readonly commit: Commit;
  readonly tick: number;
}

interface Taken {
  readonly image: Image;
  readonly how: Cut;
  /** How many of the recent commits it must have. */
  readonly least: number;
}

class Chain {
  readonly #seed: number;
  readonly #engine: Engine;
  readonly #random: Random;
  readonly #counts: Counts;
  /** The newest commit that was tried, and the clock. No death sets it back. */
  #tick = -1;
  #isMaking = false;
  /** What every image has. */
  #durable: State = new Map();
  /** Commits acknowledged since, oldest first, of which a power cut may take the last ones away. */
  #recent: Made[] = [];
  /** How many of them are durable. */
  #settled = 0;
  /** Failed with `KV_IO`, after which it writes no more: these may be there. */
  #doubtful: Made[] = [];
  #writes = true;
  #taken: Taken[] = [];

  constructor(seed: number, counts: Counts) {
    this.#seed = seed;
    this.#engine = engines[seed % 4 === 3 ? 1 : 0];
    this.#random = new Random(seed);
    this.#counts = counts;
  }

  /** What the engine's clock shows: between commits never the moment at which something expires. */
  get now(): number {
    return EPOCH_MS + this.#tick * TICK_MS + (this.#isMaking ? 0 : TICK_MS / 2);
  }

  async run(count: number): Promise<void> {
    let image: Image = new Map();
    for (let life = 0; life < count; life++) {
      const disk = new Disk(this.#random, image, this.#random.chance(0.3) ? 16_384 : 0);
      const db = this.#open(disk);
      if (this.#random.chance(0.3)) this.#compare(await read(db), 'as it was opened', 0);
      const end = await this.#live(db, disk);
      image = new Map([...end.image].map(([name, bytes]) => [name, bytes.slice()]));
      this.#durable = await this.#check(end);
      this.#recent = [];
      this.#settled = 0;
      await db.close().catch((error: unknown) => assert.ok(!this.#writes, String(error)));
      this.#doubtful = [];
      this.#writes = true;
      this.#counts.lives++;
    }
  }

  #open(disk: Disk): Database<number, Uint8Array> {
    return open(this.#engine, disk, this.#random.chance(0.5)) as unknown as Database<number, Uint8Array>;
  }

  /** Makes commits up to some after its last checkpoint; returns what is left when it dies. */
  async #live(db: Database<number, Uint8Array>, disk: Disk): Promise<Taken> {
    const target = 2 + this.#random.below(6);
    let [commits, left, checkpoints, dirtySize] = [0, 1 + this.#random.below(40), 0, 0];
    for (; commits < MAX_COMMITS && left > 0 && this.#writes; commits++) {
      if (this.#random.chance(0.02)) disk.faults.push(this.#full());
      disk.onOperation = () => {
        if (this.#random.chance(0.0005)) this.#taken.push(this.#cut(disk));
      };
      await this.#commit(db, disk);
      ({ checkpoints, dirtySize } = await db.stats());
      if (checkpoints >= target) left--;
    }
    this.#counts.commits += commits;
    this.#counts.checkpoints += checkpoints;
    if (checkpoints > 1 && dirtySize > 0) this.#counts.withinMerges++;
    disk.faults.length = 0;
    if (!this.#writes) return this.#cut(disk);
    if (this.#random.chance(0.1)) {
      await db.close();
      return { image: disk.cut('none'), how: 'none', least: this.#recent.length };
    }
    let end: Taken | undefined;
    if (this.#random.chance(0.5)) {
      let operations = this.#random.below(12);
      disk.onOperation = () => {
        if (operations-- === 0) end = this.#cut(disk);
      };
      await this.#commit(db, disk, false);
    }
    return end ?? this.#cut(disk);
  }

  #full(): Fault {
    return {
      operation: 'write',
      file: this.#random.pick(['data', 'log', undefined] as const),
      code: 'ENOSPC',
      after: this.#random.below(20),
      times: 1 + this.#random.below(4),
      keeps: this.#random.pick([0, 0.5, 1]),
    };
  }

  #cut(disk: Disk): Taken {
    const how = this.#random.pick(['all', 'all', 'none', 'first', 'any'] as const);
    return { image: disk.cut(how), how, least: how === 'all' ? this.#recent.length : this.#settled };
  }

  async #commit(db: Database<number, Uint8Array>, disk: Disk, forgets = true): Promise<void> {
    this.#tick++;
    const made = { commit: commitOf(this.#seed, this.#tick), tick: this.#tick };
    this.#isMaking = true;
    try {
      await make(db, made.commit, TICK_MS);
      this.#recent.push(made);
    } catch (error) {
      const { code } = error as { code?: unknown };
      assert.ok(
        disk.failed > 0 && (code === 'KV_QUOTA_EXCEEDED' || code === 'KV_IO'),
        `${made.commit.kind}: ${String(error)}`,
      );
      if (code === 'KV_IO') {
        this.#writes = false;
        this.#doubtful.push(made);
      }
      this.#counts.refused++;
    }
    this.#isMaking = false;
    disk.onOperation = undefined;
    for (const taken of this.#taken.splice(0)) await this.#check(taken);
    // What changes nothing makes nothing durable.
    if (this.#recent.at(-1) === made && made.commit.kind === 'set' && made.commit.isRelaxed !== true)
      this.#settled = this.#recent.length;
    if (!forgets) return;
    for (const { commit, tick } of this.#recent.splice(0, this.#settled)) apply(this.#durable, commit, tick);
    this.#settled = 0;
  }

  /** Opens an image, and compares it with the model; returns its state. */
  async #check({ image, how, least }: Taken): Promise<State> {
    const db = this.#open(new Disk(this.#random, image));
    const state = this.#compare(await read(db), `cut ${how}`, least);
    assert.deepEqual((await db.verify()).problems, []);
    await db.close();
    this.#counts.images++;
    return state;
  }

  #compare(found: Map<string, Uint8Array>, what: string, least: number): State {
    const differences: string[] = [];
    for (const made of this.#possible(least)) {
      const state: State = new Map(this.#durable);
      for (const { commit, tick } of made) apply(state, commit, tick);
      const difference = differenceAt(found, state, this.#tick);
      if (difference === undefined) return state;
      differences.push(difference);
    }
    assert.fail(`${what}, commit ${this.#tick}: ${differences.join('; ')}`);
  }

  /** Which commits an image may have beyond what is durable. */
  *#possible(least: number): Generator<Made[]> {
    for (let count = least; count <= this.#recent.length; count++) yield this.#recent.slice(0, count);
    for (let from = 0; from < this.#doubtful.length; from++) {
      for (let to = from + 1; to <= this.#doubtful.length; to++)
        yield [...this.#recent, ...this.#doubtful.slice(from, to)];
    }
  }
}

test(`chains of lives that die within merges, ${lives} lives`, async (context) => {
  const counts: Counts = { lives: 0, images: 0, commits: 0, refused: 0, checkpoints: 0, withinMerges: 0 };
  const realNow = Date.now;
  try {
    for (let seed = firstSeed; counts.lives < lives; seed++) {
      const chain = new Chain(seed, counts);
      Date.now = () => chain.now;
      try {
        await chain.run(Math.min(3 + (seed % 8), lives - counts.lives));
      } catch (error) {
        throw new Error(`MANGROVE_LIVES_SEED=${seed}: ${String(error)}`, { cause: error });
      }
    }
  } finally {
    Date.now = realNow;
  }
  context.diagnostic(JSON.stringify(counts));
  assert.ok(
    counts.checkpoints > 2 * counts.lives && counts.withinMerges * 2 > counts.lives,
    `merges were under way: ${JSON.stringify(counts)}`,
  );
});
