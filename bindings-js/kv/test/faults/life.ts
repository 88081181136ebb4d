// The life of a database, from its opening to its end, on a failing disk: each answer is compared
// with a model, and so is what any cut would leave.
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import { Connection } from '../../src/wire/connection.ts';
import { KvDatabase } from '../../src/api/database.ts';
import { syncFaces } from '../../src/api/synchronous.ts';
import { InThreadTransport } from '../../src/engine/in-thread-transport.ts';
import { toSecretSync, withSecret } from '../../src/api/encryption.ts';
import { checkOptions } from '../../src/api/options.ts';
import type { EngineOptions } from '../../src/wire/contracts.ts';
import { KvError } from '../../src/base/errors.ts';
import type { Database } from '../../src/types/index.ts';
import type { Random } from '../tabs/random.ts';
import { lonelyCall, orderedCall, shortTextOf, stateOf, textOf } from './calls.ts';
import type { Call, State } from './calls.ts';
import { Disk } from './disk.ts';
import type { Cut, Fault, Image } from './disk.ts';

/** Small enough that a few calls fill the nodes. */
const OPTIONS = { advanced: { unitBytes: 512, nodeBytes: 512 }, cacheBytes: 65_536 } as const;
const { engine: plain } = checkOptions(OPTIONS);
const secret = toSecretSync({ key: new Uint8Array(32).fill(7) });

/** A module, and what it opens databases with. */
export interface Engine {
  readonly module: WebAssembly.Module;
  readonly options: EngineOptions;
}

export const plainly = (module: WebAssembly.Module): Engine => ({ module, options: plain });
export const withKey = (module: WebAssembly.Module): Engine => ({
  module,
  options: { ...plain, opening: withSecret(plain.opening, secret) },
});

const INFO = { path: 'x', persistence: 'custom', durability: 'strict' } as const;
const CUTS: readonly Cut[] = ['all', 'none', 'first', 'any'];
/** Errors that a failing storage may cause. */
const REFUSALS = new Set(['KV_QUOTA_EXCEEDED', 'KV_IO']);

/** A state of the model, and the last call that it contains. */
class Version {
  readonly call: number;
  readonly state: State;
  #text: string | undefined;

  constructor(call: number, state: State) {
    this.call = call;
    this.state = state;
  }

  get text(): string {
    this.#text ??= textOf(this.state);
    return this.#text;
  }
}

interface Taken {
  readonly image: Image;
  readonly how: Cut;
  /** The last call that the image must contain. */
  readonly least: number;
}

export interface Counts {
  images: number;
  calls: number;
  refused: number;
}

export function open({ module, options }: Engine, disk: Disk, flushesLater: boolean): Database<string> {
  disk.flushesLater = flushesLater;
  return new KvDatabase<string, unknown>(
    new Connection(new InThreadTransport(module, disk, options, { release: () => undefined, syncFaces })),
    INFO,
    {},
  );
}

function anyFault(random: Random): Fault {
  const operation = random.pick(['write', 'write', 'write', 'flush', 'read', 'truncate'] as const);
  const isFull = operation === 'write' ? random.chance(0.8) : operation === 'truncate';
  return {
    operation,
    file: random.pick(['data', 'log', undefined] as const),
    code: isFull ? 'ENOSPC' : 'EIO',
    after: random.below(8),
    times: random.pick([1, 1, 2, 3, 5, 9, Infinity]),
    keeps: random.pick([0, 0.5, 1]),
  };
}

export class Life {
  readonly #engine: Engine;
  readonly #random: Random;
  readonly #disk: Disk;
  readonly #counts: Counts;
  readonly #trace: string[];
  #taken: Taken[] = [];
  #calls = 0;
  /** The last call that must survive a power cut or the death of the process. */
  #durable = 0;
  #handedOver = 0;
  #versions: Version[];
  /** Calls refused by a database that no longer writes; they may have taken effect. */
  #doubtful: Call[] = [];

  constructor(engine: Engine, random: Random, image: Image, state: State, counts: Counts, trace: string[]) {
    this.#engine = engine;
    this.#random = random;
    this.#disk = new Disk(random, image, random.chance(0.3) ? 16_384 : 0);
    this.#versions = [new Version(0, state)];
    this.#counts = counts;
    this.#trace = trace;
  }

