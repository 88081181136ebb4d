// What travels between a page and its worker beside the binary messages.
import type { PlainError } from '../engine-host.ts';
import type { EngineOptions } from './options.ts';

/** The first message to a worker. */
export interface OpenRequest {
  readonly module: WebAssembly.Module;
  readonly storage: 'opfs' | 'indexeddb' | 'fs' | 'memory';
  /** Of the database; with "fs" the path of its directory. */
  readonly name: string;
  readonly lockTimeoutMs: number;
  readonly engine: EngineOptions;
}

/**
 * From a worker: that its script runs, that it opened the database, that it could not or its engine is gone, that work in the background failed, new commits, or a
 * binary reply.
 */
export type WorkerMessage =
  | { readonly type: 'started' }
  | { readonly type: 'opened' }
  | { readonly type: 'news' }
  | { readonly type: 'failed' | 'trouble'; readonly error: PlainError }
  | Uint8Array;
