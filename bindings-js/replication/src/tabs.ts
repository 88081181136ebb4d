// Several tabs of an origin have one database; the one with a Web Lock replicates it. Over a
// BroadcastChannel it tells the others what it knows, and does for them what needs the log.
import { KvError } from 'mangrove-kv';
import { AbortController, fromPlain, lockByName } from 'mangrove-kv/internal';
import type { PlainError } from 'mangrove-kv/internal';
import type { Database } from 'mangrove-kv';
import type { RawConflict } from './apply.ts';
import type { RawDivergence } from './replica-context.ts';
import { toPlain } from './failures.ts';
import type { ReplicationProgress } from './options.ts';
import { logUnavailable } from './remote-log.ts';
import { randomId } from './tables.ts';
import type { Verb, Verbs } from './verbs.ts';

type Args<V extends Verb> = Parameters<Verbs[V]>;
type Result<V extends Verb> = ReturnType<Verbs[V]>;

interface PlainProgress extends Omit<ReplicationProgress, 'lastError'> {
  readonly lastError: PlainError | undefined;
}

/** What the replicating tab tells. */
export type Notice =
  | { readonly type: 'conflicts'; readonly conflicts: readonly RawConflict[] }
  | { readonly type: 'repair'; readonly records: number }
  | { readonly type: 'diverged'; readonly divergences: readonly RawDivergence[] }
  | { readonly type: 'error'; readonly error: PlainError };

/** `term` grows from one replicating tab to the next. */
type Message =
  | { readonly type: 'hello' }
  | { readonly type: 'state'; readonly term: number; readonly state: PlainProgress }
  | { readonly type: 'gone'; readonly term: number }
  | { readonly type: 'notice'; readonly term: number; readonly notice: Notice }
  | { readonly type: 'ask'; readonly tab: string; readonly id: number; readonly verb: Verb; readonly args: Args<Verb> }
  | { readonly type: 'cancel'; readonly tab: string; readonly id: number }
  | {
      readonly type: 'answer';
      readonly tab: string;
      readonly id: number;
      readonly result: unknown;
      readonly error: PlainError | undefined;
    };

/** What a tab does with what it hears. */
export interface TabEvents {
  /** The state of the replicating tab; undefined: none is heard. */
  state(state: ReplicationProgress | undefined): void;
  notice(notice: Notice): void;
  /** This tab replicates, and another one asks. */
  asked(verb: Verb, args: Args<Verb>, signal: AbortSignal): Promise<unknown>;
  /** The browser has a network again, or lost it. */
  online(): void;
  /** The page will not run for a while: another tab has to replicate. */
  sleep(): void;
}

/** Of the messages; tabs with another version of the program do not understand each other. */
const VERSION = 1;
const HELLO_MS = 5000;
/** The replicating tab is not heard after so many questions without an answer. */
const MAX_UNANSWERED = 3;

const gone = (): KvError => logUnavailable('the tab that replicates this database is gone, or another one took over');

interface Ask {
  readonly resolve: (result: never) => void;
  readonly reject: (error: unknown) => void;
}

export class Tabs {
  readonly id = randomId();
  readonly #scope: string;
  readonly #events: TabEvents;
  readonly #stop: AbortSignal;
  readonly #channel: BroadcastChannel;
  /** The newest term that was heard, or the own one. */
  #term = 0;
  #isLeading = false;
  #state: ReplicationProgress | undefined;
  #unanswered = 0;
  readonly #timer: ReturnType<typeof setInterval>;
  #nextAsk = 1;
  readonly #asks = new Map<number, Ask>();
  /** What others ask for, by tab and number. */
  readonly #serving = new Map<string, AbortController>();
  #isAsleep = false;
  #election = new AbortController();
  #woken: (() => void) | undefined;
  readonly #alive: Promise<unknown>;

