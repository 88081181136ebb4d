// A tab as a client of whichever tab leads: its page's messages, one request under way at a time, and what it takes to have each
// answered once, whoever leads meanwhile.
import { KvError } from '../base/errors.ts';
import type { KvErrorCode } from '../base/errors.ts';
import type { Channel, Environment, PageEvents } from './environment.ts';
import { HEARTBEAT_MS, MISSED_HEARTBEATS, PROTOCOL, names } from './messages.ts';
import type { Exchange, Message, Request } from './messages.ts';

const FIRST_RESEND_MS = 400;
const MAX_RESEND_MS = 3200;
/** A request that was sent more often than this goes with a hello. */
const HELLO_AFTER = 2;
/** Messages that wait are sent together up to this length. */
const MAX_REQUEST_BYTES = 4 << 20;
/** A message that the engine does not survive is not tried for ever. */
const MAX_CRASHES = 2;

/** A leader in this very thread. */
export interface OwnLeader {
  readonly term: number;
  request(request: Request): void;
}

/** Of the page, and not sent yet. */
interface Unsent {
  readonly message: Uint8Array;
  readonly since: number;
}

/** The request under way. */
interface Flight {
  readonly seq: number;
  readonly message: Uint8Array;
  /** Messages of the page that it consists of. */
  readonly count: number;
  readonly since: number;
  wasSent: boolean;
  crashes: number;
  resends: number;
}

export interface ClientOptions {
  readonly database: string;
  readonly id: string;
  /** Another worker was this client before, and is gone with what it knew. */
  readonly isAgain: boolean;
  readonly readOnly: boolean;
  /** How long a message may wait while nobody leads. */
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
  /** What the page has open, as its leader last said. */
  #state: Uint8Array | null = null;
  /** The newest term that is known. */
  term = 0;
  #own: OwnLeader | undefined;
  #channel: Channel | undefined;
  /** The leader listens to the channel. */
  #isReady = false;
  /** The leader does not know yet what the page has open. */
  #isUnknown = true;
  #hasOpened = false;
  #cancelResend: () => void = () => {};
  #heardAt = -Infinity;
  /** When somebody last led in the newest term, whatever was said since of who is to lead next. */
  #ledAt = -Infinity;
  /** Of the request after which the state was as it is. */
  #stateSeq = 0;
  #version = 0;
  /** Since when nobody serves it. */
  #aloneSince: number;
  /** When this tab last ran again after it had not. */
  #forgivenAt = -Infinity;
  #wasBlocked = false;
  visible = true;

  constructor(env: Environment, options: ClientOptions, page: PageEvents, announce: (message: Message) => void) {
    this.#env = env;
    this.#options = options;
    this.#page = page;
    this.#announce = announce;
    // Nothing that was open can be gone on with, but it was.
    if (options.isAgain) this.#state = new Uint8Array(0);
    // What is kept of it must not pass for the outcome of something new.
    if (options.isAgain) this.#seq = Math.floor(env.time());
    this.#aloneSince = env.now();
  }

