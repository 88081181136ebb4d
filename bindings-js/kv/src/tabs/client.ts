// A tab as a client of whichever tab leads. It queues the page's messages, keeps one request in
// flight, and resends it until it is answered once, across changes of leader.
import { KvError } from '../base/errors.ts';
import type { KvErrorCode } from '../base/errors.ts';
import type { Channel, Environment, PageEvents } from './environment.ts';
import { HEARTBEAT_MS, MISSED_HEARTBEATS, PROTOCOL, names } from './messages.ts';
import type { Exchange, Message, Reply, Request } from './messages.ts';

/** How long at most the messages of a page that is being left are gathered. */
const GATHER_MS = 100;
const FIRST_RESEND_MS = 400;
const MAX_RESEND_MS = 3200;
/** A request that was sent more often than this is preceded by a `hello` when it is resent. */
const HELLO_AFTER = 2;
/** Queued messages are combined into one request up to this size. */
const MAX_REQUEST_BYTES = 4 << 20;
/** A request that has crashed the engine this many times is refused. */
const MAX_CRASHES = 2;

/** A leader in the same thread. */
export interface OwnLeader {
  readonly term: number;
  request(request: Request): void;
}

/** A message of the page that is not part of a request yet. */
interface Unsent {
  readonly message: Uint8Array;
  readonly since: number;
}

/** The request in flight. */
interface Flight {
  readonly seq: number;
  readonly message: Uint8Array;
  /** Number of the page's messages in it. 0 if it only tells the leader what is open. */
  readonly count: number;
  readonly since: number;
  wasSent: boolean;
  crashes: number;
  resends: number;
}

export interface ClientOptions {
  readonly database: string;
  readonly id: string;
  /** Replaces a worker that has ended. What was open in that worker is lost. */
  readonly isAgain: boolean;
  readonly readOnly: boolean;
  /** How long a message may wait without a leader before it is refused. */
  readonly deadlineMs: number;
}

export class Client {
  readonly #env: Environment;
  readonly #options: ClientOptions;
  readonly #page: PageEvents;
  readonly #announce: (message: Message) => void;
  readonly #waiting: Unsent[] = [];
  #flight: Flight | undefined;
  #seq = 0;
  /** What the page has open, as a leader last reported it; null if nothing. */
  #state: Uint8Array | null = null;
  /** The term this client follows. */
  term = 0;
  #own: OwnLeader | undefined;
  #channel: Channel | undefined;
  /** The leader takes requests. */
  #isReady = false;
  /** The leader may not know what the page has open, so requests carry a `hello`. */
  #isUnknown = true;
  #hasOpened = false;
  #cancelResend: () => void = () => {};
  #heardAt = -Infinity;
  /**
   * When the leader of `term` was last heard. Unlike `#heardAt`, it survives a change of leader.
   */
  #ledAt = -Infinity;
  /** The last request that `#state` accounts for. */
  #stateSeq = 0;
  #version = 0;
  /** Since when there is no leader, if there is none. */
  #aloneSince: number;
  /** When this tab last resumed. Time before that does not count as waiting. */
  #forgivenAt = -Infinity;
  #wasBlocked = false;
  #isGathering = false;
  visible = true;
  /** Called after messages of the page are answered or refused. */
  onAnswered: (() => void) | undefined;

  constructor(env: Environment, options: ClientOptions, page: PageEvents, announce: (message: Message) => void) {
    this.#env = env;
    this.#options = options;
    this.#page = page;
    this.#announce = announce;
    // Empty bytes tell the engine that what was open is lost.
    if (options.isAgain) this.#state = new Uint8Array(0);
    // If the client table has a row from before, its replies must not answer new requests.
    if (options.isAgain) this.#seq = Math.floor(env.time());
    this.#aloneSince = env.now();
  }

