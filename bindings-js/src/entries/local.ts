// The browser entry loads this module only if the engine runs in the caller's thread.
export { InThreadTransport } from '../engine/in-thread-transport.ts';
export { syncFaces } from '../api/sync.ts';
export { WatchedStorage } from '../storage/custom.ts';
export { MemoryStorage } from '../storage/memory.ts';
export { OpfsStorage } from '../storage/opfs.ts';
