// Loaded by the browser's entry only where the engine has to run in the caller's thread.
export { LocalTransport } from './client/local-transport.ts';
export { WatchedStorage } from './storage/custom.ts';
