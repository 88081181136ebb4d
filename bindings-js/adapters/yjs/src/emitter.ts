// Named events with the methods of lib0's Observable, which y-indexeddb extends. lib0 itself is no
// dependency, since strict layouts of node_modules would not let the adapter import it.

import { KvError } from 'mangrove-kv';

type Listener = (...args: never[]) => unknown;

function checked(listener: Listener): Listener {
  if (typeof listener === 'function') return listener;
  throw new KvError('KV_INVALID_ARGUMENT', 'a listener has to be a function');
}

/** Calls listeners by the name of an event. `Events` maps names to the listeners' arguments. */
export class Emitter<Events extends { readonly [name: string]: readonly unknown[] }> {
  readonly #listeners = new Map<string, Set<Listener>>();

  /** Calls `listener` at each event `name`. The same listener is registered once. */
  on<E extends keyof Events & string>(name: E, listener: (...args: Events[E]) => unknown): void;
  on(name: string, listener: (...args: never[]) => unknown): void;
  on(name: string, listener: Listener): void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(checked(listener)));
  }

  /** Calls `listener` at the next event `name` only. */
  once<E extends keyof Events & string>(name: E, listener: (...args: Events[E]) => unknown): void;
  once(name: string, listener: (...args: never[]) => unknown): void;
  once(name: string, listener: Listener): void {
    checked(listener);
    const once = (...args: never[]): void => {
      this.off(name, once);
      listener(...args);
    };
    this.on(name, once);
  }

  /** Stops calling `listener`. */
  off(name: string, listener: (...args: never[]) => unknown): void {
    this.#listeners.get(name)?.delete(listener);
  }

  /**
   * Calls the listeners of an event. What a listener throws is reported as an uncaught error; the
   * others are called all the same.
   */
  emit<E extends keyof Events & string>(name: E, args: Events[E]): void;
  emit(name: string, args: readonly unknown[]): void;
  emit(name: string, args: readonly unknown[]): void {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        listener(...(args as never[]));
      } catch (error) {
        reportUncaught(error);
      }
    }
  }
}

/** Reports an error as an uncaught exception. */
export function reportUncaught(error: unknown): void {
  if (typeof globalThis.reportError === 'function') globalThis.reportError(error);
  else
    queueMicrotask(() => {
      throw error;
    });
}
