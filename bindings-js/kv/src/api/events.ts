// Events that a database dispatches to its listeners.
import { Event } from '../base/platform.ts';
import type { DatabaseEventMap } from '../types/index.ts';

type Fields<E extends keyof DatabaseEventMap> = Omit<DatabaseEventMap[E], keyof Event>;

/**
 * Dispatches an event with `source` as its target: a database cannot inherit from EventTarget,
 * because it already extends a collection.
 */
export function report<E extends keyof DatabaseEventMap>(
  listeners: EventTarget,
  source: EventTarget,
  type: E,
  fields: Fields<E>,
): void {
  try {
    const event = Object.assign(new Event(type), fields);
    for (const name of ['target', 'currentTarget']) Object.defineProperty(event, name, { value: source });
    listeners.dispatchEvent(event);
  } catch {
    // The platform reports listeners that throw. No other failure may interrupt the caller either.
  }
}

/**
 * Callbacks of the databases that lock a place, by that place. The references are weak: a database
 * that has become unreachable is not notified.
 */
const holders = new Map<string, WeakRef<() => void>>();

/**
 * Calls `blocked` when an `open` in this thread begins to wait for the place, until the returned
 * function is called.
 */
export function hold(place: string, blocked: () => void): () => void {
  const held = new WeakRef(blocked);
  holders.set(place, held);
  return () => {
    if (holders.get(place) === held) holders.delete(place);
  };
}

/** An `open` is about to lock the place, and will wait if this thread has a holder. */
export function reportBlocked(place: string): void {
  holders.get(place)?.deref()?.();
}
