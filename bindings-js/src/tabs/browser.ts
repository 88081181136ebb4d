// The protocol's world in a browser: BroadcastChannel, Web Locks, and files that a worker opens.
import { AbortController, performance } from '../base/platform.ts';
import { toKvError } from '../storage/opfs.ts';
import { KvError } from '../base/errors.ts';
import type { Channel, Environment, LeaderEngine, LockCallbacks } from './environment.ts';
import type { Message } from './messages.ts';

/** Whether there is all that the protocol needs. */
export function isSupported(): boolean {
  return typeof BroadcastChannel === 'function' && typeof globalThis.navigator?.locks?.request === 'function';
}

export class BrowserEnvironment implements Environment {
  /** The channel on which what is posted comes back, as a sign that channels work. */
  readonly #echoed: string;
  readonly #open: (signal: AbortSignal) => Promise<LeaderEngine>;
  readonly #failed: (error: KvError) => void;

  constructor(echoed: string, open: (signal: AbortSignal) => Promise<LeaderEngine>, failed: (error: KvError) => void) {
    this.#echoed = echoed;
    this.#open = open;
    this.#failed = failed;
  }

  now(): number {
    return performance.now();
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
    // A channel does not hear itself, but others of its name in the same thread.
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
    const held = (): Promise<void> => new Promise((resolve) => {
      if (isOver) return resolve();
      release = resolve;
      callbacks.granted(resolve);
    });
    // A theft cannot be waited for, so it takes no signal.
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
    // Chromium drops such a page when a lock of it is asked for or all locks are, but not if somebody waits for the lock already.
    navigator.locks.query().catch(() => undefined);
  }

  openEngine(opened: (engine: LeaderEngine) => void, failed: (error: KvError) => void): () => void {
    const controller = new AbortController();
    const { signal } = controller;
    this.#open(signal).then((engine) => {
      if (signal.aborted) engine.dispose();
      else opened(engine);
    }, (error: unknown) => {
      if (!signal.aborted) failed(toKvError(error, 'open the database'));
    });
    return () => controller.abort();
  }
}
