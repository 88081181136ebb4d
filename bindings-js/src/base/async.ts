// Small helpers around promises.
import { KvError } from './errors.ts';
import { MessageChannel } from './platform.ts';

// Older Safari lacks the symbols; these are the ones that polyfills use.
const symbols = Symbol as unknown as Record<'dispose' | 'asyncDispose', symbol | undefined>;
export const dispose: typeof Symbol.dispose =
  (symbols.dispose ?? Symbol.for('Symbol.dispose')) as typeof Symbol.dispose;
export const asyncDispose: typeof Symbol.asyncDispose =
  (symbols.asyncDispose ?? Symbol.for('Symbol.asyncDispose')) as typeof Symbol.asyncDispose;

/** Runs `start` at once, unless the signal is aborted already, and waits for it as `abortable`; what it throws rejects. */
export function attempt<T>(start: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  try {
    checkSignal(signal);
    return abortable(start(), signal);
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Tells whether a signal is aborted already. */
export function isAborted(signal: AbortSignal | undefined): boolean {
  if (signal === undefined) return false;
  if (typeof signal?.throwIfAborted === 'function') return signal.aborted;
  throw new KvError('KV_INVALID_ARGUMENT', 'signal has to be an AbortSignal');
}

/** Throws the reason of a signal that is aborted already. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (isAborted(signal)) throw signal?.reason;
}

export function ignore(): void {}

/** Of the runtime, not of a test that replaces timers. */
const { setImmediate } = globalThis as { readonly setImmediate?: (call: () => void) => unknown };

/** Lets everything else have its turn. A timer would wait for longer. */
export function turn(): Promise<void> {
  return new Promise((resolve) => {
    if (setImmediate !== undefined) {
      setImmediate(resolve);
      return;
    }
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}

interface AbortCalls {
  readonly calls: Set<() => void>;
  readonly listener: () => void;
}

const waiting = new WeakMap<AbortSignal, AbortCalls>();

/** Calls `call` at the abort, until what it returns is called. All share one listener: Node warns of more than ten. */
export function onAbort(signal: AbortSignal | undefined, call: () => void): () => void {
  if (signal === undefined) return ignore;
  let shared = waiting.get(signal);
  if (shared === undefined) {
    const calls = new Set<() => void>();
    shared = { calls, listener: () => calls.forEach((each) => each()) };
    waiting.set(signal, shared);
    signal.addEventListener('abort', shared.listener, { once: true });
  }
  const { calls, listener } = shared;
  calls.add(call);
  return () => {
    if (!calls.delete(call) || calls.size > 0) return;
    signal.removeEventListener('abort', listener);
    waiting.delete(signal);
  };
}

/** Settles with `promise`, or rejects with the signal's reason as soon as it is aborted. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    const forget = onAbort(signal, abort);
    promise.then(resolve, reject).finally(forget);
    if (signal.aborted) abort();
  });
}

/** A promise whose work starts with the first `then`, so that one which nobody awaits costs and rejects nothing. */
export class LazyPromise<T> implements Promise<T> {
  readonly #start: () => Promise<T>;
  #started: Promise<T> | undefined;

  constructor(start: () => Promise<T>) {
    this.#start = start;
  }

  get [Symbol.toStringTag](): string {
    return 'Promise';
  }

  #promise(): Promise<T> {
    this.#started ??= this.#start();
    return this.#started;
  }

  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#promise().then(onFulfilled, onRejected);
  }

  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.#promise().catch(onRejected);
  }

  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.#promise().finally(onFinally);
  }
}

/** A number of things: whole and not negative. */
export function checkCount(name: string, value: unknown, max = Number.MAX_SAFE_INTEGER): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= max) return value;
  throw new KvError('KV_INVALID_ARGUMENT', `${name} has to be a whole number from 0 to ${max}`);
}

/** As `checkCount`; `Infinity` is no limit. */
export function checkLimit(name: string, value: unknown): number {
  return value === Infinity ? Infinity : checkCount(name, value);
}

export function checkFunction(value: unknown): void {
  if (typeof value === 'function') return;
  throw new KvError('KV_INVALID_ARGUMENT', 'the callback has to be a function');
}
