// The simulated world of the processes that share one directory: a clock, a lock, an address, connections
// and a store, and checks of the invariants. What happens between two events is the microtasks of the
// process that had the first.
import process from 'node:process';
import timers from 'node:timers';
import { setImmediate } from '../../../src/base/platform.ts';
import { KvError } from '../../../src/base/errors.ts';
import type { Address } from '../../../src/processes/machine.ts';
import type { Release } from '../../../src/storage/os-lock.ts';
import { Events } from '../../tabs/events.ts';
import type { Event } from '../../tabs/events.ts';
import { Ledger } from '../../tabs/ledger.ts';
import type { Settlements } from '../../tabs/ledger.ts';
import type { Random } from '../../tabs/random.ts';
import { ModelEngine } from '../../tabs/store.ts';
import type { Fate, Observer } from '../../tabs/store.ts';
import { Handle } from './handle.ts';
import { ModelHost, installModels } from './host.ts';
import type { ModelStorage } from './host.ts';
import type { Listener } from './machine.ts';
import { Process } from './process.ts';
import type { Stranger } from './stranger.ts';

/** Far more than any schedule needs. */
const MAX_STEPS = 200_000;

/** Probabilities of faults, between 0 and 1 unless another unit is given. */
export interface Faults {
  /** What is sent arrives up to `delayMs` later, and all that is sent after it. */
  delay: number;
  delayMs: number;
  /** The engine crashes at a step of an execution. */
  crash: number;
  /** The process dies at a step of an execution or of another action. */
  die: number;
  /** Opening the files fails. */
  notOpened: number;
  /** There is temporarily no memory for an engine. */
  noRoom: number;
  /** Closing the files fails. */
  notClosed: number;
  /** Milliseconds that a flush takes at most. */
  flushMs: number;
  /** A reply is full before the message is at its end. */
  cut: number;
  /** Maximum delay of timers, in milliseconds. */
  lateMs: number;
  /** The address cannot be read. */
  unreadable: number;
  /** The address that is read is that of a leader before. */
  stale: number;
  /** A leader cannot listen. */
  deaf: number;
  /** A leader needs a while to listen. */
  slowListen: number;
}

export const noFaults: Faults = {
  delay: 0,
  delayMs: 0,
  crash: 0,
  die: 0,
  notOpened: 0,
  noRoom: 0,
  notClosed: 0,
  flushMs: 0,
  cut: 0,
  lateMs: 0,
  unreadable: 0,
  stale: 0,
  deaf: 0,
  slowListen: 0,
};

export interface Counts extends Settlements {
  steps: number;
  messages: number;
  kills: number;
  stops: number;
  opened: number;
  engineCrashes: number;
}

/** Thrown when a process dies in the middle of an action; nothing after that reaches the world. */
class Death extends Error {}

const drained = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));

/** The world whose process runs. */
let running: World | undefined;
process.on('unhandledRejection', (error) => {
  if (running === undefined) throw error;
  running.threw(error);
});
if (setImmediate !== timers.setImmediate) throw new Error('the engine has the real setImmediate');
installModels();

export class World extends Ledger {
  readonly random: Random;
  faults: Faults;
  readonly processes: Process[] = [];
  readonly handles: Handle[] = [];
  readonly strangers: Stranger[] = [];
  readonly counts: Counts = {
    steps: 0,
    messages: 0,
    kills: 0,
    stops: 0,
    opened: 0,
    engineCrashes: 0,
    commits: 0,
    lost: 0,
    acknowledged: 0,
    refused: 0,
    failed: 0,
  };
  /** Length in milliseconds of each period without an engine during which some handle ran. */
  readonly takeOvers: number[] = [];
  #leaderlessSince = 0;
  readonly #events = new Events();
  #running: Process | undefined;
  #lock: { readonly process: Process } | undefined;
  /** The files, while an engine has them open. */
  #files: { readonly process: Process; readonly host: () => ModelHost | undefined } | undefined;
  address: Address | undefined;
  #publisher: Process | undefined;
  /** The one before, to be read by mistake. */
  lastAddress: Address | undefined;
  /** Who listens at the socket, which may have ended. */
  listener: Listener | undefined;

  constructor(random: Random, faults: Partial<Faults> = {}) {
    super();
    this.random = random;
    this.faults = { ...noFaults, ...faults };
  }

