// Globals captured at import. Test environments such as jsdom later replace them with versions that
// may not accept each other's objects. Timers are not captured: a test that replaces them means
// ours, too.
export const { AbortController, Event, EventTarget, MessageChannel, ReadableStream, crypto, performance, queueMicrotask } = globalThis;
