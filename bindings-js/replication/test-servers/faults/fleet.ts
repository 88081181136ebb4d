// Devices with databases, seen from the process that disturbs them.
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import type { NatsCredentials } from '@mangrove-kv/replication-nats';
import type { FromProcess, ToProcess } from './process.ts';
import type { Random } from './random.ts';
import type { Mistake, Replica, ReplicaOptions, Told } from './replica.ts';
import { Waits } from './waits.ts';
import { pause } from './world.ts';
import type { BucketAddress, LogAddress } from './world.ts';

const PROCESS = fileURLToPath(new URL('process.ts', import.meta.url));
const BUILD = fileURLToPath(new URL('../../../kv/build/replication-faults', import.meta.url));
const DAY = 86_400_000;
/** By how much clocks of devices are wrong, in milliseconds. */
const CLOCKS = [0, 0, 0, 3000, -3000, 3_600_000, -3_600_000, 3 * DAY, -3 * DAY, 400 * DAY, -400 * DAY];

export interface FleetOptions {
  readonly log: LogAddress;
  readonly store: BucketAddress;
  readonly seal: readonly number[] | undefined;
  readonly isOld: boolean;
  /** Whether strict transactions run, too. */
  readonly isStrict: boolean;
  /** Whether devices lose their files, after everything is in the log. */
  readonly areReplaced: boolean;
  /** What the first process does wrong. */
  readonly mistake: Mistake | undefined;
  /** What `compileProcess` has made. */
  readonly program: string;
  /** Of the databases of processes. */
  readonly directory: string;
  readonly random: Random;
  readonly tell: (device: string, told: Told) => void;
  readonly say: (line: string) => void;
  /** The greatest number that some strict transaction is known to have counted to. */
  readonly counted: () => number;
  /** A token of a device, which may be about to expire; undefined if there is none to be had now. */
  readonly credentials: ((device: string) => Promise<NatsCredentials | undefined>) | undefined;
}

/** A device of a fleet. `disturb` does something to it, and says what. */
export interface FleetDevice {
  readonly name: string;
  /** What it is being disturbed with, and the calls that it has not answered. */
  readonly waits: Waits;
  disturb(): Promise<string>;
  /** Calls a method in everything that runs of this device; resolves to the answer of one. */
  call<M extends Method>(method: M, ...args: Parameters<Replica[M]>): Promise<Awaited<ReturnType<Replica[M]>>>;
  /** The states of all that runs of this device. */
  states(): Promise<readonly string[]>;
  end(): Promise<void>;
}

export type Method =
  | 'write'
  | 'halt'
  | 'clock'
  | 'flush'
  | 'overwrite'
  | 'content'
  | 'digest'
  | 'base'
  | 'state'
  | 'problems'
  | 'spoil'
  | 'close';

let lives = 0;

export function replicaOptions(fleet: FleetOptions, name: string, path: string): ReplicaOptions {
  const { log, store, seal, isStrict, mistake } = fleet;
  return {
    name,
    path,
    life: `${name}/${++lives}`,
    log,
    store,
    seal,
    isStrict,
    clock: wrongClock(fleet),
    mistake: name === 'p0' ? mistake : undefined,
  };
}

export const wrongClock = ({ random }: FleetOptions): number => random.of(CLOCKS);

/** Compiles the program of devices that are processes, which starts in a fraction of the time then. */
export async function compileProcess(): Promise<string> {
  const outfile = join(BUILD, `${process.pid}.mjs`);
  await build({
    entryPoints: [PROCESS],
    outfile,
    bundle: true,
    packages: 'external',
    format: 'esm',
    platform: 'node',
    target: 'node20',
    logLevel: 'error',
  });
  return outfile;
}

/** A device that is a process. */
export class ProcessDevice implements FleetDevice {
  readonly name: string;
  readonly waits = new Waits();
  readonly #fleet: FleetOptions;
  readonly #calls = new Map<
    number,
    { readonly resolve: (value: unknown) => void; readonly reject: (error: Error) => void }
  >();
  #child: ChildProcess | undefined;
  #ids = 0;

