// The model of the engine in the place of the one in WebAssembly: commits are stored by flushes, which
// the transport begins and ends.
import { KvError } from '../../../src/base/errors.ts';
import { EngineHost } from '../../../src/engine/engine-host.ts';
import type { Background } from '../../../src/engine/engine-host.ts';
import type { InThreadStorage } from '../../../src/engine/in-thread-transport.ts';
import type { Cut } from '../../../src/wire/transport.ts';
import type { ModelEngine, Observer, Store } from '../../tabs/store.ts';

const NOTHING = new Uint8Array(0);

type FlushLater = (done: (error: unknown) => void) => void;

/** A storage for which the transport gets a model as its engine. */
export interface ModelStorage extends InThreadStorage {
  openHost(): ModelHost;
}

/** From now on, transports of a `ModelStorage` have its model. */
export function installModels(): void {
  const open = (_: unknown, storage: unknown): EngineHost =>
    (storage as ModelStorage).openHost() as unknown as EngineHost;
  Object.assign(EngineHost, { open });
}

export class ModelHost {
  readonly #engine: ModelEngine;
  readonly #store: Store;
  readonly #flushLater: FlushLater;
  readonly #observer: Observer;
  /** Throws to crash the engine. */
  readonly #step: () => void;
  readonly #mustWait: () => boolean;
  /** Session of the transport's own client. */
  readonly #own: number;
  #ownSeq = 0;
  flush = (): void =>
    this.#call(() => {
      this.#store.stored = this.#store.version;
    });
  background: Background | undefined;
  owesFlush = false;
  cut: Cut | undefined;
  left: Uint8Array<ArrayBuffer> | undefined;
  state: Uint8Array<ArrayBuffer> | undefined;
  wakes: readonly number[] = [];
  readonly sealedKey = undefined;
  #waiting: { readonly reply: Uint8Array<ArrayBuffer>; readonly version: number } | undefined;
  /** Up to which version the flush that runs stores. */
  #flushing: number | undefined;
  #isReleased = false;
  #failure: KvError | undefined;

  constructor(
    engine: ModelEngine,
    store: Store,
    observer: Observer,
    step: () => void,
    mustWait: () => boolean,
    flushLater: FlushLater,
  ) {
    this.#step = step;
    this.#mustWait = mustWait;
    this.#observer = observer;
    this.#engine = engine;
    this.#store = store;
    this.#flushLater = flushLater;
    this.#own = engine.attach('', undefined, false);
  }

  get version(): number {
    return this.#engine.version;
  }

  get hasWakes(): boolean {
    return this.wakes.length > 0;
  }

  get isBusy(): boolean {
    return this.#waiting !== undefined || (this.#flushing !== undefined && !this.#isReleased);
  }

  #call<T>(call: (engine: ModelEngine) => T): T {
    if (this.#failure !== undefined) throw this.#failure;
    try {
      return call(this.#engine);
    } catch (error) {
      this.#failure = new KvError('KV_IO', `the engine stopped (${String(error)})`, { cause: error });
      this.#engine.dispose();
      throw this.#failure;
    }
  }

  /** Calls the engine, which must not wait for a flush. */
  #use<T>(call: (engine: ModelEngine) => T): T {
    return this.#call((engine) => {
      if (this.isBusy) this.#observer.violate('an engine is used while it waits for a flush');
      return call(engine);
    });
  }

  #execute(message: Uint8Array, session: number, seq: number): Uint8Array<ArrayBuffer> {
    return this.#use((engine) => {
      const bytes = engine.execute(message, session, seq);
      this.cut = engine.cut;
      this.left = engine.cut && message.slice(engine.cut.at);
      this.state = engine.state;
      this.wakes = engine.wakes.map((one) => (one === this.#own ? 0 : one));
      return bytes;
    });
  }

  execute(message: Uint8Array, client = 0, seq = 0): Uint8Array<ArrayBuffer> {
    if (client === 0 && message.length === 0) {
      if (this.isBusy) this.#observer.violate('an engine is used while it waits for a flush');
      this.wakes = [];
      return NOTHING;
    }
    const bytes = this.#execute(message, client === 0 ? this.#own : client, client === 0 ? ++this.#ownSeq : seq);
    this.#store.stored = this.#store.version;
    return bytes;
  }

  executeOwing(message: Uint8Array, client: number, seq: number): Uint8Array<ArrayBuffer> {
    const bytes = this.#execute(message, client, seq);
    this.owesFlush = this.#store.stored < this.#store.version;
    return bytes;
  }

  start(message: Uint8Array): Uint8Array<ArrayBuffer> | undefined {
    const reply = this.#execute(message, this.#own, ++this.#ownSeq);
    const { version } = this.#store;
    if (this.#store.stored >= version) return reply;
    this.#waiting = { reply, version };
    return undefined;
  }

  startOwing(message: Uint8Array): Uint8Array<ArrayBuffer> | undefined {
    // As the engine does with messages that decide by the newest state.
    if (this.#mustWait()) {
      this.owesFlush = false;
      return this.start(message);
    }
    return this.executeOwing(message, this.#own, ++this.#ownSeq);
  }

  resume(): Uint8Array<ArrayBuffer> | undefined {
    return this.#call(() => {
      const { reply, version } = this.#waiting!;
      this.#store.stored = Math.max(this.#store.stored, version);
      this.#waiting = undefined;
      return reply;
    });
  }

  beginFlush(): { readonly flushLater: FlushLater }[] {
    return this.#call(() => {
      if (this.#flushing !== undefined) throw new Error('a flush runs already');
      if (this.#store.stored === this.#store.version) return [];
      this.#flushing = this.#store.version;
      this.#isReleased = false;
      return [{ flushLater: this.#flushLater }];
    });
  }

  releaseFlush(): void {
    this.#isReleased = true;
  }

  endFlush(error: unknown): unknown {
    const version = this.#flushing ?? 0;
    this.#flushing = undefined;
    if (this.#failure === undefined && error === undefined) this.#store.stored = Math.max(this.#store.stored, version);
    return error;
  }

  beginInheritance(): void {}

  endInheritance(): void {
    if (this.#failure === undefined) this.#engine.endInheritance();
  }

  keepOpen(): void {}

  attach(client: string, state: Uint8Array | undefined, readOnly: boolean): number {
    return this.#use((engine) => engine.attach(client, state, readOnly));
  }

  detach(session: number): void {
    this.#use((engine) => engine.detach(session));
  }

  lastState(session: number): Uint8Array<ArrayBuffer> | undefined {
    return this.#use((engine) => engine.lastState(session));
  }

  remembered(): string[] {
    return this.#use((engine) => {
      this.#step();
      return engine.remembered();
    });
  }

  forget(client: string): void {
    this.#use((engine) => engine.forget(client));
  }

  close(): void {
    this.#call((engine) => engine.close());
    this.#failure = new KvError('KV_CLOSED', 'the database is closed');
  }

  dispose(): void {
    this.#failure ??= new KvError('KV_CLOSED', 'the database is closed');
    this.#engine.dispose();
  }

  /** It ends with its process. */
  die(): void {
    this.#engine.die();
  }
}
