// What is used of the platform later than at the import, taken at the import: test environments such as jsdom put others in the place of these, of which one
// may not take what another has made. Timers are not among it: who replaces them means ours, too.
export const { AbortController, Event, EventTarget, MessageChannel, ReadableStream, crypto, performance, queueMicrotask } = globalThis;
