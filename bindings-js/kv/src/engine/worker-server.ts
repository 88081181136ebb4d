// A dedicated worker that runs one engine.
import { isBytes } from '../codec/bytes.ts';
import type { LifecycleMessage, OpenRequest, WorkerMessage } from '../wire/worker-protocol.ts';
import { EngineHost } from './engine-host.ts';
import type { LazyPart } from './engine-host.ts';
import type { Trace } from '../base/trace.ts';
import type { KvError } from '../base/errors.ts';
import { toPlain } from '../base/plain-error.ts';
import type { CustomStorage } from '../types/index.ts';

/** The part of a worker's global scope that the server uses. */
export interface Scope {
  onmessage: ((event: { readonly data: OpenRequest | LifecycleMessage | Uint8Array }) => void) | null;
  onmessageerror: (() => void) | null;
  postMessage(message: WorkerMessage, transfer?: Transferable[]): void;
}

/** A storage that the worker opened. */
export interface WorkerStorage extends CustomStorage {
  close?(): Promise<void> | void;
  /** Resolves when others can open the closed files. */
  readonly closing?: Promise<void> | undefined;
  /** Called once, if the files were removed or closed behind the database's back. */
  onLost?: ((error: KvError) => void) | undefined;
}

/** How the worker loads the lazy part of a split module. */
export function lazyOf({ lazy }: OpenRequest): LazyPart | undefined {
  return lazy === undefined
    ? undefined
    : async () => {
        const response = await fetch(lazy);
        if (!response.ok) throw new Error(`${lazy}: HTTP status ${response.status}`);
        return WebAssembly.compile(await response.arrayBuffer());
      };
}

/** What takes the traces to the page, if that wants them. */
export function traceOf({ isTraced }: OpenRequest, scope: Scope): Trace | undefined {
  return isTraced
    ? (detail) => scope.postMessage({ type: 'trace', detail: { ...detail, time: Date.now() } })
    : undefined;
}

/** Where replies and the final error go. */
export interface Replies {
  /** A piece of a reply has `requests`, see `Cut`. */
  push(bytes: Uint8Array<ArrayBuffer>, requests?: number): void;
  end(error: unknown): void;
}

const own = globalThis as unknown as Scope;

export function postReply(bytes: Uint8Array<ArrayBuffer>, requests?: number, scope = own): void {
  scope.postMessage(requests === undefined ? bytes : { type: 'reply', bytes, count: 0, requests }, [bytes.buffer]);
}

export function postFailure(error: unknown, scope = own): void {
  scope.postMessage({ type: 'failed', error: toPlain(error) });
}

/**
 * Serves a page that shares its database with other tabs: takes the scope's messages over. Returns
 * false if sharing is not requested or not possible.
 */
export type ServeShared = (
  request: OpenRequest,
  openStorage: (request: OpenRequest, signal: AbortSignal) => Promise<WorkerStorage>,
  scope: Scope,
) => boolean;

/** Opens the database that the first message names, then executes messages. */
export function serve<S extends WorkerStorage>(
  openStorage: (request: OpenRequest, signal?: AbortSignal) => Promise<S>,
  repliesOf: (storage: S) => Replies,
  { scope = own, shared }: { readonly scope?: Scope; readonly shared?: ServeShared } = {},
): void {
  let host: EngineHost | undefined;
  let replies: Replies | undefined;

  const fail = (error: unknown): void => {
    host = undefined;
    replies?.end(error);
  };

  const open = async (request: OpenRequest): Promise<void> => {
    const storage = await openStorage(request);
    try {
      host = EngineHost.open(request.module, storage, request.engine, {
        lazy: lazyOf(request),
        trace: traceOf(request, scope),
      });
      await host.ready;
      replies = repliesOf(storage);
      storage.onLost = fail;
      host.background = {
        wake: () => scope.postMessage({ type: 'wake' }),
        backgroundError: (error) => scope.postMessage({ type: 'backgroundError', error: toPlain(error) }),
        fail,
      };
    } catch (error) {
      await storage.close?.();
      throw error;
    }
  };

  const execute = (message: Uint8Array): void => {
    // After a failure nothing waits for replies.
    if (host === undefined || replies === undefined) return;
    try {
      let hasWakes = false;
      for (let left = message; ; ) {
        const reply = host.execute(left);
        const { cut } = host;
        replies.push(reply, cut?.requests);
        hasWakes ||= host.hasWakes;
        if (cut === undefined) break;
        left = left.subarray(cut.at);
      }
      if (hasWakes) scope.postMessage({ type: 'wake' });
    } catch (error) {
      fail(error);
    }
  };

  scope.onmessage = ({ data }) => {
    if (isBytes(data)) return execute(data);
    if ('type' in data) {
      // Without other tabs the page's lifecycle does not matter, and leaving needs no steps.
      if (data.type === 'leave') scope.postMessage({ type: 'left', error: undefined });
      return;
    }
    if (!shared?.(data, openStorage, scope))
      open(data).then(
        () => scope.postMessage({ type: 'opened' }),
        (error: unknown) => postFailure(error, scope),
      );
  };
  scope.onmessageerror = () => postFailure(new Error('a message could not be read'), scope);
  scope.postMessage({ type: 'started' });
}