  /** Nothing of the page is under way. */
  get isIdle(): boolean {
    return (this.#flight?.count ?? 0) === 0 && this.#waiting.length === 0;
  }

  get hasOpened(): boolean {
    return this.#hasOpened;
  }

  /** A leader was heard since this began to listen. */
  get hasHeard(): boolean {
    return this.#heardAt !== -Infinity;
  }

  /** The leader that was heard says nothing any more. */
  get isSilent(): boolean {
    return this.#own === undefined && this.#env.now() - this.#heardAt > MISSED_HEARTBEATS * HEARTBEAT_MS;
  }

  /** A message of the page. */
  push(message: Uint8Array): void {
    this.#waiting.push({ message, since: this.#env.now() });
    this.#next();
  }

  /** Begins to listen. */
  join(): void {
    const { database, id } = this.#options;
    this.#channel = this.#env.channel(names.of(database, id), (message) => this.#receive(message as Exchange));
    this.#aloneSince = this.#env.now();
  }

  /** Listens no more; what is under way stays so. */
  part(): void {
    this.#cancelResend();
    this.#channel?.close();
    this.#channel = undefined;
    this.#isReady = false;
    this.#isUnknown = true;
    this.#heardAt = -Infinity;
  }

  /** The leader is here. */
  lead(own: OwnLeader): void {
    this.#cancelResend();
    this.#own = own;
    this.term = own.term;
    this.#isReady = true;
    this.#isUnknown = true;
    this.#greet();
  }

  /** It is here no more. */
  unlead(): void {
    this.#own = undefined;
    this.#isReady = false;
    this.#isUnknown = true;
    this.#heardAt = -Infinity;
    this.#ledAt = this.#aloneSince = this.#env.now();
  }

  /** Another tab says that it leads. */
  hear(term: number, version: number): void {
    if (this.#own !== undefined) return;
    // What is late is of no use, unless the clocks went back and the newer one is gone.
    if (term < this.term && this.#env.now() - this.#ledAt <= MISSED_HEARTBEATS * HEARTBEAT_MS) return;
    this.#heardAt = this.#ledAt = this.#env.now();
    if (term !== this.term || !this.#isReady) {
      this.term = term;
      this.#isReady = false;
      this.#isUnknown = true;
      this.#cancelResend();
      this.#hello();
      return;
    }
    // A word about it may have been lost.
    if (version > this.#version) this.#page.news();
    this.#version = version;
  }

  /** The leader of this term lets go. */
  resigned(term: number): void {
    if (this.#own !== undefined || term !== this.term) return;
    this.#isReady = false;
    this.#isUnknown = true;
    // The next to get the lock may be a page that is kept.
    this.#later(0, () => {});
    this.#aloneSince = this.#env.now();
    this.forgetLeader();
  }

  /** The leader that was heard leads no more. */
  forgetLeader(): void {
    this.#heardAt = -Infinity;
  }

  /** Tells the leader whether the page can be seen. */
  showVisible(): void {
    if (this.#own === undefined && this.#isReady) this.#channel?.post({ type: 'visible', term: this.term, visible: this.visible });
  }

  /** Answers to what this tab's own leader was asked. */
  receive(message: Exchange): void {
    this.#receive(message);
  }

  /** Looks at the time. */
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
    // Somebody may lead that was not heard.
    this.#announce({ type: 'who', protocol: PROTOCOL, client: this.#options.id });
    const oldest = this.#flight?.since ?? this.#waiting[0]?.since;
    if (oldest === undefined) return;
    const waitedMs = now - Math.max(oldest, this.#forgivenAt, this.#isReady ? this.#heardAt : this.#aloneSince);
    if (waitedMs >= HEARTBEAT_MS && !this.#wasBlocked) {
      this.#wasBlocked = true;
      this.#page.blocked('leader');
    }
    if (waitedMs < this.#options.deadlineMs) return;
    this.refuse(`no tab answered within ${this.#options.deadlineMs} ms`);
  }

  /** Answers everything with an error. What was sent may have been done, or will be. */
  refuse(why: string, code: KvErrorCode = 'KV_TIMEOUT'): void {
    const flight = this.#flight;
    this.#cancelResend();
    this.#flight = undefined;
    if (flight !== undefined && flight.count > 0) this.#page.refuse(notAnswered(code, why, flight.wasSent), flight.count);
    const waiting = this.#waiting.splice(0);
    if (waiting.length > 0) this.#page.refuse(notAnswered(code, why, false), waiting.length);
  }

  #receive(message: Exchange): void {
    // It goes to the leader.
    if (message.type === 'request' || message.type === 'visible') return;
    // All that was said of a new term may have been lost.
    if (message.type === 'ready' && message.term > this.term) return this.hear(message.term, this.#version);
    if (message.term !== this.term) return;
    this.#heardAt = this.#ledAt = this.#env.now();
    switch (message.type) {
      case 'ready':
        this.#isReady = true;
        this.#isUnknown = true;
        this.#greet();
        return;
      case 'reply':
        if (message.state !== undefined && message.seq === this.#flight?.seq) this.#state = message.state;
        this.#answer(message.seq, message.bytes);
        return;
      case 'state':
        // Where the answer is missing, the requests will be executed once more on what was open before them.
        if (message.seq < this.#stateSeq || (this.#flight !== undefined && this.#flight.seq <= message.seq)) return;
        this.#stateSeq = message.seq;
        this.#state = message.state;
        return;
      case 'crashed':
        this.#crashed(message.seq, message.code, message.reason);
        return;
      default:
        this.#page.news();
    }
  }

  #answer(seq: number, bytes: Uint8Array<ArrayBuffer>): void {
    const flight = this.#flight;
    if (flight === undefined || flight.seq !== seq) return;
    this.#cancelResend();
    this.#flight = undefined;
    this.#stateSeq = seq;
    this.#isUnknown = false;
    this.#aloneSince = this.#env.now();
    if (!this.#hasOpened) {
      this.#hasOpened = true;
      this.#page.opened();
    }
    if (flight.count > 0) this.#page.reply(bytes, flight.count);
    this.#next();
  }

  #crashed(seq: number, code: KvErrorCode, reason: string): void {
    const flight = this.#flight;
    if (flight === undefined || flight.seq !== seq) return;
    flight.crashes++;
    this.#isReady = false;
    this.#isUnknown = true;
    if (flight.crashes < MAX_CRASHES) return;
    this.#cancelResend();
    this.#flight = undefined;
    const error = new KvError(code, `the engine stopped each time it was asked this (${reason}); what was called may be done or not`);
    if (flight.count > 0) this.#page.refuse(error, flight.count);
  }

  #sayHello(): void {
    this.#announce({ type: 'hello', protocol: PROTOCOL, term: this.term, client: this.#options.id, visible: this.visible });
  }

  #hello(): void {
    this.#sayHello();
    this.#later(0, () => this.#hello());
  }

  /** Tells a new leader what is open, with the request under way or one of its own. */
  #greet(): void {
    this.#cancelResend();
    this.#flight ??= this.#depart(0);
    this.#send();
  }

  #next(): void {
    if (this.#flight !== undefined || !this.#isReady || this.#waiting.length === 0) return;
    let count = 1;
    for (let bytes = this.#waiting[0]!.message.length; count < this.#waiting.length; count++) {
      bytes += this.#waiting[count]!.message.length;
      if (bytes > MAX_REQUEST_BYTES) break;
    }
    this.#flight = this.#depart(count);
    this.#send();
  }

  /** A request of the first messages that wait. */
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
    this.#later(flight.resends++, () => {
      // A leader that does not know this client hears no request of it.
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
    ? new KvError(code, `${why}; what was called may be done or not`)
    : new KvError(code, `${why}; nothing was done, try again`, { retryable: true });
}
