// The protocol's environment in a browser: BroadcastChannel, Web Locks, and an engine in the
// worker.
import { AbortController, performance } from '../base/platform.ts';
import { toKvError } from '../storage/opfs.ts';
import { KvError } from '../base/errors.ts';
import type { Channel, Environment, LeaderEngine, LockCallbacks } from './environment.ts';
import type { Message } from './messages.ts';

/** Whether the browser has all that the protocol needs. */
export function isSupported(): boolean {
  return typeof BroadcastChannel === 'function' && typeof globalThis.navigator?.locks?.request === 'function';
}

export class BrowserEnvironment implements Environment {
  readonly isOrdered = false;
  /**
   * Name of the channel on which the tab also receives its own messages, as proof that channels
   * work.
   */
  readonly #echoed: string;
  readonly #open: (signal: AbortSignal) => Promise<LeaderEngine>;
  readonly #failed: (error: KvError) => void;
  readonly now = performance.now.bind(performance);

  constructor(echoed: string, open: (signal: AbortSignal) => Promise<LeaderEngine>, failed: (error: KvError) => void) {
    this.#echoed = echoed;
    this.#open = open;
    this.#failed = failed;
  }

  time(): number {
    return Date.now();
  }

  after(ms: number, run: () => void): () => void {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  }

  channel(name: string, receive: (message: Message) => void): Channel {
    const incoming = new BroadcastChannel(name);
    incoming.onmessage = ({ data }) => receive(data as Message);
    // A BroadcastChannel receives messages of other instances in its thread, but not its own.
    const outgoing = name === this.#echoed ? new BroadcastChannel(name) : incoming;
    return {
      post: (message) => outgoing.postMessage(message),
      close: () => {
        incoming.onmessage = null;
        incoming.close();
        outgoing.close();
      },
    };
  }

  lock(name: string, steal: boolean, callbacks: LockCallbacks): () => void {
    const controller = new AbortController();
    let release: (() => void) | undefined;
    let isOver = false;
    const held = (): Promise<void> =>
      new Promise((resolve) => {
        if (isOver) return resolve();
        release = resolve;
        callbacks.granted(resolve);
      });
    // Web Locks refuses `steal` with a signal; a steal does not wait.
    const options = steal ? { steal } : { signal: controller.signal };
    navigator.locks.request(name, options, held).catch((error: unknown) => {
      if (isOver && release === undefined) return;
      if (release !== undefined || (error as Error).name === 'AbortError') callbacks.lost?.();
      else this.#failed(new KvError('KV_UNSUPPORTED', `the browser refuses the lock ${name}`, { cause: error }));
    });
    return () => {
      isOver = true;
      if (release === undefined) controller.abort();
      else release();
    };
  }

  dropKept(): void {
    // Chromium drops a kept page when one of its locks is requested or the locks are listed, but
    // not because of a request that was waiting before.
    navigator.locks.query().catch(() => undefined);
  }

  noAnswer(ms: number): string {
    return `no tab answered within ${ms} ms`;
  }

  locked(title: string): KvError {
    return new KvError(
      'KV_LOCKED',
      `${title} is held by a tab that does not answer, or by one with another version of mangrove-kv; close or reload it`,
      { retryable: true },
    );
  }

  openEngine(opened: (engine: LeaderEngine) => void, failed: (error: KvError) => void): () => void {
    const controller = new AbortController();
    const { signal } = controller;
    this.#open(signal).then(
      (engine) => {
        if (signal.aborted) engine.dispose();
        else opened(engine);
      },
      (error: unknown) => {
        if (!signal.aborted) failed(toKvError(error, 'open the database'));
      },
    );
    return () => controller.abort();
  }
}