  /** Whether all messages of the page are answered. */
  get isIdle(): boolean {
    return (this.#flight?.count ?? 0) === 0 && this.#waiting.length === 0;
  }

  get hasOpened(): boolean {
    return this.#hasOpened;
  }

  /** Whether another tab leads and takes requests, as far as this one knows. */
  get isFollowing(): boolean {
    return this.#own === undefined && this.#isReady;
  }

  /** Whether a leader was heard since the last change of leader. */
  get hasHeard(): boolean {
    return this.#heardAt !== -Infinity;
  }

  /** Whether another tab should lead but was not heard lately, or never. */
  get isSilent(): boolean {
    return this.#own === undefined && this.#env.now() - this.#heardAt > MISSED_HEARTBEATS * HEARTBEAT_MS;
  }

  /** Queues a message of the page. */
  push(message: Uint8Array): void {
    this.#waiting.push({ message, since: this.#env.now() });
    this.#next();
  }

  /**
   * The page is being left. What its listeners write goes into one request: for a second one there
   * may be no time.
   */
  gather(): void {
    this.#isGathering = true;
    this.#env.after(GATHER_MS, () => this.sendGathered());
  }

  sendGathered(): void {
    if (!this.#isGathering) return;
    this.#isGathering = false;
    this.#next();
  }

  /** Starts listening. */
  join(): void {
    const { database, id } = this.#options;
    this.#channel = this.#env.channel(names.of(database, id), (message) => this.receive(message as Exchange));
    this.#aloneSince = this.#env.now();
  }

  /** Stops listening. Keeps unanswered messages. */
  part(): void {
    this.#cancelResend();
    this.#channel?.close();
    this.#channel = undefined;
    this.#isReady = false;
    this.#isUnknown = true;
    this.#heardAt = -Infinity;
  }

  /** This tab has become the leader. */
  lead(own: OwnLeader): void {
    this.#cancelResend();
    this.#own = own;
    this.term = own.term;
    this.#isReady = true;
    this.#isUnknown = true;
    this.#greet();
  }

  /** This tab no longer leads. */
  unlead(): void {
    this.#own = undefined;
    this.#isReady = false;
    this.#isUnknown = true;
    this.#heardAt = -Infinity;
    this.#ledAt = this.#aloneSince = this.#env.now();
  }

  /** Another tab announced that it leads. */
  hear(term: number, version: number): void {
    if (this.#own !== undefined) return;
    // An older term is a late message, unless the newer leader is silent: then the clock was set
    // back.
    const isRecent = this.#env.now() - this.#ledAt <= MISSED_HEARTBEATS * HEARTBEAT_MS;
    if (term < this.term && isRecent && !this.#env.isOrdered) return;
    this.#heardAt = this.#ledAt = this.#env.now();
    if (term !== this.term || !this.#isReady) {
      this.term = term;
      this.#isReady = false;
      this.#isUnknown = true;
      this.#cancelResend();
      this.#hello();
      return;
    }
    // The message `wake` may have been lost.
    if (version > this.#version) this.#page.wake();
    this.#version = version;
  }

  /** The leader of this term has resigned. */
  resigned(term: number): void {
    if (this.#own !== undefined || term !== this.term) return;
    this.#page.trace?.({ source: 'tabs', event: 'leader-lost', term, reason: 'resigned' });
    this.#isReady = false;
    this.#isUnknown = true;
    // The next in line for the lock may be a page in the back/forward cache; this calls `dropKept`.
    this.#later(0, () => {});
    this.#aloneSince = this.#env.now();
    this.forgetLeader();
  }

  /** The leader that was heard no longer leads. */
  forgetLeader(): void {
    this.#heardAt = -Infinity;
  }

  /** Tells the leader whether the page is visible. */
  showVisible(): void {
    if (this.#own === undefined && this.#isReady)
      this.#channel?.post({ type: 'visible', term: this.term, visible: this.visible });
  }

  /**
   * Called once per heartbeat interval. Looks for a leader and refuses messages that waited too
   * long. `isForgiven` says that the tab did not run before.
   */
  tick(isForgiven: boolean): void {
    const now = this.#env.now();
    if (isForgiven) this.#forgivenAt = now;
    if (this.#own !== undefined) return;
    const isServed = this.#isReady && !this.isSilent;
    if (isServed) {
      this.#wasBlocked = false;
      return;
    }
    this.#env.dropKept();
    // There may be a leader whose announcements were lost.
    this.#announce({ type: 'who', protocol: PROTOCOL, client: this.#options.id });
    const oldest = this.#flight?.since ?? this.#waiting[0]?.since;
    if (oldest === undefined) return;
    const waitedMs = now - Math.max(oldest, this.#forgivenAt, this.#isReady ? this.#heardAt : this.#aloneSince);
    if (waitedMs >= HEARTBEAT_MS && !this.#wasBlocked) {
      this.#wasBlocked = true;
      this.#page.blocked('leader');
    }
    if (waitedMs < this.#options.deadlineMs) return;
    this.refuse(this.#env.noAnswer(this.#options.deadlineMs));
  }

  /** Refuses all messages. A request that was sent may have taken effect, or may still do so. */
  refuse(why: string, code: KvErrorCode = 'KV_TIMEOUT'): void {
    const flight = this.#flight;
    this.#cancelResend();
    this.#flight = undefined;
    if (flight !== undefined && flight.count > 0) this.#refused(notAnswered(code, why, flight.wasSent), flight.count);
    const waiting = this.#waiting.splice(0);
    if (waiting.length > 0) this.#refused(notAnswered(code, why, false), waiting.length);
  }

  #refused(error: KvError, count: number): void {
    this.#page.refuse(error, count);
    this.onAnswered?.();
  }

  /** Receives a message, also from a leader in this thread. */
  readonly receive = (message: Exchange): void => {
    // These are addressed to the leader.
    if (message.type === 'request' || message.type === 'visible') return;
    // The announcements of the new term may have been lost.
    if (message.type === 'ready' && message.term > this.term) return this.hear(message.term, this.#version);
    if (message.term !== this.term) return;
    this.#heardAt = this.#ledAt = this.#env.now();
    switch (message.type) {
      case 'ready':
        if (!this.#isReady) this.#page.trace?.({ source: 'tabs', event: 'follows', term: this.term });
        this.#isReady = true;
        this.#isUnknown = true;
        this.#greet();
        return;
      case 'reply':
        if (message.state !== undefined && message.seq === this.#flight?.seq) this.#state = message.state;
        this.#answer(message);
        return;
      case 'state':
        // A request whose reply is missing will be executed again, on what was open before it.
        if (message.seq < this.#stateSeq || (this.#flight !== undefined && this.#flight.seq <= message.seq)) return;
        this.#stateSeq = message.seq;
        this.#state = message.state;
        return;
      case 'crashed':
        this.#crashed(message.seq, message.code, message.reason);
        return;
      default:
        this.#page.wake();
    }
  };

  #answer({ seq, bytes, cut }: Reply): void {
    const flight = this.#flight;
    if (flight === undefined || flight.seq !== seq) return;
    this.#cancelResend();
    this.#flight = undefined;
    this.#stateSeq = seq;
    this.#isUnknown = false;
    this.#aloneSince = this.#env.now();
    if (!this.#hasOpened) {
      this.#hasOpened = true;
      this.#page.trace?.({ source: 'tabs', event: 'served', term: this.term });
      this.#page.opened();
    }
    if (cut !== undefined) {
      const message = flight.message.slice(cut.at);
      this.#flight = { ...flight, seq: ++this.#seq, message, since: this.#env.now(), crashes: 0, resends: 0 };
      this.#page.reply(bytes, 0, cut.requests);
      // The leader of this tab gives others a turn in between.
      if (this.#own === undefined) this.#send();
      else this.#cancelResend = this.#env.after(0, () => this.#send());
      return;
    }
    if (flight.count > 0) {
      this.#page.reply(bytes, flight.count);
      this.onAnswered?.();
    }
    this.#next();
  }

  #crashed(seq: number, code: KvErrorCode, reason: string): void {
    const flight = this.#flight;
    if (flight === undefined || flight.seq !== seq) return;
    flight.crashes++;
    // Its own leader tells that itself.
    if (this.#own === undefined)
      this.#page.trace?.({ source: 'tabs', event: 'leader-lost', term: this.term, reason: 'crashed' });
    this.#isReady = false;
    this.#isUnknown = true;
    if (flight.crashes < MAX_CRASHES) return;
    this.#cancelResend();
    this.#flight = undefined;
    const error = new KvError(
      code,
      `the engine stopped each time it was asked this (${reason}); pending calls may or may not have taken effect`,
    );
    if (flight.count > 0) this.#refused(error, flight.count);
  }

  #sayHello(): void {
    this.#announce({
      type: 'hello',
      protocol: PROTOCOL,
      term: this.term,
      client: this.#options.id,
      visible: this.visible,
    });
  }

  #hello(): void {
    this.#sayHello();
    this.#later(0, () => this.#hello());
  }

  /** Tells a new leader what is open, with the request in flight or an empty one. */
  #greet(): void {
    this.#cancelResend();
    this.#flight ??= this.#depart(0);
    this.#send();
  }

  #next(): void {
    if (this.#isGathering || this.#flight !== undefined || !this.#isReady || this.#waiting.length === 0) return;
    let count = 1;
    for (let bytes = this.#waiting[0]!.message.length; count < this.#waiting.length; count++) {
      bytes += this.#waiting[count]!.message.length;
      if (bytes > MAX_REQUEST_BYTES) break;
    }
    this.#flight = this.#depart(count);
    this.#send();
  }

  /** Makes a request of the first `count` queued messages. */
  #depart(count: number): Flight {
    const taken = this.#waiting.splice(0, count);
    const since = taken[0]?.since ?? this.#env.now();
    return { seq: ++this.#seq, message: join(taken), count, since, wasSent: false, crashes: 0, resends: 0 };
  }

  #send(): void {
    const flight = this.#flight;
    if (flight === undefined || !this.#isReady) return;
    flight.wasSent ||= flight.count > 0;
    const { readOnly } = this.#options;
    const hello = this.#isUnknown ? { state: this.#state, readOnly } : undefined;
    const request: Request = { type: 'request', term: this.term, seq: flight.seq, message: flight.message, hello };
    if (this.#own !== undefined) {
      this.#own.request(request);
      return;
    }
    this.#channel?.post(request);
    // It arrives, or the connection ends.
    if (this.#env.isOrdered) return;
    this.#later(flight.resends++, () => {
      // A leader that does not know this client does not listen to its channel.
      if (flight.resends > HELLO_AFTER) this.#sayHello();
      this.#send();
    });
  }

  #later(attempts: number, run: () => void): void {
    this.#cancelResend();
    this.#cancelResend = this.#env.after(Math.min(FIRST_RESEND_MS * 2 ** attempts, MAX_RESEND_MS), () => {
      this.#env.dropKept();
      run();
    });
  }
}

function join(parts: readonly Unsent[]): Uint8Array {
  if (parts.length === 1) return parts[0]!.message;
  const whole = new Uint8Array(parts.reduce((bytes, { message }) => bytes + message.length, 0));
  let at = 0;
  for (const { message } of parts) {
    whole.set(message, at);
    at += message.length;
  }
  return whole;
}

function notAnswered(code: KvErrorCode, why: string, wasSent: boolean): KvError {
  return wasSent
    ? new KvError(code, `${why}; pending calls may or may not have taken effect`)
    : new KvError(code, `${why}; nothing was done, try again`, { retryable: true });
}
