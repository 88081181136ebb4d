// Handles of what is open in the engine on behalf of an owner. A handle closes when its owner
// closes it, when the owner is garbage-collected, or after the idle timeout.
import { KvError } from '../base/errors.ts';
import { ignore, onAbort } from '../base/async.ts';
import type { Connection } from './connection.ts';

const abandoned = new FinalizationRegistry<Handle>((handle) => handle.end());

/**
 * Returns a function that calls `fn` with `target` unless that has been garbage-collected. The
 * function does not keep `target` alive, and `fn` must not close over it either.
 */
export function weakly<T extends object>(target: T, fn: (target: T) => void): () => void {
  const ref = new WeakRef(target);
  return () => {
    const found = ref.deref();
    if (found !== undefined) fn(found);
  };
}

export class Handle {
  readonly connection: Connection;
  readonly #id: number;
  readonly #op: number;
  readonly #what: string | undefined;
  /** Round of `IdleHandles` of the last use. */
  #usedIn = 0;
  #isExpired = false;
  #forgetSignal = ignore;
  /** Ends with the handle. What it calls must not close over an owner that may be forgotten (see `weakly`). */
  timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * Allocates the id; `op` is the request that closes it. `what` names the handle in errors; a
   * handle without a name never expires.
   */
  constructor(connection: Connection, op: number, what?: string) {
    this.connection = connection;
    this.#id = connection.newId();
    this.#op = op;
    this.#what = what;
  }

  /** Reading it counts as a use. Throws `KV_TIMEOUT` once the handle has expired. */
  get id(): number {
    const { idle } = this.connection;
    if (this.#isExpired) {
      const message = `the ${this.#what} was closed after ${idle.timeoutMs} ms without use; close it when done, or open the database with a longer idleTimeout`;
      throw this.connection.traced(new KvError('KV_TIMEOUT', message, { retryable: true }));
    }
    this.#usedIn = idle.round;
    return this.#id;
  }

  get usedIn(): number {
    return this.#usedIn;
  }

  /**
   * Closes the handle when `owner` is garbage-collected. Calls `abort(owner)` when `signal` aborts,
   * unless the handle has closed; `abort` must not close over `owner` (see `weakly`). With `keeps`,
   * the signal keeps the owner alive.
   */
  own<T extends object>(owner: T, signal?: AbortSignal, abort: (owner: T) => void = ignore, keeps = false): void {
    abandoned.register(owner, this, this);
    if (this.#what !== undefined) this.connection.idle.add(this);
    if (signal !== undefined) this.#forgetSignal = onAbort(signal, keeps ? () => abort(owner) : weakly(owner, abort));
  }

  /**
   * Gives up the handle without a request, as the engine closes it by other means. Returns whether
   * it was open.
   */
  release(): boolean {
    this.#detach();
    return abandoned.unregister(this);
  }

  close(): void {
    if (abandoned.unregister(this)) this.end();
  }

  #detach(): void {
    clearTimeout(this.timer);
    this.#forgetSignal();
    this.connection.idle.delete(this);
  }

  /** Closes the handle for being idle, unless a follower waits for commits through it. */
  expire(): void {
    if (this.connection.waiting.has(this.#id)) {
      this.#usedIn = this.connection.idle.round;
    } else {
      this.#isExpired = true;
      this.connection.tracer?.record({ source: 'connection', event: 'idle-closed', handle: this.#what as string });
      this.close();
    }
  }

  /** @internal */
  end(): void {
    this.#detach();
    this.connection.postLater((writer) => writer.u8(this.#op).uv(this.#id));
  }
}
