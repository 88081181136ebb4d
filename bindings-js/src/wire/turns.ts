// Work that never has to wait for anything would let nothing else run: now and then it waits for a turn of the event loop.
import { performance } from '../base/platform.ts';
import { turn } from '../base/async.ts';

/** How long it goes on between two turns. */
const BUDGET_MS = 8;
/** Most calls between two looks at the clock, which costs as much as a step of an iterator. */
const MAX_STRIDE = 64;
/** Between two looks; if the calls take longer, there are fewer of them. */
const LOOK_MS = 1;

let stride = MAX_STRIDE;
let calls = 0;
let lookedAt = 0;
let endsAt = 0;
/** The next turn, once one was asked for. */
let next: Promise<void> | undefined;

/** What to wait for, if the calls since the last turn took their time. `mustLook`: the call takes long itself. */
export function due(mustLook = false): Promise<void> | undefined {
  if (++calls < stride && !mustLook) return undefined;
  const now = performance.now();
  if (next === undefined) {
    endsAt = now + BUDGET_MS;
    next = turn().then(() => { next = undefined; });
  } else if (calls >= stride) {
    stride = now - lookedAt > LOOK_MS ? Math.max(stride >> 1, 1) : Math.min(stride << 1, MAX_STRIDE);
  }
  calls = 0;
  lookedAt = now;
  return now < endsAt ? undefined : next;
}
