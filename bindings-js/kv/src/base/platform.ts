// Globals captured at import. Test environments such as jsdom later replace them with versions that
// may not accept each other's objects, or lack some. Timers are not captured: a test that replaces
// them means ours, too.
type Platform = Pick<
  typeof globalThis,
  'MessageChannel' | 'ReadableStream' | 'TextDecoder' | 'TextEncoder' | 'performance' | 'setImmediate'
>;

/** The part of `node:diagnostics_channel` that is used. */
interface Diagnostics {
  channel(name: string): { readonly hasSubscribers: boolean; publish(message: unknown): void };
}

const runtime = (globalThis as { readonly process?: { getBuiltinModule?(name: string): object | undefined } }).process;

/** A module of Node, Deno or Bun: what is in it is not replaced by jsdom, nor by Jest's fake timers before any import. */
function builtin(name: string): Partial<Platform & Diagnostics> {
  return runtime?.getBuiltinModule?.(`node:${name}`) ?? {};
}

export const { AbortController, Event, EventTarget, crypto, queueMicrotask } = globalThis;
export const { MessageChannel = builtin('worker_threads').MessageChannel as Platform['MessageChannel'] } = globalThis;
export const { ReadableStream = builtin('stream/web').ReadableStream as Platform['ReadableStream'] } = globalThis;
export const { TextDecoder = builtin('util').TextDecoder as Platform['TextDecoder'] } = globalThis;
export const { TextEncoder = builtin('util').TextEncoder as Platform['TextEncoder'] } = globalThis;
export const { performance = globalThis.performance } = builtin('perf_hooks');

const { setImmediate: immediate = (globalThis as Partial<Platform>).setImmediate } = builtin('timers');
/** Undefined also where it is a fake, which has a clock. */
export const setImmediate = immediate !== undefined && 'clock' in immediate ? undefined : immediate;

// The glue of the engine's module takes them from `globalThis` when it is imported, which is later.
if ((globalThis as Partial<Platform>).TextDecoder === undefined)
  Object.assign(globalThis, { TextDecoder, TextEncoder });

/** Where Node, Deno and Bun publish traces. */
export const diagnostics = builtin('diagnostics_channel').channel?.('mangrove-kv');

const settled = Promise.resolve();

/** Runs `call` in a microtask, also where `queueMicrotask` is a fake. It must not throw. */
export function soon(call: () => void): void {
  void settled.then(call);
}
