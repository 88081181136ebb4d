// A dedicated worker that runs one engine.
import type { OpenRequest, WorkerMessage } from './client/worker-protocol.ts';
import { EngineHost, toPlain } from './engine-host.ts';
import type { KvError } from './errors.ts';
import type { CustomStorage } from './types.ts';

/** What a worker hears and says. */
export interface Scope {
  onmessage: ((event: { readonly data: OpenRequest | Uint8Array }) => void) | null;
  onmessageerror: (() => void) | null;
  postMessage(message: WorkerMessage, transfer?: Transferable[]): void;
}

/** A storage that the worker opened. */
export interface WorkerStorage extends CustomStorage {
  close?(): Promise<void> | void;
  /** Told once, when its files were removed behind its back. */
  onLost?: ((error: KvError) => void) | undefined;
}

/** Where replies go. */
export interface Replies {
  push(bytes: Uint8Array<ArrayBuffer>): void;
  end(error: unknown): void;
}

const own = globalThis as unknown as Scope;

export function postReply(bytes: Uint8Array<ArrayBuffer>, scope = own): void {
  scope.postMessage(bytes, [bytes.buffer]);
}

export function postFailure(error: unknown, scope = own): void {
  scope.postMessage({ type: 'failed', error: toPlain(error) });
}

/** Opens what the first message asks for, then executes messages. */
export function serve<S extends WorkerStorage>(
  openStorage: (request: OpenRequest) => Promise<S>,
  repliesOf: (storage: S) => Replies,
  scope = own,
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
      host = EngineHost.open(request.module, storage, request.engine);
      replies = repliesOf(storage);
      storage.onLost = fail;
      host.background = {
        news: () => scope.postMessage({ type: 'news' }),
        trouble: (error) => scope.postMessage({ type: 'trouble', error: toPlain(error) }),
        fail,
      };
    } catch (error) {
      await storage.close?.();
      throw error;
    }
  };

  const execute = (message: Uint8Array): void => {
    // After a failure nobody waits for replies.
    if (host === undefined || replies === undefined) return;
    try {
      replies.push(host.execute(message));
      if (host.hasNews()) scope.postMessage({ type: 'news' });
    } catch (error) {
      fail(error);
    }
  };

  scope.onmessage = ({ data }) => {
    if (data instanceof Uint8Array) execute(data);
    else open(data).then(() => scope.postMessage({ type: 'opened' }), (error: unknown) => postFailure(error, scope));
  };
  scope.onmessageerror = () => postFailure(new Error('a message could not be read'), scope);
  scope.postMessage({ type: 'started' });
}
