// Replaces `setImmediate` before the engine's sources capture it. Imported first.
import timers from 'node:timers';

const real = timers.setImmediate;
let plan: ((run: () => void) => void) | undefined;

timers.setImmediate = ((run: () => void) => (plan === undefined ? real(run) : plan(run))) as typeof real;

/** What `setImmediate` does from now on. */
export function planImmediates(by: typeof plan): void {
  plan = by;
}
