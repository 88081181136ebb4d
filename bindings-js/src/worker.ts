// The dedicated worker that runs one engine over the files of the origin private file system.
import type { OpenRequest, WorkerMessage } from './client/worker-protocol.ts';
import { EngineHost, toPlain } from './engine-host.ts';
import { MemoryStorage } from './storage/memory.ts';
import { OpfsStorage } from './storage/opfs.ts';

interface Scope {
  onmessage: ((event: { readonly data: OpenRequest | Uint8Array }) => void) | null;
  onmessageerror: (() => void) | null;
  postMessage(message: WorkerMessage, transfer?: Transferable[]): void;
}

const scope = globalThis as unknown as Scope;
let host: EngineHost | undefined;

async function open({ module, storage, name, lockTimeoutMs, engine }: OpenRequest): Promise<void> {
  const files = storage === 'opfs'
    ? await OpfsStorage.open(name, engine.create, lockTimeoutMs)
    : new MemoryStorage();
  try {
    host = EngineHost.open(module, files, engine);
  } catch (error) {
    if (files instanceof OpfsStorage) files.close();
    throw error;
  }
}

function fail(error: unknown): void {
  scope.postMessage({ type: 'failed', error: toPlain(error) });
}

function execute(message: Uint8Array): void {
  // After a failure nobody waits for replies.
  if (host === undefined) return;
  try {
    const reply = host.execute(message);
    scope.postMessage(reply, [reply.buffer]);
    if (host.hasNews()) scope.postMessage({ type: 'news' });
  } catch (error) {
    host = undefined;
    fail(error);
  }
}

scope.onmessage = ({ data }) => {
  if (data instanceof Uint8Array) execute(data);
  else open(data).then(() => scope.postMessage({ type: 'opened' }), fail);
};
scope.onmessageerror = () => fail(new Error('a message could not be read'));
