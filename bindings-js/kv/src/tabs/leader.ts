// The tab that holds the files and executes the requests of all clients, including its own page's.
import { isSame } from '../codec/bytes.ts';
import { KvError } from '../base/errors.ts';
import type { OwnLeader } from './client.ts';
import type { Channel, Environment, LeaderEngine } from './environment.ts';
import { HEARTBEAT_MS, PROTOCOL, names } from './messages.ts';
import type { Announcement, Exchange, Reply, Request } from './messages.ts';

/** How long clients of an earlier leader can continue their snapshots and iterators here. */
const INHERITANCE_MS = 3000;

/**
 * A client is forgotten once this tab has held the client's lock for this long, and ran meanwhile.
 */
const FORGET_MS = 100;
const LATE_MS = 20;
/** A last pause, to handle what arrived while this tab did not run. */
const LAST_LOOK_MS = 10;

/** A client being served, remote or this tab's own. */
interface Served {
  readonly client: string;
  readonly channel: Channel | undefined;
  /** Undefined until the client has said what it has open. */
  session: number | undefined;
  /** The last executed request, and its reply once its commits are stored. */
  seq: number;
  reply: Reply | undefined;
  /** The reply to the last executed request, if it waits until its commits are stored. */
  held: Reply | undefined;
  /** The newest request that arrived meanwhile. */
  next: Request | undefined;
  /** What the client has open, as it or this leader last said. */
  state: Uint8Array | null;
  visible: boolean;
}

export interface LeaderOptions {
  readonly database: string;
  /** Id of this tab's own client. */
  readonly own: string;
  readonly term: number;
  /** Whether clients of an earlier leader may continue their snapshots and iterators. */
  readonly inherits: boolean;
}

export interface LeaderEvents {
  announce(message: Announcement): void;
  /** Delivers a message to this tab's own client. */
  readonly toOwn: (message: Exchange) => void;
  /** The engine has failed and its files are closed. */
  crashed(error: KvError): void;
  /** The set of visible clients may have changed. */
  visibility(): void;
}

export class Leader implements OwnLeader {
  readonly #env: Environment;
  readonly #database: string;
  readonly #events: LeaderEvents;
  readonly #engine: LeaderEngine;
  readonly term: number;
  readonly #own: Served;
  readonly #remote = new Map<string, Served>();
  readonly #sessions = new Map<number, Served>();
  /** By client: cancels the wait for its lock, or releases it. */
  readonly #watched = new Map<string, () => void>();
  /** Clients whose lock is held here. Each is forgotten soon, unless it is heard again. */
  readonly #forgetting = new Set<string>();
  #cancelHeartbeat: (() => void) | undefined;
  readonly #cancelInheritance: () => void;
  #isOver = false;

