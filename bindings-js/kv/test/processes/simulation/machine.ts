// The machine as a simulated process sees it.
import type { Accept, Address, Introduction, LocalHub, Machine } from '../../../src/processes/machine.ts';
import type { Port } from '../../../src/processes/port.ts';
import type { Release } from '../../../src/storage/os-lock.ts';
import { PROTOCOL } from '../../../src/tabs/messages.ts';
import { End } from './connection.ts';
import type { Process } from './process.ts';
import type { World } from './world.ts';

/** Unix time at which the simulation starts, in milliseconds. */
const FIRST_TIME = 1_700_000_000_000;
/** Each turn advances the clock, or a wait that checks every turn would never end. */
const TURN_MS = 0.1;
const SOCKET = 'socket';
const ignore = (): void => {};
const never = new Promise<never>(ignore);

export interface Listener {
  readonly process: Process;
  readonly token: string;
  readonly accept: Accept;
}

export class SimulatedMachine implements Machine {
  readonly #world: World;
  readonly #process: Process;
  readonly title = 'simulated';
  readonly directory = 'db';

  constructor(world: World, process: Process) {
    this.#world = world;
    this.#process = process;
  }

  get pid(): number {
    return this.#process.pid;
  }

  now(): number {
    return this.#world.now;
  }

  time(): number {
    return Math.floor(FIRST_TIME + this.#world.now + this.#process.clockMs);
  }

  after(ms: number, run: () => void): () => void {
    const world = this.#world;
    if (!world.survives(this.#process)) return ignore;
    const event = world.later(ms + world.random.below(1 + world.faults.lateMs), this.#process, run);
    return () => {
      event.isCancelled = true;
    };
  }

  nextTurn(run: () => void): void {
    this.#world.later(TURN_MS, this.#process, run);
  }

  tryLock(): Release | undefined {
    return this.#world.tryLock(this.#process);
  }

  holder(): { readonly text: string; readonly isSilent: boolean } {
    return { text: 'in some process', isSilent: false };
  }

  local(): LocalHub | undefined {
    return this.#process.hub;
  }

  setLocal(hub: LocalHub): () => void {
    this.#process.hub = hub;
    return () => {
      if (this.#process.hub === hub) this.#process.hub = undefined;
    };
  }

  address(): Address | undefined {
    const { random, faults, address, lastAddress } = this.#world;
    if (random.chance(faults.unreadable)) return undefined;
    return random.chance(faults.stale) ? lastAddress : address;
  }

  connect(address: Address, introduction: Introduction): Promise<Port> {
    const world = this.#world;
    if (!world.survives(this.#process)) return never;
    return new Promise((resolve, reject) => {
      world.later(1 + world.random.below(3), this.#process, () => {
        const listener = world.listener;
        if (listener?.process.isAlive !== true) return reject(new Error('nobody listens'));
        const [ours, theirs] = End.pair(world, this.#process, listener.process);
        theirs.onmessage = (first) => {
          theirs.onmessage = ignore;
          const { token, ...introduced } = first as Introduction & { readonly token: string };
          const reason =
            token === listener.token ? listener.accept(theirs, introduced) : 'the token is not that of this leader';
          if (reason === undefined) return;
          theirs.send({ type: 'refused', reason });
          void theirs.close();
        };
        ours.send({ ...introduction, token: address.token });
        resolve(ours);
      });
    });
  }

  async listen(accept: Accept): Promise<() => void> {
    const world = this.#world;
    const process = this.#process;
    if (!world.survives(process)) return never;
    const token = `token ${world.nextId()}`;
    const address = { pid: process.pid, since: this.time(), protocol: PROTOCOL, token };
    if (world.random.chance(world.faults.deaf)) {
      world.publish(process, { ...address, reason: 'there are no sockets here' });
      return () => world.retract(token);
    }
    const listener = { process, token, accept };
    world.checkLock(process, 'listens');
    world.listener = listener;
    if (world.random.chance(world.faults.slowListen)) {
      await new Promise<void>((resolve) => world.later(world.random.below(20), process, resolve));
    }
    if (!world.survives(process)) return never;
    world.publish(process, { ...address, socket: SOCKET });
    return () => {
      if (!process.isAlive) return;
      world.retract(token);
      // By its name: it is not asked whose it is.
      world.listener = undefined;
    };
  }

  mayLive(client: string): boolean {
    const pid = Number(client.split('.')[0]);
    return this.#world.processes.some((one) => one.pid === pid && one.isAlive);
  }
}
