// An engine in this thread as the leader of several clients uses it. Commits of all of them share
// flushes, which another thread makes.
import { KvError } from '../base/errors.ts';
import type { Trace } from '../base/trace.ts';
import { InThreadTransport } from '../engine/in-thread-transport.ts';
import { hasDatabase } from '../storage/node-directory.ts';
import { NodeStorage } from '../storage/node-fs.ts';
import type { LeaderEngine } from '../tabs/environment.ts';
import type { EngineOptions } from '../wire/contracts.ts';
import type { Cut } from '../wire/transport.ts';

const NOTHING = new Uint8Array(0);

export class ServedEngine implements LeaderEngine {
  readonly #transport: InThreadTransport;
  /** The transport is a handle's, which looks up without messages: its client is the selected one. */
  readonly #isHandle: boolean;
  cut: Cut | undefined;
  state: Uint8Array<ArrayBuffer> | undefined;
  wakes: readonly number[] = [];
  #owesFlush = false;

  constructor(transport: InThreadTransport, isHandle: boolean) {
    this.#transport = transport;
    this.#isHandle = isHandle;
  }

  get #host(): InThreadTransport['host'] {
    return this.#transport.host;
  }

  get version(): number {
    return this.#host.version;
  }

  get sealedKey(): Uint8Array | undefined {
    return this.#host.sealedKey;
  }

  attach(client: string, state: Uint8Array | undefined, readOnly: boolean): number {
    const session = this.#host.attach(client, state, readOnly);
    this.#return();
    return session;
  }

  detach(session: number): void {
    this.#host.detach(session);
  }

  execute(message: Uint8Array, session: number, seq: number): Uint8Array<ArrayBuffer> {
    const host = this.#host;
    const { flushesLater } = this.#transport;
    const bytes = flushesLater ? host.executeOwing(message, session, seq) : host.execute(message, session, seq);
    this.#owesFlush = flushesLater && host.owesFlush;
    this.cut = host.cut;
    this.state = host.state;
    this.wakes = host.wakes;
    if (this.wakes.includes(0)) this.#transport.events?.wake();
    this.#return();
    return bytes;
  }

  settled(): Promise<void> | undefined {
    return this.#owesFlush ? this.#transport.flushed() : undefined;
  }

  lastState(session: number): Uint8Array<ArrayBuffer> | undefined {
    return this.#host.lastState(session);
  }

  remembered(): string[] {
    return this.#host.remembered();
  }

  forget(client: string): void {
    this.#host.forget(client);
  }

  endInheritance(): void {
    this.#host.endInheritance();
  }

  close(): void {
    try {
      if (this.#isHandle) this.#host.keepOpen(false);
      this.#host.close();
    } finally {
      this.dispose();
    }
  }

  dispose(): void {
    void this.#transport.dispose();
  }

  /** Selects the handle's own client again. */
  #return(): void {
    if (this.#isHandle) this.#host.execute(NOTHING);
  }
}

/** What happens to a served engine apart from requests. */
export interface ServedEvents {
  readonly trace: Trace | undefined;
  /** Followers of these sessions have commits to read. */
  wake(sessions: readonly number[]): void;
  backgroundError(error: KvError): void;
  fail(error: KvError): void;
}

/**
 * Opens the files in a directory whose lock the caller has. `isAgain` says that the database was there
 * before.
 */
export function openServed(
  module: WebAssembly.Module,
  directory: string,
  options: EngineOptions,
  isAgain: boolean,
  { trace, wake, backgroundError, fail }: ServedEvents,
): ServedEngine {
  if (isAgain && !hasDatabase(directory))
    throw new KvError('KV_EVICTED', `the files of ${directory} were removed while it was open; open it again`);
  // `readOnly` restricts a handle, not the engine, which serves others too.
  const engine = { ...options, exclusive: options.exclusive && !isAgain, readOnly: false };
  const transport = new InThreadTransport(module, new NodeStorage(directory), engine, { release: () => {}, trace });
  // No handle uses it.
  const nothing = (): void => {};
  transport.events = {
    reply: nothing,
    refuse: nothing,
    blocked: nothing,
    leader: nothing,
    wake: nothing,
    idle: nothing,
    backgroundError,
    fail,
  };
  transport.others = { wake, idle: nothing };
  transport.host.beginInheritance();
  return new ServedEngine(transport, false);
}
