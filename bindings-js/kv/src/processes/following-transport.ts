// The transport of a handle that shares a database which another handle has opened: a peer of the
// protocol, which takes over when the one that leads ends.
import type { KvError } from '../base/errors.ts';
import type { Trace } from '../base/trace.ts';
import { EngineHost } from '../engine/engine-host.ts';
import type { LeaderEngine, PageEvents } from '../tabs/environment.ts';
import { Peer } from '../tabs/peer.ts';
import type { ClientInfo, LeaderInfo } from '../types/sharing.ts';
import type { EngineOptions } from '../wire/contracts.ts';
import { Asker } from '../wire/spin.ts';
import type { Transport, TransportEvents } from '../wire/transport.ts';
import { DATABASE, ProcessEnvironment } from './environment.ts';
import type { Machine } from './machine.ts';
import { openServed } from './served-engine.ts';

const FOREVER_MS = 2 ** 30;
/** `open` reports who leads after it has waited this long. */
const TELL_MS = 1000;
/** However short the limit is, one that leads has so long to answer. */
const ANSWER_MS = 1000;

export interface FollowingOptions {
  readonly module: WebAssembly.Module;
  readonly engine: EngineOptions;
  readonly machine: Machine;
  readonly client: string;
  readonly lockTimeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly trace: Trace | undefined;
  /** Called once, if the one that leads lets this handle wait for a second. */
  readonly onBlocked: ((error: KvError) => void) | undefined;
}

export class FollowingTransport implements Transport {
  readonly takesBuffers = true;
  events: TransportEvents | undefined;
  readonly #options: FollowingOptions;
  #engine: EngineOptions;
  readonly #environment: ProcessEnvironment;
  readonly #peer: Peer;
  readonly #asker = new Asker();
  #wasOpened = false;
  /** Timers and connections let the process end, so that only unanswered messages keep it alive. */
  #keepAlive: ReturnType<typeof setInterval> | undefined;
  #unanswered = 0;
  #opened: () => void = () => {};
  #failed: (error: KvError) => void = () => {};
  #left: ((error: KvError | undefined) => void) | undefined;
  #isOver = false;

  /** Its own calls must not keep others from being served. */
  get takesTurns(): boolean {
    return this.#peer.role === 'leader';
  }

  private constructor(options: FollowingOptions) {
    this.#options = options;
    this.#engine = options.engine;
    const { module, machine, client, lockTimeoutMs, engine } = options;
    this.#environment = new ProcessEnvironment(machine, client, (signal) => this.#open(signal));
    this.#environment.onleader = (leader) => this.events?.leader(leader);
    this.#peer = new Peer(
      this.#environment,
      {
        database: DATABASE,
        title: machine.directory,
        id: client,
        isAgain: false,
        readOnly: engine.readOnly,
        exclusive: engine.exclusive,
        deadlineMs: lockTimeoutMs,
        refusal: (sealedKey) => EngineHost.refusal(module, this.#engine, sealedKey),
      },
      this.#pageEvents(),
    );
  }

  /**
   * Opens the database as a client of the one that leads.
   *
   * @throws KvError KV_LOCKED after `lockTimeoutMs`; what opening the files throws, if it comes to that.
   */
  static async open(options: FollowingOptions): Promise<FollowingTransport> {
    const { signal } = options;
    signal?.throwIfAborted();
    const transport = new FollowingTransport(options);
    let abort = (): void => {};
    transport.#await();
    const environment = transport.#environment;
    const { lockTimeoutMs } = options;
    const { directory } = options.machine;
    const cancelTell = environment.after(TELL_MS, () => options.onBlocked?.(environment.locked(directory)));
    let cancelWait = (): void => {};
    try {
      await new Promise<void>((resolve, reject) => {
        transport.#opened = resolve;
        transport.#failed = reject;
        abort = () => reject(signal?.reason);
        signal?.addEventListener('abort', abort);
        transport.#peer.start();
        // The peer looks once a second only.
        const waitFor = (ms: number): void => {
          cancelWait = environment.after(ms, () => {
            if (environment.isMet && ms < ANSWER_MS) waitFor(ANSWER_MS);
            else reject(environment.locked(directory));
          });
        };
        if (Number.isFinite(lockTimeoutMs)) waitFor(lockTimeoutMs);
      });
      return transport;
    } catch (error) {
      transport.#isOver = true;
      transport.#peer.leave();
      await transport.#end();
      throw error;
    } finally {
      cancelTell();
      cancelWait();
      signal?.removeEventListener('abort', abort);
      transport.#answered(1);
    }
  }

  get leader(): LeaderInfo | undefined {
    return this.#environment.leader;
  }

  async clients(): Promise<readonly ClientInfo[]> {
    this.#await();
    try {
      return await this.#environment.clients();
    } finally {
      this.#answered(1);
    }
  }

  send(message: Uint8Array<ArrayBuffer>): void {
    this.#await();
    this.#peer.client.push(message);
    this.#asker.asked();
  }

  rekey(change: (opening: Uint8Array) => Uint8Array): void {
    this.#engine = { ...this.#engine, opening: change(this.#engine.opening) };
  }

  async dispose(): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#await();
    const failure = await new Promise<KvError | undefined>((resolve) => {
      this.#left = resolve;
      this.#peer.leave();
    });
    await this.#end();
    this.#answered(1);
    if (failure !== undefined) throw failure;
  }

  #end(): Promise<void> {
    this.#asker.end();
    return this.#environment.end();
  }

  #await(): void {
    this.#unanswered++;
    this.#keepAlive ??= setInterval(() => {}, FOREVER_MS);
  }

  #answered(count: number): void {
    this.#unanswered -= count;
    if (this.#unanswered > 0) return;
    clearInterval(this.#keepAlive);
    this.#keepAlive = undefined;
  }

  #pageEvents(): PageEvents {
    return {
      joined: () => {},
      opened: () => {
        this.#wasOpened = true;
        this.#failed = (error) => this.#fail(error);
        this.#opened();
      },
      reply: (bytes, count, requests) => {
        this.#answered(count);
        this.#asker.answered();
        this.events?.reply(bytes, count, requests);
      },
      refuse: (error, count) => {
        this.#answered(count);
        this.events?.refuse(error, count);
      },
      wake: () => this.events?.wake(),
      blocked: (reason) => this.events?.blocked(reason),
      backgroundError: (error) => this.events?.backgroundError(error),
      failed: (error) => this.#failed(error),
      left: (error) => this.#left?.(error),
      trace: this.#options.trace,
    };
  }

  #fail(error: KvError): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#answered(this.#unanswered);
    void this.#end();
    this.events?.fail(error);
  }

  async #open(signal: AbortSignal): Promise<LeaderEngine> {
    signal.throwIfAborted();
    const { module, machine, trace } = this.#options;
    const engine = openServed(module, machine.directory, this.#engine, this.#wasOpened, {
      trace,
      wake: (sessions) => this.#peer.wakeClients(sessions),
      backgroundError: (error) => this.events?.backgroundError(error),
      fail: (error) => this.#peer.engineFailed(error),
    });
    const { hub } = this.#environment;
    if (hub !== undefined) hub.engine = engine;
    return engine;
  }
}