  override violate(what: string): void {
    // Of a process that ended within an action, the rest of that action does not count.
    if (this.#running?.isAlive === false) return;
    super.violate(what);
  }

  threw(error: unknown): void {
    this.violate(`something throws: ${error instanceof Error ? error.stack : String(error)}`);
  }

  forgot(client: string): void {
    const handle = this.handles.find(({ id }) => id === client);
    if (handle?.isAlive === true && !handle.isLeaving && handle.failure === undefined)
      this.violate(`${client} is forgotten although it is alive`);
  }

  /** The process that has the files. */
  get leader(): Process | undefined {
    return this.#files?.process;
  }

  // Time.

  /** Plans something in a process. It is dropped if that is dead, and deferred while it is stopped. */
  later(ms: number, of: Process, run: () => void): Event {
    const event: Event = this.#events.plan(this.now + ms, () => {
      if (!of.isAlive) return;
      if (of.isStopped) {
        of.deferred.push(event);
        return;
      }
      this.#running = of;
      run();
    });
    return event;
  }

  delay(): number {
    const ms = 1 + this.random.below(2);
    return this.random.chance(this.faults.delay) ? ms + this.random.below(this.faults.delayMs) : ms;
  }

  /** Lets a process do something now, and what follows at once. */
  async act(of: Process, run: () => void): Promise<void> {
    this.#check();
    this.#running = of;
    await this.#step(run);
  }

  async #step(run: () => void): Promise<void> {
    running = this;
    try {
      run();
    } catch (error) {
      if (!(error instanceof Death)) this.threw(error);
    }
    await drained();
    running = undefined;
    this.#check();
  }

  /** Advances time by `ms`, or until a violation or `isEnough`. */
  async run(ms: number, isEnough?: () => boolean): Promise<void> {
    const until = this.now + ms;
    while (this.violation === undefined && isEnough?.() !== true) {
      const event = this.#events.take(until);
      if (event === undefined) {
        this.now = until;
        return;
      }
      this.now = event.at;
      if (++this.counts.steps > MAX_STEPS) return super.violate('the processes do not come to rest');
      await this.#step(event.run);
    }
  }

  /** Checks the invariants that hold after each step. */
  #check(): void {
    let couldLead = false;
    for (const handle of this.handles) {
      if (!handle.isStaying || handle.process.isStopped) continue;
      couldLead = true;
      const oldest = handle.pending[0];
      if (oldest === undefined) continue;
      handle.maxWaitMs = Math.max(handle.maxWaitMs, this.now - Math.max(oldest.at, handle.process.ranSince));
    }
    if (!couldLead) this.#leaderlessSince = this.now;
  }

  // Processes.

  /** Starts a process, or another thread of one. */
  spawn(beside?: Process): Process {
    const number = this.processes.length + 1;
    const pid = beside?.pid ?? number;
    const started = new Process(beside === undefined ? `p${pid}` : `p${pid}t${number}`, pid, this.now);
    if (beside !== undefined) Object.assign(started, { isStopped: beside.isStopped, clockMs: beside.clockMs });
    this.processes.push(started);
    return started;
  }

  async open(of: Process, deadlineMs: number): Promise<Handle> {
    const handle = new Handle(this, of, `${of.pid}.h${this.handles.length + 1}`, deadlineMs);
    this.say(() => `${handle.id} opens`);
    await this.act(of, () => {
      this.handles.push(handle);
      handle.start();
    });
    return handle;
  }

  /** The living threads of a process. */
  threadsOf({ pid }: Process): Process[] {
    return this.processes.filter((one) => one.pid === pid && one.isAlive);
  }

  kill(one: Process): void {
    for (const thread of this.threadsOf(one)) this.terminate(thread);
  }

  /** Ends one thread, wherever it is. */
  terminate(one: Process): void {
    if (!one.isAlive) return;
    this.say(() => `${one.name} is killed`);
    this.counts.kills++;
    one.isAlive = false;
    one.deferred.length = 0;
    for (const end of one.ends) end.die();
    one.ends.clear();
    if (this.#files?.process === one) {
      this.#files.host()?.die();
      this.#files = undefined;
      this.#leaderlessSince = this.now;
    }
    if (this.#lock?.process === one) this.#lock = undefined;
  }

  stop(one: Process): void {
    for (const thread of this.threadsOf(one)) {
      if (thread.isStopped) continue;
      this.say(() => `${thread.name} is stopped`);
      this.counts.stops++;
      thread.isStopped = true;
    }
  }

  continue(one: Process): void {
    for (const thread of this.threadsOf(one)) this.#continue(thread);
  }

  #continue(one: Process): void {
    if (!one.isStopped) return;
    this.say(() => `${one.name} continues`);
    this.#check();
    one.isStopped = false;
    one.ranSince = this.now;
    for (const event of one.deferred.splice(0)) {
      if (event.isCancelled) continue;
      this.later(this.random.below(20), one, () => {
        if (!event.isCancelled) event.run();
      });
    }
  }

  /** Lets the process die at random; returns whether it is alive. */
  survives(one: Process): boolean {
    if (one.isAlive && this.random.chance(this.faults.die)) this.kill(one);
    return one.isAlive;
  }

  // The machine.

  tryLock(by: Process): Release | undefined {
    if (!this.survives(by) || this.#lock !== undefined) return undefined;
    const lock = { process: by };
    this.#lock = lock;
    this.say(() => `${by.name} has the lock`);
    return () => {
      if (!this.survives(by) || this.#lock !== lock) return;
      if (this.#files !== undefined) this.violate(`${by.name} releases the lock while it has the files`);
      if (this.listener?.process === by || (this.address !== undefined && this.#publisher === by))
        this.violate(`${by.name} releases the lock while others would look for it here`);
      this.say(() => `${by.name} releases the lock`);
      this.#lock = undefined;
    };
  }

  checkLock(by: Process, what: string): void {
    if (this.#lock?.process !== by) this.violate(`${by.name} ${what} without the lock`);
  }

  publish(by: Process, address: Address): void {
    this.checkLock(by, 'publishes its address');
    this.lastAddress = this.address ?? this.lastAddress;
    this.address = address;
    this.#publisher = by;
  }

  retract(token: string): void {
    if (this.address?.token !== token) return;
    this.lastAddress = this.address;
    this.address = undefined;
  }

  storageOf(by: Process): ModelStorage {
    return { flushesLater: true, openHost: () => this.#openHost(by) } as ModelStorage;
  }

  #openHost(by: Process): ModelHost {
    if (!this.survives(by)) throw new Death();
    this.checkLock(by, 'opens the files');
    if (this.#files !== undefined) this.violate(`${by.name} opens the files that ${this.#files.process.name} has`);
    if (this.random.chance(this.faults.noRoom)) throw new KvError('KV_IO', 'no room', { retryable: true });
    if (this.random.chance(this.faults.notOpened))
      throw new KvError(this.random.pick(['KV_QUOTA_EXCEEDED', 'KV_IO']), 'injected by the schedule');
    let host: ModelHost | undefined;
    const files = { process: by, host: () => host };
    this.#files = files;
    this.counts.opened++;
    this.takeOvers.push(this.now - this.#leaderlessSince);
    this.say(() => `${by.name} has the engine`);
    const observer = this.#observerIn(by);
    const fate = this.#fateOf(by);
    const engine = new ModelEngine(this.store, observer, fate, () => {
      if (!by.isAlive) return;
      this.say(() => `${by.name} closed the files`);
      this.#leaderlessSince = this.now;
      if (this.#files === files) this.#files = undefined;
    });
    const mustWait = (): boolean => this.random.chance(0.2);
    host = new ModelHost(engine, this.store, observer, fate.step, mustWait, (done) => {
      this.later(1 + this.random.below(1 + this.faults.flushMs), by, () => done(undefined));
    });
    return host;
  }

  #observerIn(by: Process): Observer {
    return {
      committed: (id) => this.committed(id),
      undone: (id) => this.undone(id),
      forgot: (client) => {
        if (by.isAlive) this.forgot(client);
      },
      violate: (what) => {
        if (by.isAlive) this.violate(`${by.name}: ${what}`);
      },
    };
  }

  #fateOf(by: Process): Fate {
    return {
      step: () => {
        if (!this.survives(by)) throw new Death();
        if (!this.random.chance(this.faults.crash)) return;
        this.counts.engineCrashes++;
        this.say(() => `the engine in ${by.name} crashes`);
        throw new Error('crashed');
      },
      losesOf: (count) => this.random.below(count + 1),
      // The host stores them, when a flush ends.
      later: () => true,
      isFull: () => this.random.chance(this.faults.cut),
      failsToClose: () => this.random.chance(this.faults.notClosed),
    };
  }
}