  /** Works until `stop` is aborted. */
  constructor({ persistence, bucket, path }: Database, events: TabEvents, stop: AbortSignal) {
    if (typeof BroadcastChannel !== 'function')
      throw new KvError('KV_UNSUPPORTED', 'this browser has no BroadcastChannel, over which tabs share replication');
    this.#scope = `${persistence}${bucket === undefined ? '' : `@${bucket}`} ${path}`;
    this.#events = events;
    this.#stop = stop;
    this.#channel = new BroadcastChannel(`mangrove-kv:replication ${VERSION} of ${this.#scope}`);
    this.#channel.onmessage = ({ data }) => this.#receive(data as Message);
    this.#timer = setInterval(() => this.#greet(), HELLO_MS);
    // As long as it is held, this tab may ask for the outcome of what it offered.
    this.#alive = lockByName(this.#aliveName(this.id), Infinity, stop).then((release) =>
      stop.addEventListener('abort', release),
    );
    this.#alive.catch(() => undefined);
    this.#watchPage();
    this.#post({ type: 'hello' });
  }

  #aliveName(tab: string): string {
    return `replication of ${this.#scope}: tab ${tab}`;
  }

  /** Resolves when this tab is the one that replicates, until it calls what this resolves to. */
  async elect(): Promise<() => void> {
    for (;;) {
      this.#stop.throwIfAborted();
      if (this.#isAsleep) {
        await new Promise<void>((resolve) => {
          this.#woken = resolve;
        });
        continue;
      }
      const election = (this.#election = new AbortController());
      const abort = (): void => election.abort();
      this.#stop.addEventListener('abort', abort);
      try {
        const release = await lockByName(`replication of ${this.#scope}`, Infinity, election.signal);
        if (!this.#isAsleep) return this.#lead(release);
        release();
      } catch (error) {
        if (!election.signal.aborted) throw error;
      } finally {
        this.#stop.removeEventListener('abort', abort);
      }
    }
  }

  #lead(release: () => void): () => void {
    this.#term = Math.max(Date.now(), this.#term + 1);
    this.#isLeading = true;
    this.#rejectAsks();
    return () => {
      if (!this.#isLeading) return;
      this.#isLeading = false;
      this.#state = undefined;
      for (const controller of this.#serving.values()) controller.abort(gone());
      this.#serving.clear();
      this.#post({ type: 'gone', term: this.#term });
      release();
    };
  }

  /** Tells the others; if this tab replicates. */
  tellState(state: ReplicationProgress): void {
    this.#state = state;
    if (this.#isLeading)
      this.#post({
        type: 'state',
        term: this.#term,
        state: { ...state, lastError: state.lastError && toPlain(state.lastError) },
      });
  }

  tell(notice: Notice): void {
    if (this.#isLeading) this.#post({ type: 'notice', term: this.#term, notice });
  }

  /** Ids of tabs that are not there any more. */
  async isOver(): Promise<(tab: string) => boolean> {
    const { held = [] } = await navigator.locks.query();
    const names = new Set(held.map(({ name }) => name));
    return (tab) => !names.has(`mangrove-kv:${this.#aliveName(tab)}`);
  }

  /**
   * Asks the tab that replicates. Rejects with KV_LOG_UNAVAILABLE if it is not heard any more, or
   * another one takes its place: then it may or may not have been done.
   */
  async ask<V extends Verb>(verb: V, args: Args<V>, signal: AbortSignal): Promise<Result<V>> {
    await this.#alive;
    signal.throwIfAborted();
    if (this.#isLeading) throw gone();
    const [tab, id] = [this.id, this.#nextAsk++];
    let onAbort = (): void => undefined;
    try {
      return await new Promise<Result<V>>((resolve, reject) => {
        onAbort = () => {
          this.#post({ type: 'cancel', tab, id });
          reject(signal.reason);
        };
        signal.addEventListener('abort', onAbort);
        this.#asks.set(id, { resolve, reject });
        this.#post({ type: 'ask', tab, id, verb, args });
      });
    } finally {
      this.#asks.delete(id);
      signal.removeEventListener('abort', onAbort);
    }
  }

  close(): void {
    clearInterval(this.#timer);
    this.#woken?.();
    this.#rejectAsks();
    this.#channel.onmessage = null;
    this.#channel.close();
  }

  #post(message: Message): void {
    // A channel that is closed refuses messages; nobody waits for them.
    if (!this.#stop.aborted || message.type === 'gone') this.#channel.postMessage(message);
  }

  #rejectAsks(): void {
    for (const { reject } of this.#asks.values()) reject(gone());
  }

  #receive(message: Message): void {
    if (this.#stop.aborted) return;
    switch (message.type) {
      case 'hello':
        if (this.#isLeading && this.#state !== undefined) this.tellState(this.#state);
        break;
      case 'ask':
        if (this.#isLeading) void this.#serve(message);
        break;
      case 'cancel':
        this.#serving.get(`${message.tab}/${message.id}`)?.abort(gone());
        break;
      case 'answer':
        if (message.tab === this.id) this.#answered(message);
        break;
      default:
        this.#hear(message);
    }
  }

  /** Something that the replicating tab tells. */
  #hear(message: Message & { readonly term: number }): void {
    if (this.#isLeading || message.term < this.#term) return;
    if (message.term > this.#term) {
      if (this.#term > 0) this.#rejectAsks();
      this.#term = message.term;
    }
    this.#unanswered = 0;
    if (message.type === 'gone') {
      this.#rejectAsks();
      this.#events.state(undefined);
    } else if (message.type === 'notice') this.#events.notice(message.notice);
    else if (message.type === 'state')
      this.#events.state({
        ...message.state,
        lastError: message.state.lastError && fromPlain(message.state.lastError),
      });
  }

  #greet(): void {
    if (this.#isLeading || this.#isAsleep) return;
    if (this.#unanswered++ >= MAX_UNANSWERED) {
      // Chromium drops a page that it keeps, and with it the lock, when locks are listed.
      navigator.locks.query().catch(() => undefined);
      // The clock that gave the term may have been ahead.
      this.#term = 0;
      this.#rejectAsks();
      this.#events.state(undefined);
    }
    this.#post({ type: 'hello' });
  }

  async #serve({ tab, id, verb, args }: Message & { readonly type: 'ask' }): Promise<void> {
    const [name, controller] = [`${tab}/${id}`, new AbortController()];
    this.#serving.set(name, controller);
    const term = this.#term;
    const answer = await this.#events.asked(verb, args, controller.signal).then(
      (result) => ({ result, error: undefined }),
      (error: unknown) => ({ result: undefined, error: toPlain(error) }),
    );
    this.#serving.delete(name);
    if (this.#isLeading && this.#term === term) this.#post({ type: 'answer', tab, id, ...answer });
  }

  #answered({ id, result, error }: Message & { readonly type: 'answer' }): void {
    this.#unanswered = 0;
    const ask = this.#asks.get(id);
    if (error === undefined) ask?.resolve(result as never);
    else ask?.reject(fromPlain(error));
  }

  // A page that is frozen, or kept by the browser after it was left, must not hold the lock.

  readonly #onSleep = (): void => {
    this.#isAsleep = true;
    this.#election.abort();
    this.#events.sleep();
  };

  readonly #onWake = (): void => {
    this.#isAsleep = false;
    this.#woken?.();
    this.#post({ type: 'hello' });
  };

  #watchPage(): void {
    const { document, window } = globalThis;
    const on = (target: EventTarget | undefined, types: readonly string[], listener: () => void): void => {
      for (const type of types) {
        target?.addEventListener(type, listener);
        this.#stop.addEventListener('abort', () => target?.removeEventListener(type, listener));
      }
    };
    on(document, ['freeze'], this.#onSleep);
    on(document, ['resume'], this.#onWake);
    on(window, ['pagehide'], this.#onSleep);
    on(window, ['pageshow'], this.#onWake);
    on(globalThis, ['online', 'offline'], () => this.#events.online());
  }
}