  constructor(
    env: Environment,
    { database, own, term, inherits }: LeaderOptions,
    engine: LeaderEngine,
    events: LeaderEvents,
  ) {
    this.#env = env;
    this.#database = database;
    this.#events = events;
    this.#engine = engine;
    this.term = term;
    this.#own = {
      client: own,
      channel: undefined,
      session: undefined,
      seq: 0,
      reply: undefined,
      held: undefined,
      next: undefined,
      state: null,
      visible: true,
    };
    // The inherited version keeps freed space from being reused.
    if (!inherits) engine.endInheritance();
    this.#cancelInheritance = inherits ? env.after(INHERITANCE_MS, () => engine.endInheritance()) : () => {};
    for (const client of engine.remembered()) if (client !== own) this.#watch(client);
  }

  /** A client whose page is visible. */
  get heir(): string | undefined {
    for (const { client, visible } of this.#remote.values()) if (visible) return client;
    return undefined;
  }

  announce(): void {
    if (this.#isOver) return;
    this.#events.announce({
      type: 'lead',
      protocol: PROTOCOL,
      term: this.term,
      client: this.#own.client,
      version: this.#engine.version,
      sealedKey: this.#engine.sealedKey,
    });
  }

  /** Starts to serve a client, or tells it again that this leader listens. */
  hello(client: string, visible: boolean): void {
    if (this.#isOver) return;
    let served = this.#remote.get(client);
    if (served === undefined) {
      const channel = this.#env.channel(names.of(this.#database, client), (message) =>
        this.#receive(client, message as Exchange),
      );
      served = {
        client,
        channel,
        session: undefined,
        seq: 0,
        reply: undefined,
        held: undefined,
        next: undefined,
        state: null,
        visible,
      };
      this.#remote.set(client, served);
      this.#watch(client);
      this.#beat();
    }
    this.#watchAgain(client);
    served.visible = visible;
    served.channel?.post({ type: 'ready', term: this.term });
    this.#events.visibility();
  }

  /** Takes a request from this tab's own client. */
  request(request: Request): void {
    this.#serve(this.#own, request);
  }

  /** Tells the clients of these sessions that there are new commits for their followers. */
  wakeClients(sessions: readonly number[]): void {
    if (this.#isOver) return;
    for (const session of sessions) {
      const served = this.#sessions.get(session);
      if (served !== undefined) this.#post(served, { type: 'wake', term: this.term });
    }
  }

  /** The engine failed outside a request. */
  fail(error: KvError): void {
    this.#crash(error);
  }

  /** Stops serving. Commits that are not stored are lost. */
  abandon(): void {
    if (this.#isOver) return;
    this.#end();
    this.#engine.dispose();
  }

  /**
   * Hands over, stops serving and closes the files. With `forgetsOwn`, its own client will not
   * return.
   */
  close(forgetsOwn: boolean): void {
    if (this.#isOver) return;
    try {
      this.#answerHeld();
      this.#handOver();
    } finally {
      this.#end();
    }
    if (forgetsOwn) this.#engine.forget(this.#own.client);
    this.#engine.close();
  }

  /**
   * Answers whose commits can be stored at once. The state of a client that has a request executed, and no
   * reply, is of no use to it.
   */
  #answerHeld(): void {
    const all = [this.#own, ...this.#remote.values()].filter(({ held }) => held !== undefined);
    if (all.length === 0 || this.#engine.store === undefined) return;
    try {
      this.#engine.store();
    } catch {
      // Closing reports it.
      return;
    }
    for (const served of all) this.#answer(served, served.held as Reply);
  }

  /** Tells each client its final state. */
  #handOver(): void {
    for (const [session, served] of this.#sessions) {
      const state = this.#engine.lastState(session);
      if (state !== undefined) this.#post(served, { type: 'state', term: this.term, seq: served.seq, state });
    }
  }

  #end(): void {
    this.#isOver = true;
    this.#cancelHeartbeat?.();
    this.#cancelInheritance();
    for (const end of this.#watched.values()) end();
    for (const { channel } of this.#remote.values()) channel?.close();
  }

  #beat(): void {
    this.#cancelHeartbeat ??= this.#env.after(HEARTBEAT_MS, () => {
      this.#cancelHeartbeat = undefined;
      if (this.#remote.size === 0) return;
      this.announce();
      this.#beat();
    });
  }

  /** The client is alive: if its lock is held here, releases it and waits for it again. */
  #watchAgain(client: string): void {
    if (!this.#forgetting.delete(client)) return;
    this.#watched.get(client)?.();
    this.#watched.delete(client);
    this.#watch(client);
  }

  /** Waits for the lock of a client, which proves that the client has ended, to forget it. */
  #watch(client: string): void {
    if (this.#watched.has(client)) return;
    let cancel = (): void => {};
    const end = this.#env.lock(names.client(this.#database, client), false, {
      granted: (release) => {
        let cancelForgetting = (): void => {};
        // If this tab did not run, the client may have stolen the lock back, and that event may be
        // next.
        const forgetLater = (ms: number): void => {
          const due = this.#env.now() + ms;
          cancelForgetting = this.#env.after(ms, () => {
            if (this.#env.now() > due + LATE_MS) return forgetLater(FORGET_MS);
            if (ms > LAST_LOOK_MS) return forgetLater(LAST_LOOK_MS);
            release();
            if (!this.#isOver) this.#forget(client);
          });
        };
        forgetLater(FORGET_MS);
        this.#forgetting.add(client);
        cancel = () => {
          cancelForgetting();
          release();
        };
      },
      // The client came back and stole its lock.
      lost: () => {
        cancel();
        this.#forgetting.delete(client);
        this.#watched.delete(client);
        if (!this.#isOver) this.#watch(client);
      },
    });
    this.#watched.set(client, () => {
      cancel();
      end();
    });
  }

  #forget(client: string): void {
    this.#forgetting.delete(client);
    this.#watched.get(client)?.();
    this.#watched.delete(client);
    const served = this.#remote.get(client);
    this.#remote.delete(client);
    served?.channel?.close();
    try {
      this.#detach(served);
      this.#engine.forget(client);
    } catch (error) {
      this.#crash(error);
    }
    this.#events.visibility();
  }

  #receive(client: string, message: Exchange): void {
    const served = this.#remote.get(client);
    if (this.#isOver || served === undefined || message.term !== this.term) return;
    if (message.type === 'request') {
      this.#serve(served, message);
    } else if (message.type === 'visible') {
      served.visible = message.visible;
      this.#events.visibility();
    }
  }

  #serve(served: Served, request: Request): void {
    if (this.#isOver) return;
    if (served.session === undefined && request.hello === undefined) {
      this.#post(served, { type: 'ready', term: this.term });
      return;
    }
    if (served.session !== undefined && request.seq <= served.seq) {
      // The reply was lost, or waits for the commits to be stored.
      if (request.seq === served.seq && served.reply !== undefined) this.#post(served, served.reply);
      return;
    }
    if (served.held !== undefined) {
      // It has given up the one that is executed. Replies to several would fill the memory.
      served.next = request;
      return;
    }
    let settled: Promise<void> | undefined;
    let wakes;
    const { seq } = request;
    try {
      const session = this.#sessionOf(served, request);
      const bytes = this.#engine.execute(request.message, session, seq);
      const { state, cut } = this.#engine;
      ({ wakes } = this.#engine);
      served.seq = seq;
      served.state = state ?? served.state;
      served.reply = undefined;
      const reply: Reply = { type: 'reply', term: this.term, seq, bytes, state, cut };
      settled = this.#engine.settled();
      if (settled === undefined) this.#answer(served, reply);
      else {
        served.held = reply;
        settled.then(
          () => {
            served.held = undefined;
            this.#answer(served, reply);
            const { next } = served;
            served.next = undefined;
            if (next !== undefined) this.#env.after(0, () => this.#knows(served) && this.#serve(served, next));
          },
          (error: unknown) => this.#crash(error, served, seq),
        );
      }
    } catch (error) {
      this.#crash(error, served, seq);
      return;
    }
    this.wakeClients(wakes);
  }

  /**
   * The client's session. Starts over if `hello` has another state: the client may have taken an
   * earlier leader's reply to a request that was executed here too.
   */
  #sessionOf(served: Served, { hello }: Request): number {
    if (served.session !== undefined && (hello === undefined || isSame(hello.state, served.state)))
      return served.session;
    this.#detach(served);
    served.state = hello?.state ?? null;
    served.session = this.#engine.attach(served.client, served.state ?? undefined, hello?.readOnly ?? false);
    this.#sessions.set(served.session, served);
    return served.session;
  }

  #detach(served: Served | undefined): void {
    if (served?.session === undefined) return;
    this.#sessions.delete(served.session);
    this.#engine.detach(served.session);
    served.session = undefined;
  }

  #answer(served: Served, reply: Reply): void {
    if (this.#isOver || served.seq !== reply.seq) return;
    // Messages to this tab's own client are never lost.
    if (served !== this.#own) served.reply = reply;
    this.#post(served, reply);
  }

  #post(served: Served, message: Exchange): void {
    if (served === this.#own) this.#events.toOwn(message);
    // The channel of a client that was forgotten meanwhile is closed.
    else if (this.#knows(served)) served.channel?.post(message);
  }

  #knows(served: Served): boolean {
    return served === this.#own || this.#remote.get(served.client) === served;
  }

  #crash(error: unknown, served?: Served, seq = 0): void {
    if (this.#isOver) return;
    const reason = error instanceof KvError ? error : new KvError('KV_IO', String(error), { cause: error });
    // The files come first: this tab's client may react by releasing the leader's lock at once.
    this.#isOver = true;
    this.#engine.dispose();
    if (served !== undefined)
      this.#post(served, { type: 'crashed', term: this.term, seq, code: reason.code, reason: reason.message });
    this.#end();
    this.#events.crashed(reason);
  }
}
