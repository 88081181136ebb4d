// The protocol's environment outside browsers: a system lock, and connections to the one who holds it.
// A connection that ends is the end of its other side, so nothing has to be stolen.
import { AbortController, soon } from '../base/platform.ts';
import { KvError } from '../base/errors.ts';
import { toKvError } from '../storage/node-fs.ts';
import type { Release } from '../storage/os-lock.ts';
import type { Channel, Environment, LeaderEngine, LockCallbacks } from '../tabs/environment.ts';
import { PROTOCOL, names } from '../tabs/messages.ts';
import type { Announcement, Exchange, Message } from '../tabs/messages.ts';
import type { ClientInfo, LeaderInfo } from '../types/sharing.ts';
import { checkMessage } from './check-message.ts';
import { Hub } from './hub.ts';
import type { ClientsMessage, Welcome } from './hub.ts';
import type { Address, Machine } from './machine.ts';
import type { Port } from './port.ts';

/** The name of every database in the protocol: a hub has one only. */
export const DATABASE = 'fs';
const FIRST_PAUSE_MS = 1;
const MAX_PAUSE_MS = 100;

export class ProcessEnvironment implements Environment {
  readonly isOrdered = true;
  readonly #machine: Machine;
  /** This handle's client id. */
  readonly #client: string;
  readonly #open: (signal: AbortSignal) => Promise<LeaderEngine>;
  /** Runs what concerns the engine, when that can be used. */
  readonly #whenIdle: (run: () => void) => void;
  /** Set while this handle leads. Otherwise `#port` is its connection to the leader, if there is one. */
  #hub: Hub | undefined;
  #unlock: Release | undefined;
  #port: Port | undefined;
  /** The address of the leader that this handle is or was connected to. */
  #address: Address | undefined;
  #leader: LeaderInfo | undefined;
  /** Pending calls of `clients`. */
  #asking: ((clients: readonly ClientInfo[]) => void)[] = [];
  /** The term of the one who leads, as far as it was heard. */
  #term = 0;
  /** Why the one who has the lock does not take this handle. */
  #refusal: string | undefined;
  /** Why it cannot be reached. */
  #unreachable: string | undefined;
  #isSeeking = false;
  #isMeeting = false;
  #isOver = false;
  /** Whether to connect to a leader whose connection ended: not before somebody has its lock. */
  #mayReturn = true;
  /** Resolves when what was sent last has arrived. */
  #closing: Promise<void> = Promise.resolve();
  #toAll: (message: Announcement) => void = () => {};
  #toOwn: (message: Exchange) => void = () => {};
  #joined: (() => void) | undefined;
  /** The request for the leader's lock, until it is granted. */
  #wish: (() => void) | undefined;

  /** `lock` is the directory's, if this handle has it already and so leads. */
  constructor(
    machine: Machine,
    client: string,
    open: (signal: AbortSignal) => Promise<LeaderEngine>,
    whenIdle: (run: () => void) => void = (run) => run(),
    lock?: Release,
  ) {
    this.#machine = machine;
    this.#client = client;
    this.#open = open;
    this.#whenIdle = whenIdle;
    if (lock !== undefined) this.#lead(lock);
  }

  get hub(): Hub | undefined {
    return this.#hub;
  }

  /** Called when another process leads, or this handle does. */
  onleader: (leader: LeaderInfo) => void = () => {};

  /** Who leads, or was the last to. */
  get leader(): LeaderInfo | undefined {
    return this.#hub?.leader ?? this.#leader;
  }

