// What `platform.ts` has, for pages: they have all of it. Captured at import, too.
export const {
  AbortController,
  Event,
  EventTarget,
  MessageChannel,
  ReadableStream,
  TextDecoder,
  TextEncoder,
  crypto,
  performance,
  queueMicrotask,
} = globalThis;

export const soon = queueMicrotask;

// Of a polyfill, or of a test environment.
export const { setImmediate } = globalThis as { readonly setImmediate?: (call: () => void) => unknown };

export const diagnostics = undefined;
