// The simulated world of the tabs of one database: a clock, channels, locks and files, which can
// fail as a browser's do, and checks of the invariants.
import { KvError } from '../../src/base/errors.ts';
import type { Channel, Environment, LeaderEngine, LockCallbacks } from '../../src/tabs/environment.ts';
import { HEARTBEAT_MS, MISSED_HEARTBEATS, names } from '../../src/tabs/messages.ts';
import type { Message } from '../../src/tabs/messages.ts';
import { Events } from './events.ts';
import type { Event } from './events.ts';
import { Ledger } from './ledger.ts';
import type { Settlements } from './ledger.ts';
import type { Random } from './random.ts';
import { ModelEngine } from './store.ts';
import type { Fate, Observer } from './store.ts';
import { Tab } from './tab.ts';

export const DATABASE = 'db';
/** Unix time at which the simulation starts, in milliseconds. */
const FIRST_TIME = 1_700_000_000_000;
/** Far more than any schedule needs. */
const MAX_STEPS = 100_000;
const LEADER_LOCK = names.leader(DATABASE);
const ALL = names.all(DATABASE);

/** Probabilities of faults, between 0 and 1 unless another unit is given. */
export interface Faults {
  /** A message to one listener is lost. */
  drop: number;
  duplicate: number;
  /** A message arrives up to `delayMs` later, and so out of order. */
  delay: number;
  delayMs: number;
  /**
   * A message is routed up to `delayMs` later, so tabs that have begun to listen by then receive it
   * too.
   */
  underway: number;
  /** A message to a frozen tab is delivered after it thaws, instead of never. */
  buffer: number;
  /** The engine crashes at a step of an execution. */
  crash: number;
  /** The tab dies at a step of an execution or of another action. */
  die: number;
  /** Opening the files fails. */
  notOpened: number;
  /** There is temporarily no memory for an engine. */
  noRoom: number;
  /** Closing the files fails. */
  notClosed: number;
  /** A commit is stored with a delay. */
  later: number;
  /** A reply is full before the message is at its end. */
  cut: number;
  /** Maximum delay of timers, in milliseconds. */
  lateMs: number;
}

export const noFaults: Faults = {
  drop: 0,
  duplicate: 0,
  delay: 0,
  delayMs: 0,
  underway: 0,
  buffer: 1,
  crash: 0,
  die: 0,
  notOpened: 0,
  noRoom: 0,
  notClosed: 0,
  later: 0,
  cut: 0,
  lateMs: 0,
};

export interface Counts extends Settlements {
  steps: number;
  messages: number;
  drops: number;
  duplicates: number;
  delays: number;
  kills: number;
  freezes: number;
  steals: number;
  opened: number;
  resigned: number;
  engineCrashes: number;
}

/**
 * A tab that comes back steals the lock of its name. The previous holder may learn of that up to
 * this many milliseconds later.
 */
const RETURN_MS = 50;

interface Grant {
  readonly tab: Tab;
  readonly callbacks: LockCallbacks;
  state: 'waiting' | 'held' | 'over';
  wasTold: boolean;
  toldAt: number;
}

interface Lock {
  holder: Grant | undefined;
  queue: Grant[];
}

interface Listener {
  readonly tab: Tab;
  readonly receive: (message: Message) => void;
  isOpen: boolean;
}

/** The holder of the files. */
interface Holder {
  readonly tab: Tab;
  engine: ModelEngine | undefined;
}

/** Thrown when a tab dies in the middle of an action; nothing after that reaches the world. */
class Death extends Error {}

export class World extends Ledger {
  readonly random: Random;
  faults: Faults;
  readonly tabs: Tab[] = [];
  readonly counts: Counts = {
    steps: 0,
    messages: 0,
    drops: 0,
    duplicates: 0,
    delays: 0,
    kills: 0,
    freezes: 0,
    steals: 0,
    opened: 0,
    resigned: 0,
    engineCrashes: 0,
    commits: 0,
    lost: 0,
    acknowledged: 0,
    refused: 0,
    failed: 0,
  };
  /** Length in milliseconds of each period without an engine during which some visible tab ran. */
  readonly takeOvers: number[] = [];
  /** Decides for each message whether it is lost. */
  isLost: ((message: Message, to: Tab) => boolean) | undefined;
  /** Decides for each message whether it is held back until the story delivers it. */
  isHeld: ((message: Message, to: Tab) => boolean) | undefined;
  readonly held: { readonly message: Message; readonly hear: () => void }[] = [];
  readonly #events = new Events();
  readonly #locks = new Map<string, Lock>();
  readonly #channels = new Map<string, Listener[]>();
  #holder: Holder | undefined;
  #leaderlessSince = 0;
  #clockOffset = 0;
  #stoppedClock: number | undefined;

