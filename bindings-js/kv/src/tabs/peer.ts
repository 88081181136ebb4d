// One of the tabs that share a database: it waits to lead, leads, and resigns. Safety does not
// depend on any of this, as only the holder of the files can write them. See docs/SHARING.md.
import { KvError } from '../base/errors.ts';
import { Client } from './client.ts';
import type { Channel, Environment, LeaderEngine, PageEvents } from './environment.ts';
import { Leader } from './leader.ts';
import { HEARTBEAT_MS, MISSED_HEARTBEATS, PROTOCOL, names } from './messages.ts';
import type { Announcement } from './messages.ts';

/** Minimum time between the first two steals by the same tab. Doubles with each steal. */
const FIRST_STEAL_PAUSE_MS = 60_000;
/** How long other tabs let the heir of a resigned leader go first. */
const HEIR_FIRST_MS = 1000;
/** Pause before a tab that could not open the engine requests the leader's lock again. */
const RETRY_MS = 1000;
/** A longer gap between two ticks shows that this tab did not run. */
const LATE_TICK_MS = 2 * HEARTBEAT_MS;

export interface PeerOptions {
  readonly database: string;
  /** How errors name the database. */
  readonly title: string;
  /** Unique to this tab while the database is open. */
  readonly id: string;
  /** Replaces a worker that has ended. What was open in that worker is lost. */
  readonly isAgain: boolean;
  readonly readOnly: boolean;
  /** `open` fails if another tab has the database open. */
  readonly exclusive: boolean;
  readonly deadlineMs: number;
  /** What is wrong with this tab's key for an open database with this sealed key. */
  refusal?(sealedKey: Uint8Array | undefined): KvError | undefined;
}

type Role =
  /** Waits for the lock of its name. */
  | 'joining'
  | 'follower'
  /** Holds the leader's lock and opens the files. */
  | 'opening'
  | 'leader'
  /** The page is frozen or in the back/forward cache. */
  | 'away'
  | 'gone';

export class Peer {
  readonly #env: Environment;
  readonly #options: PeerOptions;
  readonly #page: PageEvents;
  readonly #client: Client;
  #role: Role = 'joining';
  #channel: Channel | undefined;
  #leader: Leader | undefined;
  #joinedAt: number;
  /** Releases the leader's lock, or withdraws the request for it. */
  #letGo: () => void = () => {};
  #cancelOpening: () => void = () => {};
  #cancelRetry: () => void = () => {};
  #cancelTick: () => void = () => {};
  #releaseName: () => void = () => {};
  /** The tab that goes first until then, if it wants to lead. */
  #heir: { readonly id: string; readonly until: number } | undefined;
  /**
   * When a tab last resigned, opened the files or yielded the lock, if no leader was heard since.
   */
  #openingAt: number | undefined;
  /** When this tab last received its own announcement. */
  #echoAt = -Infinity;
  #tickAt = 0;
  #wasLate = false;
  /** Consecutive punctual ticks with the leader silent and the page visible. */
  #silentTicks = 0;
  #stealPauseMs = FIRST_STEAL_PAUSE_MS;
  #mayStealAt = -Infinity;
  /** The role to take once all messages are answered. */
  #whenIdle: 'away' | 'gone' | undefined;

  constructor(env: Environment, options: PeerOptions, page: PageEvents) {
    this.#env = env;
    this.#options = options;
    this.#page = page;
    this.#joinedAt = env.now();
    this.#client = new Client(env, options, page, (message) => this.#channel?.post(message));
  }

  get role(): Role {
    return this.#role;
  }

  /** Takes the messages of the page. */
  get client(): Pick<Client, 'push' | 'gather'> {
    return this.#client;
  }

  start(): void {
    this.#start(false);
  }

