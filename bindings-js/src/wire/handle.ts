// What is open in the engine for an object: closed when the object ends, when nobody can reach it, or when it was idle for too long.
import { KvError } from '../base/errors.ts';
import { ignore, onAbort } from '../base/async.ts';
import type { Connection } from './connection.ts';

const abandoned = new FinalizationRegistry<Handle>((handle) => handle.end());

/** A function that calls `fn` while `target` can be reached, and does not keep it alive. Nor may `fn`: it closes over nothing. */
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
  /** The round of `IdleHandles` in which it was used last. */
  #usedIn = 0;
  #isExpired = false;
  #forgetSignal = ignore;

  /** A number for what the request `op` will close. `what` names it in errors; without a name it may be idle for ever. */
  constructor(connection: Connection, op: number, what?: string) {
    this.connection = connection;
    this.#id = connection.newId();
    this.#op = op;
    this.#what = what;
  }

  /** Counts as a use. Throws KV_TIMEOUT once it was closed for being idle. */
  get id(): number {
    const { idle } = this.connection;
    if (this.#isExpired) {
      const message = `the ${this.#what} was closed after ${idle.timeoutMs} ms without use; close it when done, or open the database with a longer idleTimeout`;
      throw new KvError('KV_TIMEOUT', message, { retryable: true });
    }
    this.#usedIn = idle.round;
    return this.#id;
  }

  get usedIn(): number {
    return this.#usedIn;
  }

  /** It is open for `owner` from now on. `abort` is called at the abort, as by `weakly`. */
  own<T extends object>(owner: T, signal?: AbortSignal, abort: (owner: T) => void = ignore): void {
    abandoned.register(owner, this, this);
    if (this.#what !== undefined) this.connection.idle.add(this);
    if (signal !== undefined) this.#forgetSignal = onAbort(signal, weakly(owner, abort));
  }

  /** It is closed by other means; tells whether it was open. */
  release(): boolean {
    this.#detach();
    return abandoned.unregister(this);
  }

  close(): void {
    if (abandoned.unregister(this)) this.end();
  }

  #detach(): void {
    this.#forgetSignal();
    this.connection.idle.delete(this);
  }

  /** Closes it for being idle, unless somebody waits for commits through it. */
  expire(): void {
    if (this.connection.waiting.has(this.#id)) {
      this.#usedIn = this.connection.idle.round;
    } else {
      this.#isExpired = true;
      this.close();
    }
  }

  /** @internal */
  end(): void {
    this.#detach();
    this.connection.postLater((writer) => writer.u8(this.#op).uv(this.#id));
  }
}
