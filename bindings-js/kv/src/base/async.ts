// Helpers for promises and abort signals, and checks of common arguments.
import { KvError } from './errors.ts';
import { MessageChannel, setImmediate } from './platform.ts';

// Older versions of Safari lack these symbols. The fallbacks are those that polyfills use.
const symbols = Symbol as unknown as Record<'dispose' | 'asyncDispose', symbol | undefined>;
export const dispose: typeof Symbol.dispose = (symbols.dispose ??
  Symbol.for('Symbol.dispose')) as typeof Symbol.dispose;
export const asyncDispose: typeof Symbol.asyncDispose = (symbols.asyncDispose ??
  Symbol.for('Symbol.asyncDispose')) as typeof Symbol.asyncDispose;

/**
 * Calls `start` at once, unless the signal is already aborted, and waits like `abortable`. Rejects
 * with what `start` throws.
 */
export function attempt<T>(start: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  try {
    checkSignal(signal);
    return abortable(start(), signal);
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Whether the signal is aborted. Throws `KV_INVALID_ARGUMENT` if it is no AbortSignal. */
export function isAborted(signal: AbortSignal | undefined): boolean {
  if (signal === undefined) return false;
  if (typeof signal?.throwIfAborted === 'function') return signal.aborted;
  throw new KvError('KV_INVALID_ARGUMENT', 'signal has to be an AbortSignal');
}

/** Throws the signal's reason if it is aborted. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (isAborted(signal)) throw signal?.reason;
}

export function ignore(): void {}

/** Waits for a turn of the event loop. A timer would take longer. */
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

/**
 * Waits for `import()` of code that is loaded when it is first needed. Nothing was done when it
 * fails.
 *
 * @throws KvError KV_IO, retryable: a file that was removed by a deployment, or no network.
 */
export function loadChunk<T>(loading: Promise<T>): Promise<T> {
  return loading.catch((cause: unknown) => {
    throw new KvError('KV_IO', `a part of mangrove-kv cannot be loaded: ${String(cause)}`, { cause, retryable: true });
  });
}

interface AbortCalls {
  readonly calls: Set<() => void>;
  readonly listener: () => void;
}

const waiting = new WeakMap<AbortSignal, AbortCalls>();

/**
 * Calls `call` when the signal aborts, unless the returned function was called before. All calls of
 * a signal share one listener, because Node warns about more than ten.
 */
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

/**
 * A promise that starts its work when it is first awaited: one that nobody awaits costs nothing and
 * never rejects.
 */
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

export function checkCount(name: string, value: unknown, max = Number.MAX_SAFE_INTEGER): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= max) return value;
  throw new KvError('KV_INVALID_ARGUMENT', `${name} has to be a whole number from 0 to ${max}`);
}

/** Like `checkCount`, but also accepts `Infinity`, for no limit. */
export function checkLimit(name: string, value: unknown): number {
  return value === Infinity ? Infinity : checkCount(name, value);
}

export function checkFunction(value: unknown): void {
  if (typeof value === 'function') return;
  throw new KvError('KV_INVALID_ARGUMENT', 'the callback has to be a function');
}

export function checkBoolean(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw new KvError('KV_INVALID_ARGUMENT', `${name} has to be a boolean`);
}

/** Returns the place of `value` in the list; throws unless it is one of it. */
export function checkOneOf(name: string, value: unknown, list: readonly string[]): number {
  const place = list.indexOf(value as string);
  if (place >= 0) return place;
  const quoted = list.map((each) => `"${each}"`);
  throw new KvError('KV_INVALID_ARGUMENT', `${name} has to be ${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)}`);
}