  constructor(random: Random, faults: Partial<Faults> = {}) {
    super();
    this.random = random;
    this.faults = { ...noFaults, ...faults };
  }

  forgot(client: string): void {
    const holder = this.#locks.get(names.client(DATABASE, client))?.holder;
    // A leader that leaves deletes its own row. A tab that has just come back was idle when it
    // left, so it needs nothing from its row.
    const isThere = holder?.wasTold === true && holder.tab.id === client && this.now - holder.toldAt > RETURN_MS;
    if (isThere && !holder.tab.isLeaving) this.violate(`${client} is forgotten although it is alive`);
  }

  get leader(): Tab | undefined {
    return this.#holder?.engine === undefined ? undefined : this.#holder.tab;
  }

  /** Whether the tab holds the files. */
  holds(tab: Tab): boolean {
    return this.#holder?.tab === tab;
  }

  // Time.

  /**
   * Plans something in a tab. It is dropped if the tab is dead, and deferred while the tab is
   * frozen.
   */
  later(ms: number, tab: Tab | undefined, run: () => void): Event {
    const event: Event = this.#events.plan(this.now + ms, () => {
      if (tab === undefined) return run();
      if (!tab.isAlive) return;
      if (tab.isFrozen) tab.deferred.push(event);
      else run();
    });
    return event;
  }

  /** Advances time by `ms`, or until a violation or `isEnough`. */
  run(ms: number, isEnough?: () => boolean): void {
    const until = this.now + ms;
    while (this.violation === undefined && isEnough?.() !== true) {
      const event = this.#events.take(until);
      if (event === undefined) {
        this.now = until;
        return;
      }
      this.now = event.at;
      if (++this.counts.steps > MAX_STEPS) return this.violate('the tabs do not come to rest');
      event.run();
      this.check();
    }
  }

  /** Checks the invariants that hold after each step. */
  check(): void {
    let couldLead = false;
    for (const tab of this.tabs) {
      if (!tab.isAlive) continue;
      tab.check();
      couldLead ||= tab.isOpen && tab.isVisible;
    }
    if (!couldLead) this.#leaderlessSince = this.now;
  }

  stepClock(ms: number): void {
    this.say(() => `the clock is set back by ${ms} ms`);
    this.#clockOffset -= ms;
  }

  stopClock(): void {
    this.#stoppedClock = FIRST_TIME + this.now + this.#clockOffset;
  }

  // Tabs.

  open(options: { visible?: boolean; exclusive?: boolean; deadlineMs?: number } = {}): Tab {
    const tab = new Tab(this, `t${this.tabs.length + 1}`, options);
    this.tabs.push(tab);
    this.say(() => `${tab.id} opens`);
    tab.start();
    return tab;
  }

  /** Ends the worker in a tab and starts another in its place, which knows nothing of the first. */
  restart(tab: Tab): Tab {
    this.kill(tab);
    const again = new Tab(this, tab.id, { visible: tab.isVisible, deadlineMs: tab.deadlineMs, isAgain: true });
    this.tabs.push(again);
    this.say(() => `${tab.id} opens again`);
    again.start();
    return again;
  }

  kill(tab: Tab): void {
    if (!tab.isAlive) return;
    this.say(() => `${tab.id} is killed`);
    this.counts.kills++;
    this.end(tab);
  }

  /**
   * Closes its channels at once; its locks become free within 50 ms, and the files within 500 ms.
   */
  end(tab: Tab): void {
    tab.isAlive = false;
    tab.deferred.length = 0;
    for (const listeners of this.#channels.values())
      for (const listener of listeners) if (listener.tab === tab) listener.isOpen = false;
    for (const [name, lock] of this.#locks) {
      for (const grant of lock.queue) if (grant.tab === tab) grant.state = 'over';
      lock.queue = lock.queue.filter((grant) => grant.tab !== tab);
      const { holder } = lock;
      if (holder?.tab === tab) this.later(this.random.below(50), undefined, () => this.#release(name, holder));
    }
    const held = this.#holder;
    if (held?.tab !== tab) return;
    if (held.engine !== undefined) this.#leaderlessSince = this.now;
    held.engine?.die();
    this.later(this.random.below(500), undefined, () => {
      if (this.#holder === held) this.#holder = undefined;
    });
  }

  freeze(tab: Tab): void {
    if (tab.isFrozen || !tab.isAlive) return;
    this.say(() => `${tab.id} is frozen`);
    this.counts.freezes++;
    tab.isFrozen = true;
    tab.frozenAt = this.now;
  }

  /** Puts the tab into the back/forward cache before it can release anything. */
  keep(tab: Tab): void {
    this.freeze(tab);
    tab.isKept = true;
  }

  thaw(tab: Tab): void {
    if (!tab.isFrozen || !tab.isAlive) return;
    this.say(() => `${tab.id} thaws`);
    tab.isFrozen = tab.isKept = false;
    tab.ranSince = this.now;
    if (this.now - tab.frozenAt > 2 * HEARTBEAT_MS) tab.sleptUntil = this.now;
    for (const event of tab.deferred.splice(0)) {
      if (event.isCancelled) continue;
      this.later(this.random.below(20), tab, () => {
        if (!event.isCancelled) event.run();
      });
    }
  }

  // The environment of a tab.

  environmentOf(tab: Tab): Environment {
    return {
      now: () => this.now,
      time: () => this.#stoppedClock ?? FIRST_TIME + this.now + this.#clockOffset,
      after: (ms, run) => {
        const event = this.later(ms + this.random.below(1 + this.faults.lateMs), tab, run);
        return () => {
          event.isCancelled = true;
        };
      },
      channel: (name, receive) => this.#channel(tab, name, receive),
      lock: (name, steal, callbacks) => this.#lock(tab, name, steal, callbacks),
      isOrdered: false,
      noAnswer: (ms) => `no tab answered within ${ms} ms`,
      locked: (title) => new KvError('KV_LOCKED', `${title} is held by another tab`, { retryable: true }),
      dropKept: () => {
        if (this.tabs.some(({ isKept }) => isKept) && this.#survives(tab))
          this.later(this.random.below(20), undefined, () => this.#dropKept());
      },
      openEngine: (opened, failed) => this.#openEngine(tab, opened, failed),
    };
  }

  #dropKept(): void {
    for (const tab of this.tabs) {
      if (tab.isKept && [...this.#locks.values()].some(({ holder }) => holder?.tab === tab)) this.kill(tab);
    }
  }

  /** Lets the tab die at random; returns whether it is alive. */
  #survives(tab: Tab): boolean {
    if (tab.isAlive && this.random.chance(this.faults.die)) this.kill(tab);
    return tab.isAlive;
  }

  #channel(tab: Tab, name: string, receive: (message: Message) => void): Channel {
    const listener: Listener = { tab, receive, isOpen: tab.isAlive };
    let listeners = this.#channels.get(name);
    if (listeners === undefined) this.#channels.set(name, (listeners = []));
    listeners.push(listener);
    return {
      post: (message) => {
        if (!this.#survives(tab)) return;
        if (!listener.isOpen) return this.violate(`${tab.id} posts ${message.type} on a channel that it closed`);
        this.#post(listener, name, message);
      },
      close: () => {
        if (!this.#survives(tab)) return;
        listener.isOpen = false;
        this.#channels.set(
          name,
          this.#channels.get(name)!.filter((one) => one !== listener),
        );
      },
    };
  }

  #post(from: Listener, name: string, message: Message): void {
    this.counts.messages++;
    if (message.type === 'resign') {
      this.counts.resigned++;
      if (this.holds(from.tab)) this.violate(`${from.tab.id} says that it resigned, but holds the files`);
    }
    this.say(() => `${from.tab.id} says ${describe(message)}`);
    if (!this.random.chance(this.faults.underway)) return this.#route(from, name, message);
    // Delivery goes to the listeners at the time of routing.
    this.counts.delays++;
    this.later(this.random.below(this.faults.delayMs), undefined, () => this.#route(from, name, message));
  }

  #route(from: Listener, name: string, message: Message): void {
    for (const listener of this.#channels.get(name) ?? []) {
      // On the channel of all tabs, a sender hears itself.
      if (!listener.isOpen || (listener === from && name !== ALL)) continue;
      this.#deliver(listener, message);
      if (!this.random.chance(this.faults.duplicate)) continue;
      this.counts.duplicates++;
      this.#deliver(listener, message);
    }
  }

  #deliver(listener: Listener, message: Message): void {
    const { tab } = listener;
    const isBuffered = !tab.isFrozen || this.random.chance(this.faults.buffer);
    if (!isBuffered || this.random.chance(this.faults.drop) || this.isLost?.(message, tab) === true) {
      this.counts.drops++;
      this.say(() => `  ${tab.id} will not hear ${message.type}`);
      return;
    }
    let ms = 1 + this.random.below(3);
    if (this.random.chance(this.faults.delay)) {
      this.counts.delays++;
      ms += this.random.below(this.faults.delayMs);
    }
    const hear = (): void => {
      if (!listener.isOpen) return;
      this.say(() => `  ${tab.id} hears ${describe(message)}`);
      tab.heard(message);
      listener.receive(message);
    };
    if (this.isHeld?.(message, tab) === true) this.held.push({ message, hear });
    else this.later(ms, tab, hear);
  }

  #lock(tab: Tab, name: string, steal: boolean, callbacks: LockCallbacks): () => void {
    if (!this.#survives(tab)) return () => {};
    let lock = this.#locks.get(name);
    if (lock === undefined) this.#locks.set(name, (lock = { holder: undefined, queue: [] }));
    const grant: Grant = { tab, callbacks, state: 'waiting', wasTold: false, toldAt: 0 };
    if (steal) {
      if (name === LEADER_LOCK) this.#checkSteal(tab);
      this.#takeAway(name, lock);
      lock.queue.unshift(grant);
    } else {
      lock.queue.push(grant);
    }
    this.#grantNext(name, lock);
    return () => {
      if (grant.state === 'waiting') {
        grant.state = 'over';
        lock.queue = lock.queue.filter((one) => one !== grant);
      } else if (grant.state === 'held' && !grant.wasTold) {
        this.#release(name, grant);
      }
    };
  }

  #takeAway(name: string, lock: Lock): void {
    const { holder } = lock;
    if (holder === undefined) return;
    lock.holder = undefined;
    holder.state = 'over';
    // A holder whose grant has not been delivered may receive it now, immediately followed by the
    // loss.
    const isToldLate = !holder.wasTold && this.random.chance(0.5);
    const lost = (): void => {
      this.say(() => `${holder.tab.id} lost ${name}`);
      holder.callbacks.lost?.();
    };
    this.later(1 + this.random.below(3), holder.tab, () => {
      if (!isToldLate) return lost();
      this.later(0, holder.tab, lost);
      holder.callbacks.granted(() => {});
    });
  }

  #grantNext(name: string, lock: Lock): void {
    if (lock.holder !== undefined) return;
    const grant = lock.queue.shift();
    if (grant === undefined) return;
    lock.holder = grant;
    grant.state = 'held';
    this.later(1 + this.random.below(3), grant.tab, () => {
      if (grant.state !== 'held') return;
      grant.wasTold = true;
      grant.toldAt = this.now;
      this.say(() => `${grant.tab.id} has ${name}`);
      grant.callbacks.granted(() => {
        if (!this.#survives(grant.tab)) return;
        if (name === LEADER_LOCK && this.holds(grant.tab))
          this.violate(`${grant.tab.id} releases the lock while it holds the files`);
        this.#release(name, grant);
      });
    });
  }

  #release(name: string, grant: Grant): void {
    const lock = this.#locks.get(name)!;
    if (lock.holder !== grant) return;
    grant.state = 'over';
    lock.holder = undefined;
    this.#grantNext(name, lock);
  }

  /** Checks the conditions for stealing against what the world itself delivered. */
  #checkSteal(tab: Tab): void {
    this.counts.steals++;
    this.say(() => `${tab.id} steals`);
    const silentMs = this.now - tab.heardLeaderAt;
    if (!tab.isVisible) this.violate(`${tab.id} steals although it is not visible`);
    if (tab.heardLeaderAt === -Infinity) this.violate(`${tab.id} steals although it never heard who has the lock`);
    if (silentMs < MISSED_HEARTBEATS * HEARTBEAT_MS)
      this.violate(`${tab.id} steals although it heard the leader ${silentMs} ms ago`);
    if (this.now - tab.heardItselfAt > 2 * HEARTBEAT_MS)
      this.violate(`${tab.id} steals although it does not hear itself`);
    if (this.now - tab.sleptUntil < MISSED_HEARTBEATS * HEARTBEAT_MS)
      this.violate(`${tab.id} steals although it has just slept`);
    const pauseMs = 60_000 * 2 ** (tab.steals - 1);
    if (this.now - tab.stoleAt < pauseMs)
      this.violate(`${tab.id} steals ${this.now - tab.stoleAt} ms after its previous theft`);
    tab.stoleAt = this.now;
    tab.steals++;
  }

  #openEngine(tab: Tab, opened: (engine: LeaderEngine) => void, failed: (error: KvError) => void): () => void {
    if (!this.#survives(tab)) return () => {};
    const holder: Holder = { tab, engine: undefined };
    const started = this.now;
    let isOver = false;
    let pauseMs = 10;
    const letGo = (): void => {
      if (this.#holder === holder) this.#holder = undefined;
    };
    const attempt = (): void => {
      if (isOver) return;
      if (this.#holder !== undefined) {
        if (this.now - started >= 10_000) {
          isOver = true;
          return failed(new KvError('KV_LOCKED', 'the files are held', { retryable: true }));
        }
        this.later(pauseMs, tab, attempt);
        pauseMs = Math.min(2 * pauseMs, 500);
        return;
      }
      this.#holder = holder;
      this.later(1 + this.random.below(40), tab, () => {
        if (isOver) return;
        isOver = true;
        if (this.random.chance(this.faults.noRoom)) {
          letGo();
          this.say(() => `${tab.id} has no room for the engine`);
          return failed(new KvError('KV_IO', 'no room', { retryable: true }));
        }
        if (this.random.chance(this.faults.notOpened)) {
          letGo();
          const code = this.random.pick(['KV_QUOTA_EXCEEDED', 'KV_IO'] as const);
          this.say(() => `${tab.id} cannot open: ${code}`);
          return failed(new KvError(code, 'injected by the schedule'));
        }
        this.counts.opened++;
        this.say(() => `${tab.id} has the engine`);
        this.takeOvers.push(this.now - this.#leaderlessSince);
        holder.engine = new ModelEngine(this.store, this.#observerIn(tab), this.#fateOf(tab), () => {
          if (!tab.isAlive) return;
          this.say(() => `${tab.id} closed the files`);
          // A tab that led knows that there was a leader.
          tab.heardLeaderAt = this.now;
          this.#leaderlessSince = this.now;
          letGo();
        });
        opened(holder.engine);
      });
    };
    this.later(1, tab, attempt);
    return () => {
      if (isOver) return;
      isOver = true;
      if (tab.isAlive) letGo();
    };
  }

  #observerIn(tab: Tab): Observer {
    return {
      committed: (id) => this.committed(id),
      undone: (id) => this.undone(id),
      forgot: (client) => {
        if (tab.isAlive) this.forgot(client);
      },
      violate: (what) => {
        if (tab.isAlive) this.violate(`${tab.id}: ${what}`);
      },
    };
  }

  #fateOf(tab: Tab): Fate {
    return {
      step: () => {
        if (!this.#survives(tab)) throw new Death();
        if (!this.random.chance(this.faults.crash)) return;
        this.counts.engineCrashes++;
        this.say(() => `the engine in ${tab.id} crashes`);
        throw new Error('crashed');
      },
      losesOf: (count) => this.random.below(count + 1),
      later: (stored) => {
        if (!this.random.chance(this.faults.later)) return false;
        this.later(1 + this.random.below(50), tab, stored);
        return true;
      },
      isFull: () => this.random.chance(this.faults.cut),
      failsToClose: () => this.random.chance(this.faults.notClosed),
    };
  }
}

function describe(message: Message): string {
  return JSON.stringify(message, (key, value: unknown) => {
    if (value instanceof Uint8Array) return `${value.length} bytes`;
    return key === 'protocol' ? undefined : value;
  });
}
