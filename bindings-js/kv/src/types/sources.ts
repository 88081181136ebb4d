// Where the engine's module and the worker's script come from.

// Derived from the environment, so that programs without the DOM types compile too. `object` is
// needed because a module has no members that tell it from a number.
export type ModuleType = typeof globalThis extends { WebAssembly: { Module: new (...args: never[]) => infer M } } ? M & object : never;
type ResponseType = typeof globalThis extends { Response: new (...args: never[]) => infer R } ? R : never;
type WorkerType = typeof globalThis extends { Worker: new (...args: never[]) => infer W } ? W : never;

/**
 * Where to get the engine's module: a URL (relative to the page, or to the working directory
 * outside browsers), the `Response` to a request for it, its bytes, or a compiled
 * `WebAssembly.Module`. `openSync` can neither fetch it nor wait for a response.
 */
export type WasmSource = string | URL | ResponseType | ArrayBuffer | ArrayBufferView | ModuleType;

/**
 * Where to get the worker's script: its URL, or a function that starts a module worker with
 * `worker-indexeddb.js` if its argument is "indexeddb", otherwise with `worker.js`.
 */
export type WorkerSource = string | URL | ((storage: 'opfs' | 'indexeddb' | 'memory') => WorkerType);