  get #version(): Version {
    return this.#versions.at(-1) as Version;
  }

  /** Runs some rounds; returns what is left for the next life. */
  async run(rounds: number): Promise<{ image: Image; state: State }> {
    const flushesLater = this.#random.chance(0.6);
    const db = open(this.#engine, this.#disk, flushesLater);
    this.#disk.onOperation = () => this.#take();
    this.#trace.push(`open, flushes ${flushesLater ? 'later' : 'at once'}, reserve ${this.#disk.reserveBytes}`);
    for (let round = 0; round < rounds; round++) {
      if (this.#random.chance(0.5)) {
        const fault = anyFault(this.#random);
        this.#disk.faults.push(fault);
        this.#trace.push(`fault ${JSON.stringify(fault)}`);
      }
      await this.#round(db);
      await this.#compare(db);
      await this.#checkImages();
      if (this.#random.chance(0.6)) this.#disk.faults.length = 0;
    }
    if (this.#random.chance(0.4)) await this.#close(db);
    this.#disk.onOperation = undefined;
    const how = this.#random.pick(CUTS);
    this.#trace.push(`end, cut ${how}`);
    const image = this.#disk.cut(how);
    this.#taken.push({ image, how, least: how === 'all' ? this.#handedOver : this.#durable });
    const copy = new Map([...image].map(([name, bytes]) => [name, bytes.slice()]));
    return { image: copy, state: (await this.#checkImages()).at(-1) as State };
  }

  #take(): void {
    if (!this.#random.chance(0.35)) return;
    const how = this.#random.pick(CUTS);
    this.#taken.push({ image: this.#disk.cut(how), how, least: how === 'all' ? this.#handedOver : this.#durable });
  }

  async #close(db: Database<string>): Promise<void> {
    const failed = this.#disk.failed;
    const last = this.#calls;
    await db.close().then(
      () => {
        this.#durable = this.#handedOver = last;
      },
      (error: unknown) => {
        assert.ok(
          error instanceof KvError && REFUSALS.has(error.code) && (this.#disk.failed > 0 || failed > 0),
          `close: ${String(error)}`,
        );
      },
    );
    this.#trace.push('close');
  }

  async #round(db: Database<string>): Promise<void> {
    const made: { call: Call; number: number; settled: Promise<PromiseSettledResult<unknown>> }[] = [];
    const make = (call: Call): void => {
      const number = ++this.#calls;
      this.#counts.calls++;
      const settled = call.issue(db).then(
        (value): PromiseSettledResult<unknown> => {
          if (call.writes && call.hasCommitted?.(value) !== false) {
            this.#handedOver = Math.max(this.#handedOver, number);
            if (call.durability === 'strict') this.#durable = Math.max(this.#durable, number);
          }
          return { status: 'fulfilled', value };
        },
        (reason: unknown): PromiseSettledResult<unknown> => ({ status: 'rejected', reason }),
      );
      made.push({ call, number, settled });
    };
    if (this.#random.chance(0.2)) {
      make(lonelyCall(this.#random));
    } else {
      for (let tick = 1 + this.#random.below(4); tick > 0; tick--) {
        for (let count = 1 + this.#random.below(6); count > 0; count--) make(orderedCall(this.#random));
        const turns = this.#random.below(3);
        if (turns === 1) await Promise.resolve();
        if (turns === 2) await new Promise((resolve) => setImmediate(resolve));
      }
    }
    for (const { call, number, settled } of made) this.#judge(call, number, await settled);
  }

  #judge(call: Call, number: number, result: PromiseSettledResult<unknown>): void {
    const expected = call.model(this.#version.state);
    const told = result.status === 'fulfilled' ? 'done' : String(result.reason);
    this.#trace.push(`${number} ${call.name} ${call.durability}: ${told}`);
    if (result.status === 'rejected') {
      const { code } = result.reason as KvError;
      if (code !== undefined && code === expected.code) return;
      assert.ok(this.#disk.failed > 0 && REFUSALS.has(code), `${call.name} is refused: ${String(result.reason)}`);
      this.#counts.refused++;
      if (call.writes && code === 'KV_IO') this.#doubtful.push(call);
      return;
    }
    assert.equal(expected.code, undefined, `${call.name} succeeds`);
    if (!call.writes) {
      if (!isDeepStrictEqual(result.value, expected.value)) {
        assert.fail(`${call.name} gives ${JSON.stringify(result.value)} instead of ${JSON.stringify(expected.value)}`);
      }
    } else {
      if ('value' in expected) assert.deepEqual(result.value, expected.value, call.name);
      // A database that no longer writes confirms only calls that need no commit.
      if (call.hasCommitted?.(result.value) !== false) this.#doubtful = [];
      this.#versions.push(new Version(number, expected.state));
    }
  }

  /** Compares the open database with the model. */
  async #compare(db: Database<string>): Promise<void> {
    const faults = this.#disk.faults.splice(0);
    assert.equal(textOf(await stateOf(db)), this.#version.text, 'the entries of the database differ from its answers');
    this.#disk.faults.push(...faults);
  }

  /**
   * States after refused calls: the first of these may not have reached the log, and any number of
   * those after them may be in it.
   */
  #doubtfulVersions(): Version[] {
    return this.#doubtful.flatMap((_, from) => {
      let { state } = this.#version;
      return this.#doubtful.slice(from).map((call) => {
        ({ state } = call.model(state));
        return new Version(Infinity, state);
      });
    });
  }

  /** Checks the images taken so far; returns the state of each. */
  async #checkImages(): Promise<State[]> {
    const states = [];
    for (const { image, how, least } of this.#taken.splice(0)) {
      const allowed = this.#versions.filter((_, index) => (this.#versions[index + 1]?.call ?? Infinity) > least);
      const db = open(this.#engine, new Disk(this.#random, image), false);
      const state = await stateOf(db);
      const text = textOf(state);
      allowed.push(...this.#doubtfulVersions());
      if (!allowed.some((version) => version.text === text)) {
        const states = allowed.map((version) => shortTextOf(version.state)).join('\n');
        assert.fail(`cut ${how}:\n${shortTextOf(state)}\nis not a state from call  ${least} on:\n${states}`);
      }
      if (this.#random.chance(0.1)) assert.deepEqual((await db.verify()).problems, []);
      if (this.#random.chance(0.1)) await db.set('after', 1);
      await db.close();
      this.#counts.images++;
      states.push(state);
    }
    while ((this.#versions[1]?.call ?? Infinity) <= this.#durable) this.#versions.shift();
    return states;
  }
}
