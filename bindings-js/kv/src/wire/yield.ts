// A loop of awaited calls that never wait is a chain of microtasks and would starve the event loop,
// so now and then a call awaits a turn of it.
import { performance } from '../base/platform.ts';
import { turn } from '../base/async.ts';

/** How long calls go on between two turns of the event loop. */
const BUDGET_MS = 8;
/** Most calls between two readings of the clock; one costs as much as a step of an iterator. */
const MAX_STRIDE = 64;
/** Longest time meant to pass between two readings; slower calls halve the stride. */
const LOOK_MS = 1;

let stride = MAX_STRIDE;
let calls = 0;
let lookedAt = 0;
let endsAt = 0;
/** The next turn, once requested. */
let next: Promise<void> | undefined;

/**
 * The turn to await if calls have used up `BUDGET_MS`; undefined if not. Reads the clock once per
 * stride, or at once with `mustLook`, for calls that take long themselves.
 */
export function due(mustLook = false): Promise<void> | undefined {
  if (++calls < stride && !mustLook) return undefined;
  const now = performance.now();
  if (next === undefined) {
    endsAt = now + BUDGET_MS;
    next = turn().then(() => {
      next = undefined;
    });
  } else if (calls >= stride) {
    stride = now - lookedAt > LOOK_MS ? Math.max(stride >> 1, 1) : Math.min(stride << 1, MAX_STRIDE);
  }
  calls = 0;
  lookedAt = now;
  return now < endsAt ? undefined : next;
}
