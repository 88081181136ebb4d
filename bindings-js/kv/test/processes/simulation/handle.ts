// A simulated handle: the first opener's, or a peer's, as `openShared` and `FollowingTransport` make them.
import type { KvError } from '../../../src/base/errors.ts';
import { GroupCommit } from '../../../src/engine/group-commit.ts';
import { InThreadTransport } from '../../../src/engine/in-thread-transport.ts';
import { DATABASE, ProcessEnvironment } from '../../../src/processes/environment.ts';
import { LeadingTransport } from '../../../src/processes/leading-transport.ts';
import { ServedEngine } from '../../../src/processes/served-engine.ts';
import type { Release } from '../../../src/storage/os-lock.ts';
import type { LeaderEngine, PageEvents } from '../../../src/tabs/environment.ts';
import { Peer } from '../../../src/tabs/peer.ts';
import { kinds } from '../../tabs/operations.ts';
import { Page } from '../../tabs/page.ts';
import type { ModelStorage } from './host.ts';
import { SimulatedMachine } from './machine.ts';
import type { Process } from './process.ts';
import type { World } from './world.ts';

/** The models need neither. */
const module = undefined as never;
const options = {} as never;

export class Handle extends Page {
  readonly world: World;
  readonly process: Process;
  readonly deadlineMs: number;
  readonly #machine: SimulatedMachine;
  readonly #storage: ModelStorage;
  #environment: ProcessEnvironment | undefined;
  #peer: Peer | undefined;
  #leading: LeadingTransport | undefined;
  /** Messages for the engine of `#leading`, until it is not busy. */
  readonly #waiting: Uint8Array<ArrayBuffer>[] = [];
  #isEnding = false;
  /** All that it asked before it leaves. */
  #isAnswered = false;
  /** The end was waited for. */
  isOver = false;

  constructor(world: World, process: Process, id: string, deadlineMs: number) {
    super(id);
    this.world = world;
    this.process = process;
    this.deadlineMs = deadlineMs;
    this.#machine = new SimulatedMachine(world, process);
    this.#storage = world.storageOf(process);
  }

  get isAlive(): boolean {
    return this.process.isAlive;
  }

  /** It can be asked. */
  get isOpen(): boolean {
    return this.isStaying && this.openings > 0 && !this.process.isStopped;
  }

  get isStaying(): boolean {
    return this.isAlive && !this.isLeaving && this.failure === undefined;
  }

  /** Whether it uses its own engine. */
  get isFirst(): boolean {
    return this.#leading !== undefined;
  }

  get isLeading(): boolean {
    return this.isFirst || this.#peer?.role === 'leader';
  }

  get role(): string {
    return this.#peer?.role ?? 'first';
  }

  start(): void {
    const lock = this.#machine.tryLock();
    if (lock === undefined) this.#follow();
    else this.#lead(lock);
  }

  #lead(lock: Release): void {
    const events = this.events();
    try {
      this.#leading = new LeadingTransport(module, this.#storage, options, this.#machine, this.id, lock, {
        group: new GroupCommit(this.#machine),
      });
    } catch (error) {
      lock();
      events.failed(error as KvError);
      return;
    }
    this.#leading.events = {
      ...events,
      leader: () => {},
      reply: (bytes, count, requests) => {
        events.reply(bytes as Uint8Array<ArrayBuffer>, count, requests);
        this.#leaveWhenAnswered(events);
      },
      idle: () => this.#sendWaiting(),
      wake: () => {
        events.wake();
        // A connection whose message is full sends it at once.
        if (!this.isOpen || !this.world.random.chance(0.3)) return;
        this.hasWakes = false;
        this.push(kinds.poll);
      },
      fail: (error) => {
        if (this.failure !== undefined) return;
        events.failed(error);
        void this.#end(() => this.#leading?.dispose());
      },
    };
    events.joined();
    events.opened();
  }

  #follow(): void {
    const events = this.events();
    const environment = new ProcessEnvironment(this.#machine, this.id, (signal) => this.#open(signal, events));
    this.#environment = environment;
    this.#peer = new Peer(
      environment,
      {
        database: DATABASE,
        title: 'db',
        id: this.id,
        isAgain: false,
        readOnly: false,
        exclusive: false,
        deadlineMs: this.deadlineMs,
      },
      {
        ...events,
        failed: (error) => {
          if (this.openings > 0 && error.retryable)
            this.world.violate(`${this.id} ends with an error that may pass: ${error.message}`);
          events.failed(error);
          void this.#end(() => environment.end());
        },
        left: (error) => {
          events.left(error);
          void this.#end(() => environment.end());
        },
      },
    );
    this.#peer.start();
  }

  /** As `FollowingTransport` does. */
  async #open(signal: AbortSignal, events: PageEvents): Promise<LeaderEngine> {
    signal.throwIfAborted();
    const transport = new InThreadTransport(module, this.#storage, options, {
      release: () => {},
      group: new GroupCommit(this.#machine),
    });
    transport.events = {
      reply: () => {},
      refuse: () => {},
      blocked: () => {},
      leader: () => {},
      wake: () => {},
      idle: () => {},
      backgroundError: (error) => events.backgroundError(error),
      fail: (error) => this.#peer?.engineFailed(error),
    };
    transport.others = { wake: (sessions) => this.#peer?.wakeClients(sessions), idle: () => {} };
    transport.host.beginInheritance();
    return new ServedEngine(transport, false);
  }

  protected override send(message: Uint8Array<ArrayBuffer>): void {
    if (this.#peer !== undefined) return this.#peer.client.push(message);
    this.#waiting.push(message);
    this.#sendWaiting();
  }

  #sendWaiting(): void {
    const leading = this.#leading;
    while (this.#waiting.length > 0 && leading?.isBusy === false && this.failure === undefined)
      leading.send(this.#waiting.shift()!);
  }

  leave(): void {
    this.world.say(() => `${this.id} leaves`);
    this.isLeaving = true;
    if (this.#peer !== undefined) this.#peer.leave();
    else this.#leaveWhenAnswered(this.events());
  }

  /** Gives up opening, as a signal makes it do. */
  abort(): void {
    this.world.say(() => `${this.id} gives up`);
    this.isLeaving = true;
    this.#peer?.leave();
    void this.#end(() => this.#environment?.end());
  }

  #leaveWhenAnswered(events: PageEvents): void {
    if (!this.isLeaving || this.pending.length > 0 || this.failure !== undefined || this.#isAnswered) return;
    this.#isAnswered = true;
    // A connection goes on when the reply is handled.
    void Promise.resolve()
      .then(() => this.#end(() => this.#leading?.dispose()))
      .then((error) => {
        if (this.failure === undefined) events.left(error as KvError | undefined);
      });
  }

  /** Ends once; resolves to what that failed with. */
  async #end(end: () => Promise<void> | undefined): Promise<unknown> {
    if (this.#isEnding) return undefined;
    this.#isEnding = true;
    try {
      await end();
      return undefined;
    } catch (error) {
      return error;
    } finally {
      this.isOver = true;
    }
  }
}