  private constructor(name: string, fleet: FleetOptions) {
    this.name = name;
    this.#fleet = fleet;
  }

  /** `clock`: by how much its clock is wrong. */
  static async start(name: string, fleet: FleetOptions, clock = wrongClock(fleet)): Promise<ProcessDevice> {
    const device = new ProcessDevice(name, fleet);
    await device.#start(clock);
    return device;
  }

  async disturb(): Promise<string> {
    const what = this.#fleet.random.of([
      'kill',
      'kill',
      'restart',
      'stop',
      'clock',
      'away',
      ...(this.#fleet.areReplaced ? (['replace'] as const) : []),
    ] as const);
    await this.waits.for(what, this.#disturb(what));
    return what;
  }

  call<M extends Method>(method: M, ...args: Parameters<Replica[M]>): Promise<Awaited<ReturnType<Replica[M]>>> {
    const id = ++this.#ids;
    const answer = new Promise<Awaited<ReturnType<Replica[M]>>>((resolve, reject) => {
      this.#calls.set(id, { resolve: resolve as (value: unknown) => void, reject });
      const fail = (): void => reject(new Error(`${this.name} has ended`));
      if (this.#child === undefined) fail();
      else this.#child.send({ type: 'call', id, method, args } satisfies ToProcess, (error) => error && fail());
    });
    return this.waits.for(method, answer);
  }

  async states(): Promise<readonly string[]> {
    return [await this.call('state')];
  }

  async end(): Promise<void> {
    await this.#kill();
  }

  async #disturb(what: 'kill' | 'restart' | 'stop' | 'clock' | 'away' | 'replace'): Promise<void> {
    const { random } = this.#fleet;
    if (what === 'stop') {
      this.#child?.kill('SIGSTOP');
      await pause(random.between(500, 8000));
      this.#child?.kill('SIGCONT');
    } else if (what === 'clock') {
      await this.call('clock', wrongClock(this.#fleet));
    } else {
      if (what === 'replace') {
        await this.call('halt');
        await this.call('flush');
      }
      if (what === 'restart') await this.call('close');
      await this.#kill();
      if (what === 'replace') await rm(join(this.#fleet.directory, this.name), { recursive: true });
      await pause(what === 'away' ? random.between(10_000, 25_000) : random.between(0, 3000));
      await this.#start();
      await this.call('write');
    }
  }

  async #start(clock = wrongClock(this.#fleet)): Promise<void> {
    const { program, directory, isOld, credentials, tell, counted } = this.#fleet;
    const options = { ...replicaOptions(this.#fleet, this.name, join(directory, this.name)), clock };
    const child = fork(program, [JSON.stringify({ options, isOld, hasAccounts: credentials !== undefined })], {
      execArgv: ['--experimental-websocket', '--no-warnings'],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    this.#child = child;
    const started = new Promise<void>((resolve, reject) => {
      child.on('exit', (code, signal) => {
        reject(new Error(`${this.name} ended with ${code ?? signal} before it started`));
        for (const { reject: fail } of this.#calls.values())
          fail(new Error(`${this.name} ended with ${code ?? signal}`));
        this.#calls.clear();
      });
      child.on('message', async (message: FromProcess) => {
        if (message.type === 'started') resolve();
        else if (message.type === 'ask') {
          const value = message.what === 'counted' ? counted() : await credentials?.(this.name);
          child.send({ type: 'answer', id: message.id, value } satisfies ToProcess, () => undefined);
        } else if (message.type === 'returned') {
          const call = this.#calls.get(message.id);
          this.#calls.delete(message.id);
          if (message.error === undefined) call?.resolve(message.value);
          else call?.reject(new Error(`${this.name}: ${message.error}`));
        } else tell(this.name, message);
      });
    });
    await started;
  }

  async #kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }
}
