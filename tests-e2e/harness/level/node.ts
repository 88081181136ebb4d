// The few Node globals and modules that tape requires.
import { EventEmitter } from 'events';

Object.assign(globalThis, {
  global: globalThis,
  process: {
    env: {},
    cwd: () => '/',
    nextTick: (run: (...args: unknown[]) => void, ...args: unknown[]) => queueMicrotask(() => run(...args)),
  },
});

export { EventEmitter as Stream };
export const sep = '/';
