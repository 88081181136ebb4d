// What a database reports to those who listen, as events of the platform.
import { Event } from '../base/platform.ts';
import type { DatabaseEventMap } from '../types/index.ts';

type Fields<E extends keyof DatabaseEventMap> = Omit<DatabaseEventMap[E], keyof Event>;

/** `source` is what the event says it comes from: a database cannot inherit from EventTarget, its collections have another base. */
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
    // The platform tells of listeners that throw. If it is broken itself, what is being done goes on all the same.
  }
}

/** Databases that lock others out, by where they are. One that nobody can reach any more hears nothing. */
const holders = new Map<string, WeakRef<() => void>>();

/** Calls `blocked` when an `open` of this thread begins to wait for the place, until what it returns is called. */
export function hold(persistence: string, path: string, blocked: () => void): () => void {
  const place = `${persistence}:${path}`;
  const held = new WeakRef(blocked);
  holders.set(place, held);
  return () => {
    if (holders.get(place) === held) holders.delete(place);
  };
}

/** An `open` begins to wait, if somebody holds the place. */
export function reportBlocked(persistence: string, path: string): void {
  holders.get(`${persistence}:${path}`)?.deref()?.();
}