  #start(isBack: boolean): void {
    const { database, id } = this.#options;
    this.#role = 'joining';
    this.#openingAt = undefined;
    this.#joinedAt = this.#tickAt = this.#env.now();
    this.#channel = this.#env.channel(names.all(database), (message) => this.#hear(message as Announcement));
    this.#client.join();
    // Others take this lock for the end of this tab, so the tab must hold it before anyone hears of
    // it. A tab that returns steals it, as a frozen leader may have acquired it in the meantime.
    const end = this.#env.lock(names.client(database, id), isBack, {
      granted: (release) => {
        this.#releaseName = release;
        if (this.#role !== 'joining') return release();
        this.#role = 'follower';
        this.#page.joined();
        this.#who();
        this.#queue(false);
      },
    });
    this.#releaseName = end;
    this.#tickLater();
  }

  /** There are commits that were not made by a request. */
  wakeClients(sessions: readonly number[]): void {
    this.#leader?.wakeClients(sessions);
  }

  /** The engine failed outside a request. */
  engineFailed(error: KvError): void {
    this.#leader?.fail(error);
  }

  /** The files are gone, so no tab can continue. */
  end(error: KvError): void {
    this.#leader?.abandon();
    this.#leader = undefined;
    this.#fail(error);
  }

  /** The page became visible or hidden. */
  setVisible(visible: boolean): void {
    if (visible === this.#client.visible) return;
    this.#client.visible = visible;
    this.#client.showVisible();
    this.#considerResigning();
  }

  /** The page is frozen, enters the back/forward cache or is unloaded. */
  hide(): void {
    if (this.#role === 'away' || this.#role === 'gone') return;
    this.#client.sendGathered();
    // A page that is left can wait for nobody: no other tab may be there in time for what it saved
    // last. If it leads, it resigns when that is done.
    if (this.#role !== 'leader' || this.#client.isIdle) this.#resign(false);
    // A tab with unanswered requests keeps the lock of its name. Otherwise the leader would delete
    // its row in the client table, and a resend could be executed twice.
    this.#endWhenIdle(this.#whenIdle ?? 'away');
  }

  /** The page has thawed or is shown again. */
  show(): void {
    if (this.#whenIdle === 'away') this.#endWhenIdle(undefined);
    if (this.#role === 'away') this.#start(true);
    else if (this.#role === 'follower') this.#queue(false);
  }

  /** Closes everything once all messages are answered. */
  leave(): void {
    if (this.#role === 'gone') return;
    this.#endWhenIdle('gone');
  }

  #endWhenIdle(next: 'away' | 'gone' | undefined): void {
    this.#whenIdle = next;
    this.#client.onAnswered = next && (() => this.#checkIdle(next));
    if (next !== undefined) this.#checkIdle(next);
  }

  #checkIdle(next: 'away' | 'gone'): void {
    if (this.#role === 'gone' || !(this.#client.isIdle || this.#role === 'away')) return;
    this.#endWhenIdle(undefined);
    // The tab may have become the leader while it waited.
    const failure = this.#resign(next === 'gone');
    this.#part(next);
    if (next === 'gone') this.#page.left(failure);
  }

  /** Releases everything. */
  #part(role: 'away' | 'gone'): void {
    this.#role = role;
    this.#cancelOpening();
    this.#letGo();
    this.#cancelRetry();
    this.#cancelTick();
    this.#client.part();
    this.#channel?.close();
    this.#channel = undefined;
    this.#releaseName();
  }

  #fail(error: KvError): void {
    if (this.#role === 'gone') return;
    this.#part('gone');
    this.#page.failed(error);
  }

  #who(): void {
    this.#channel?.post({ type: 'who', protocol: PROTOCOL, client: this.#options.id });
  }

  #hear(message: Announcement): void {
    if (this.#role === 'away' || this.#role === 'gone') return;
    if ('client' in message && message.client === this.#options.id) {
      this.#echoAt = this.#env.now();
      return;
    }
    switch (message.type) {
      case 'who':
        if (message.protocol === PROTOCOL) this.#leader?.announce();
        else this.#meetOther();
        return;
      case 'lead':
        if (message.protocol === PROTOCOL) this.#follow(message);
        else if (!this.#client.hasOpened) this.#page.blocked('version');
        return;
      case 'resign':
        this.#client.resigned(message.term);
        this.#openingAt = this.#env.now();
        if (message.heir !== undefined) this.#heir = { id: message.heir, until: this.#env.now() + HEIR_FIRST_MS };
        return;
      case 'hello':
        if (message.protocol === PROTOCOL) this.#leader?.hello(message.client, message.visible);
        else this.#meetOther();
        return;
      case 'wanted':
        return this.#page.blocked('maintenance');
      case 'opening':
        this.#client.forgetLeader();
        this.#openingAt = this.#env.now();
    }
  }

  /** A tab of another version was heard. If this tab leads, the other has to wait for its end. */
  #meetOther(): void {
    if (this.#leader === undefined) return;
    this.#leader.announce();
    this.#page.blocked('version');
  }

  #follow({ term, version, sealedKey }: Extract<Announcement, { type: 'lead' }>): void {
    // The leader may be about to acquire the lock of this name, and to forget the tab.
    if (this.#role === 'joining') return;
    if (this.#options.exclusive && !this.#client.hasOpened) {
      return this.#fail(
        new KvError('KV_EXISTS', `the database ${this.#options.title} exists already, and is open elsewhere`),
      );
    }
    // Once for each leader, as a key may have to be derived.
    if (!this.#client.hasOpened && term !== this.#client.term) {
      const refusal = this.#options.refusal?.(sealedKey);
      if (refusal !== undefined) return this.#fail(refusal);
    }
    this.#openingAt = undefined;
    this.#client.hear(term, version);
  }

  /** Requests or steals the leader's lock. */
  #queue(steal: boolean): void {
    this.#letGo();
    let isOver = false;
    let held: (() => void) | undefined;
    const end = this.#env.lock(names.leader(this.#options.database), steal, {
      granted: (release) => {
        if (isOver) return release();
        held = release;
        this.#granted();
      },
      lost: () => {
        if (isOver) return;
        isOver = true;
        this.#lost();
      },
    });
    this.#letGo = () => {
      if (isOver) return;
      isOver = true;
      (held ?? end)();
    };
  }

  #granted(): void {
    if (this.#role !== 'follower') return;
    const heir = this.#heir;
    if (heir !== undefined && heir.id !== this.#options.id && this.#env.now() < heir.until)
      return this.#requeue(HEIR_FIRST_MS / 4);
    this.#open();
  }

  /** Yields the leader's lock, and requests it again after `ms`. */
  #requeue(ms: number): void {
    this.#role = 'follower';
    this.#openingAt = this.#env.now();
    this.#letGo();
    this.#cancelRetry();
    this.#cancelRetry = this.#env.after(ms, () => {
      if (this.#role === 'follower') this.#queue(false);
    });
  }

  #open(): void {
    this.#role = 'opening';
    this.#sayOpening();
    this.#cancelOpening = this.#env.openEngine(
      (engine) => this.#opened(engine),
      (error) => this.#notOpened(error),
    );
  }

  #sayOpening(): void {
    this.#channel?.post({ type: 'opening', client: this.#options.id });
  }

  #opened(engine: LeaderEngine): void {
    this.#cancelOpening = () => {};
    if (this.#role !== 'opening') {
      // Meanwhile the tab was closed, or it lost the lock.
      this.#closeUnused(engine);
      return;
    }
    const { database, id } = this.#options;
    const { trace } = this.#page;
    if (this.#client.isFollowing)
      trace?.({ source: 'tabs', event: 'leader-lost', term: this.#client.term, reason: 'gone' });
    const term = Math.max(this.#client.term + 1, Math.floor(this.#env.time()));
    this.#role = 'leader';
    try {
      this.#leader = new Leader(this.#env, { database, own: id, term, inherits: this.#client.hasOpened }, engine, {
        announce: (message) => this.#channel?.post(message),
        toOwn: this.#client.receive,
        crashed: (error) => this.#crashed(error),
        visibility: () => this.#considerResigning(),
      });
    } catch (error) {
      engine.dispose();
      return this.#notOpened(error instanceof KvError ? error : new KvError('KV_IO', String(error), { cause: error }));
    }
    trace?.({ source: 'tabs', event: 'leads', term });
    this.#leader.announce();
    this.#client.lead(this.#leader);
  }

  #closeUnused(engine: LeaderEngine): void {
    try {
      engine.close();
    } catch {
      engine.dispose();
    }
  }

  #notOpened(error: KvError): void {
    this.#cancelOpening = () => {};
    if (this.#role !== 'opening' && this.#role !== 'leader') return;
    // A tab that was served before stays: the files or memory may become free, or another tab may
    // lead.
    if (this.#client.hasOpened && error.retryable) {
      this.#client.refuse(error.message, error.code);
      // The refusals may have completed a pending `hide` or `leave`.
      if (this.role === 'opening' || this.role === 'leader') this.#requeue(RETRY_MS);
      return;
    }
    this.#fail(error);
  }

  #crashed(error: KvError): void {
    this.#traceLost('crashed');
    this.#leader = undefined;
    this.#client.unlead();
    if (this.#role !== 'leader') return;
    this.#page.backgroundError(error);
    // The tab still holds the lock.
    this.#open();
  }

  /** Another tab stole the leader's lock, as it did not hear this one. */
  #lost(): void {
    this.#traceLost('stolen');
    this.#cancelOpening();
    this.#closeLeader(false);
    // A follower may lose the lock before it learns that it held it.
    if (this.#role === 'leader' || this.#role === 'opening' || this.#role === 'follower') {
      this.#role = 'follower';
      this.#queue(false);
    }
  }

  /** Closes the engine, announces the resignation and releases the leader's lock. */
  #resign(forgetsOwn: boolean, heir?: string): KvError | undefined {
    this.#cancelOpening();
    this.#traceLost('resigned');
    const leader = this.#leader;
    const failure = this.#closeLeader(forgetsOwn);
    if (leader !== undefined) this.#channel?.post({ type: 'resign', term: leader.term, heir });
    if (this.#role === 'leader' || this.#role === 'opening') this.#role = 'follower';
    this.#letGo();
    return failure;
  }

  /** This tab leads no more, if it did. */
  #traceLost(reason: 'resigned' | 'stolen' | 'crashed'): void {
    if (this.#leader !== undefined)
      this.#page.trace?.({ source: 'tabs', event: 'leader-lost', term: this.#leader.term, reason });
  }

  #closeLeader(forgetsOwn: boolean): KvError | undefined {
    const leader = this.#leader;
    if (leader === undefined) return undefined;
    this.#leader = undefined;
    this.#client.unlead();
    try {
      leader.close(forgetsOwn);
      return undefined;
    } catch (error) {
      const failure = error instanceof KvError ? error : new KvError('KV_IO', String(error), { cause: error });
      if (!forgetsOwn) this.#page.backgroundError(failure);
      return failure;
    }
  }

  /** Resigns if the page is hidden and another tab is visible: browsers suspend hidden tabs. */
  #considerResigning(): void {
    if (this.#role !== 'leader' || this.#client.visible || this.#whenIdle !== undefined) return;
    const heir = this.#leader?.heir;
    if (heir === undefined) return;
    this.#resign(false, heir);
    this.#heir = { id: heir, until: this.#env.now() + HEIR_FIRST_MS };
    this.#requeue(HEIR_FIRST_MS / 4);
  }

  #tickLater(): void {
    this.#cancelTick();
    this.#cancelTick = this.#env.after(HEARTBEAT_MS, () => {
      this.#tick();
      if (this.#role !== 'away' && this.#role !== 'gone') this.#tickLater();
    });
  }

  #tick(): void {
    const now = this.#env.now();
    const isLate = now - this.#tickAt > LATE_TICK_MS;
    this.#tickAt = now;
    // Time in which the tab did not run does not count as waiting, unless the previous tick was
    // late too: a tab that hardly ever runs would otherwise wait forever.
    const isForgiven = isLate && !this.#wasLate;
    this.#wasLate = isLate;
    if (isForgiven) this.#joinedAt = now;
    this.#client.tick(isForgiven);
    if (this.#role === 'gone') return;
    if (this.#role === 'opening') this.#sayOpening();
    const { deadlineMs, title } = this.#options;
    const isWaiting = this.#role === 'joining' || this.#role === 'follower';
    if (!this.#client.hasOpened && isWaiting && now - this.#joinedAt >= deadlineMs) {
      return this.#fail(this.#env.locked(title));
    }
    const { isSilent, hasHeard, visible } = this.#client;
    const isQuiet = hasHeard
      ? isSilent
      : this.#openingAt !== undefined && now - this.#openingAt > MISSED_HEARTBEATS * HEARTBEAT_MS;
    const isMissing = this.#role === 'follower' && visible && isQuiet && !isLate;
    this.#silentTicks = isMissing ? this.#silentTicks + 1 : 0;
    const hearsItself = now - this.#echoAt <= LATE_TICK_MS;
    if (this.#silentTicks < MISSED_HEARTBEATS || !hearsItself || now < this.#mayStealAt) return;
    this.#mayStealAt = now + this.#stealPauseMs;
    this.#stealPauseMs *= 2;
    this.#silentTicks = 0;
    this.#page.trace?.({ source: 'tabs', event: 'steals', term: this.#client.term });
    this.#queue(true);
  }
}