  /** The handles that the one that leads serves. */
  clients(): Promise<readonly ClientInfo[]> {
    const port = this.#port;
    if (port === undefined) return Promise.resolve(this.#hub?.clients ?? []);
    return new Promise((resolve) => {
      this.#asking.push(resolve);
      port.send({ type: 'clients' } satisfies ClientsMessage);
    });
  }

  now(): number {
    return this.#machine.now();
  }

  time(): number {
    return this.#machine.time();
  }

  after(ms: number, run: () => void): () => void {
    return this.#machine.after(ms, () => this.#whenIdle(run));
  }

  channel(name: string, receive: (message: Message) => void): Channel {
    const client = this.#client;
    if (name === names.all(DATABASE)) {
      this.#toAll = receive;
      return {
        post: (message) =>
          this.#hub === undefined ? this.#port?.send(message) : this.#hub.announce(message as Announcement),
        close: () => {
          this.#toAll = () => {};
        },
      };
    }
    if (name === names.of(DATABASE, client)) {
      this.#toOwn = receive;
      return {
        post: (message) => this.#port?.send(message),
        close: () => {
          this.#toOwn = () => {};
        },
      };
    }
    const member = name.slice(names.of(DATABASE, '').length);
    const hub = this.#hub;
    const close = hub?.channel(member, (message) => this.#whenIdle(() => receive(message)));
    return { post: (message) => hub?.send(member, message as Exchange), close: () => close?.() };
  }

  lock(name: string, _steal: boolean, { granted }: LockCallbacks): () => void {
    const client = this.#client;
    if (name === names.leader(DATABASE)) {
      const wish = (): void => granted(() => void this.#resign());
      this.#wish = wish;
      if (this.#hub !== undefined) soon(() => this.#grant());
      else this.#seek();
      return () => {
        if (this.#wish === wish) this.#wish = undefined;
        // It was granted, but nobody was told yet.
        else void this.#resign();
      };
    }
    if (name === names.client(DATABASE, client)) {
      const leave = (): void => void this.end();
      this.#isOver = false;
      this.#joined = () => granted(leave);
      this.#seek();
      return leave;
    }
    const member = name.slice(names.client(DATABASE, '').length);
    const hub = this.#hub;
    return hub?.whenGone(member, () => this.#whenIdle(() => granted(() => {}))) ?? (() => {});
  }

  /** Nobody is kept. */
  dropKept(): void {}

  openEngine(opened: (engine: LeaderEngine) => void, failed: (error: KvError) => void): () => void {
    const controller = new AbortController();
    const { signal } = controller;
    this.#open(signal).then(
      (engine) => {
        if (signal.aborted) engine.dispose();
        else opened(engine);
      },
      (error: unknown) => {
        if (!signal.aborted) failed(toKvError(error, `open ${this.#machine.directory}`));
      },
    );
    return () => controller.abort();
  }

  noAnswer(ms: number): string {
    const leader = this.leader ?? this.#machine.address();
    return `${leader === undefined ? 'another process' : `process ${leader.pid}`}, which leads, did not answer within ${ms} ms`;
  }

  /** Whether the one who leads has taken the connection, or may do so any moment. */
  get isMet(): boolean {
    return this.#hub !== undefined || this.#port !== undefined || this.#isMeeting;
  }

  locked(title: string): KvError {
    const { text, isSilent } = this.#machine.holder();
    const { pid, reason } = this.#machine.address() ?? {};
    const why = this.#refusal ?? reason;
    if (why !== undefined) return locked(`${title} is open in process ${pid}, which cannot share it: ${why}`, true);
    // Without an address it does not share, or does not yet.
    if (pid === undefined || this.#unreachable === undefined) {
      const answer = pid === undefined ? '' : '; it leads, but does not answer';
      return locked(`${title} is open ${text}${answer}`, !isSilent);
    }
    return locked(`${title} is open ${text}; its socket cannot be reached from here (${this.#unreachable})`, !isSilent);
  }

  /** Leaves: ends the connection, or leads no more. Resolves when what was sent last has arrived. */
  end(): Promise<void> {
    this.#isOver = true;
    this.#wish = this.#joined = undefined;
    this.#wake();
    this.#abort();
    const port = this.#port;
    this.#port = undefined;
    this.#closing = Promise.all([this.#closing, port?.close(), this.#resign()]).then(() => undefined);
    return this.#closing;
  }

  /** Ends the hub and releases the lock. */
  #resign(): Promise<void> {
    const [hub, unlock] = [this.#hub, this.#unlock];
    this.#hub = this.#unlock = undefined;
    if (hub === undefined) return Promise.resolve();
    const closing = hub.close(() => unlock?.());
    this.#closing = Promise.all([this.#closing, closing]).then(() => undefined);
    if (!this.#isOver) this.#seek();
    return closing;
  }

  #lead(lock: Release): void {
    this.#unlock = lock;
    const hub = new Hub(this.#machine);
    hub.onannouncement = (message) => this.#whenIdle(() => this.#toAll(message));
    this.#hub = hub;
    this.onleader(hub.leader);
    // Opening does not wait until others can connect.
    this.#machine.nextTurn(() => void hub.listen());
  }

  #grant(): void {
    const wish = this.#wish;
    this.#wish = undefined;
    if (this.#hub !== undefined) wish?.();
    else this.#wish = wish;
  }

  #join(): void {
    const joined = this.#joined;
    this.#joined = undefined;
    joined?.();
  }

  /** Looks for the one who leads, and leads if there is none. */
  #seek(): void {
    if (this.#isSeeking || this.#isOver || this.#hub !== undefined || this.#port !== undefined) return;
    this.#isSeeking = true;
    void this.#seekOn().finally(() => {
      this.#isSeeking = false;
      // Something may have ended since.
      this.#seek();
    });
  }

  /** Ends the pause between two attempts. */
  #wake: () => void = () => {};
  /** Ends the wait for a welcome. */
  #abort: () => void = () => {};

  async #seekOn(): Promise<void> {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
      await Promise.resolve();
      const isFound = !this.#isOver && ((await this.#connect()) || this.#tryToLead());
      if (isFound || this.#isOver) return;
      await new Promise<void>((resolve) => {
        const cancel = this.#machine.after(pauseMs, resolve);
        this.#wake = () => {
          cancel();
          resolve();
        };
      });
    }
  }

  #tryToLead(): boolean {
    // A handle that could not open the files lets others try.
    if (this.#wish === undefined && this.#joined === undefined) return false;
    let lock: Release | undefined;
    try {
      lock = this.#machine.tryLock();
    } catch (error) {
      // The directory may be gone. Pending calls reject after their deadline.
      this.#unreachable = error instanceof Error ? error.message : String(error);
    }
    if (lock === undefined) {
      this.#mayReturn = true;
      return false;
    }
    this.#lead(lock);
    this.#join();
    this.#grant();
    return true;
  }

  /** Connects to the one who leads; returns whether that has worked. */
  async #connect(): Promise<boolean> {
    const { pid, title } = this.#machine;
    const introduction = { protocol: PROTOCOL, client: this.#client, pid, title };
    const address = this.#machine.address();
    const local = this.#machine.local()?.join(introduction);
    if (local !== undefined) return this.#met(local, address);
    // The file may still name the leader that ended last.
    if (address?.socket === undefined || (address.token === this.#address?.token && !this.#mayReturn)) return false;
    try {
      const port = await this.#machine.connect(address, introduction);
      this.#unreachable = undefined;
      return await this.#met(port, address);
    } catch (error) {
      this.#unreachable = error instanceof Error ? error.message : String(error);
      return false;
    }
  }

  async #met(port: Port, address: Address | undefined): Promise<boolean> {
    this.#isMeeting = true;
    const isMember = await new Promise<boolean>((resolve) => {
      this.#abort = () => {
        void port.close();
        resolve(false);
      };
      port.onclose = () => resolve(false);
      port.onmessage = (first) => {
        const welcome = first as Welcome;
        if (this.#isOver || welcome?.type !== 'welcome') {
          this.#refusal = welcome?.type === 'refused' ? String(welcome.reason) : undefined;
          void port.close();
          resolve(false);
          return;
        }
        this.#address = address;
        this.#leader = { pid: welcome.pid, since: welcome.since };
        this.#refusal = undefined;
        this.#port = port;
        port.onmessage = (value) => this.#receive(value);
        port.onclose = () => {
          if (this.#port !== port) return;
          this.#port = undefined;
          this.#mayReturn = false;
          for (const answer of this.#asking.splice(0)) answer([]);
          // A leader that goes on forgets a client that does not introduce itself again at once.
          this.#toAll({ type: 'resign', term: this.#term, heir: undefined });
          this.#seek();
        };
        resolve(true);
        this.onleader(this.#leader);
        this.#join();
      };
    });
    this.#isMeeting = false;
    return isMember;
  }

  #receive(value: unknown): void {
    const { type, clients } = (value ?? {}) as Partial<ClientsMessage>;
    if (type === 'clients') return this.#asking.shift()?.(clients ?? []);
    const message = checkMessage('toMember', value);
    if (message === undefined) return;
    if (message.type === 'lead') this.#term = message.term;
    if (message.type === 'lead' || message.type === 'opening' || message.type === 'resign') this.#toAll(message);
    else this.#toOwn(message as Exchange);
  }
}

function locked(message: string, retryable: boolean): KvError {
  return new KvError('KV_LOCKED', message, { retryable });
}
