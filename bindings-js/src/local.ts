// Loaded by the browser's entry only where the engine runs in the caller's thread.
export { LocalTransport } from './client/local-transport.ts';
export { WatchedStorage } from './storage/custom.ts';
export { MemoryStorage } from './storage/memory.ts';
export { OpfsStorage } from './storage/opfs.ts';
