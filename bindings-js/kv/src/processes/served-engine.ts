// An engine in this thread as the leader of several clients uses it. Commits of all of them share
// flushes, which another thread makes.
import { KvError } from '../base/errors.ts';
import { soon } from '../base/platform.ts';
import type { Trace } from '../base/trace.ts';
import { GroupCommit } from '../engine/group-commit.ts';
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
  #isClosed = false;
  readonly #onClose = new Set<() => void>();

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
    const { sharesFlushes } = this.#transport;
    const bytes = sharesFlushes ? host.executeOwing(message, session, seq) : host.execute(message, session, seq);
    this.#owesFlush = sharesFlushes && host.owesFlush;
    this.cut = host.cut;
    this.state = host.state;
    this.wakes = host.wakes;
    this.#return();
    // Last: the handle may send a message at once, which may have to wait for a flush.
    if (this.wakes.includes(0)) this.#transport.events?.wake();
    return bytes;
  }

  settled(): Promise<void> | undefined {
    return this.#owesFlush ? this.#transport.flushed() : undefined;
  }

  store(): void {
    this.#transport.flushHere();
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

  /** Opens a session for a handle of this thread, which executes messages at once. */
  attachHere(): number {
    this.#transport.settle();
    return this.attach('', undefined, false);
  }

  detachHere(session: number): void {
    if (this.#isClosed) return;
    this.#transport.settle();
    this.detach(session);
  }

  /** Executes a message of such a handle to its end; returns the pieces of its reply. */
  executeHere(
    message: Uint8Array,
    session: number,
  ): { readonly bytes: Uint8Array<ArrayBuffer>; readonly requests: number | undefined }[] {
    this.#transport.settle();
    const host = this.#host;
    const pieces = [];
    const wakes = new Set<number>();
    for (let left: Uint8Array | undefined = message; left !== undefined; left = host.left) {
      const bytes = host.execute(left, session);
      pieces.push({ bytes, requests: host.cut?.requests });
      for (const client of host.wakes) wakes.add(client);
    }
    this.#return();
    if (wakes.size > 0) soon(() => this.#transport.wake([...wakes]));
    return pieces;
  }

  /** Calls `closed` when the engine is. Returns a function that cancels. */
  onClose(closed: () => void): () => void {
    this.#onClose.add(closed);
    return () => this.#onClose.delete(closed);
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
    this.#isClosed = true;
    for (const closed of [...this.#onClose]) closed();
    this.#onClose.clear();
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
  const transport = new InThreadTransport(module, new NodeStorage(directory), engine, {
    release: () => {},
    group: new GroupCommit(),
    trace,
  });
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
