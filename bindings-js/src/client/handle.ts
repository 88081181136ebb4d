// What is open in the engine for an object: closed when that ends, or when nobody can reach it any more.
import { ignore, onAbort } from './async.ts';
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
  readonly id: number;
  readonly #op: number;
  #forgetSignal = ignore;

  /** A number for what the request `op` will close. */
  constructor(connection: Connection, op: number) {
    this.connection = connection;
    this.id = connection.newId();
    this.#op = op;
  }

  /** It is open for `owner` from now on. `abort` is called at the abort, as by `weakly`. */
  own<T extends object>(owner: T, signal?: AbortSignal, abort: (owner: T) => void = ignore): void {
    abandoned.register(owner, this, this);
    if (signal !== undefined) this.#forgetSignal = onAbort(signal, weakly(owner, abort));
  }

  /** It is closed by other means; tells whether it was open. */
  release(): boolean {
    this.#forgetSignal();
    return abandoned.unregister(this);
  }

  close(): void {
    if (this.release()) this.end();
  }

  /** @internal */
  end(): void {
    this.#forgetSignal();
    this.connection.postLater((writer) => writer.u8(this.#op).uv(this.id));
  }
}
