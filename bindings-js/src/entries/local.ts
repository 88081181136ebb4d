// The browser entry loads this module only if the engine runs in the caller's thread.
import { InThreadTransport } from '../engine/in-thread-transport.ts';
import type { CheckedOptions, EngineOptions } from '../api/options.ts';
import { syncFaces } from '../api/sync.ts';
import { KvError } from '../base/errors.ts';
import { WatchedStorage } from '../storage/custom.ts';
import { MemoryStorage } from '../storage/memory.ts';
import { OpfsStorage } from '../storage/opfs.ts';
import type { CustomStorage } from '../types/index.ts';
import type { Transport } from '../wire/transport.ts';

const release = (): void => undefined;

export function openInMemory(module: WebAssembly.Module, rest: WebAssembly.Module | undefined, engine: EngineOptions): Transport {
  return new InThreadTransport(module, new MemoryStorage(), engine, { release, rest, syncFaces });
}

export function openIn(module: WebAssembly.Module, rest: WebAssembly.Module | undefined, storage: CustomStorage, engine: EngineOptions): Transport {
  return new InThreadTransport(module, new WatchedStorage(storage), engine, { release, rest, syncFaces });
}

/** Requires a dedicated worker. `blocked` is called before it waits for a database that is open. */
export async function openInOpfs(
  module: WebAssembly.Module,
  rest: WebAssembly.Module | undefined,
  name: string,
  { engine, lockTimeoutMs, signal }: CheckedOptions,
  blocked: () => void,
): Promise<Transport> {
  if (!('createSyncAccessHandle' in FileSystemFileHandle.prototype)) {
    throw new KvError('KV_UNSUPPORTED', 'files of the origin private file system can be used in the same thread in dedicated workers only');
  }
  if (lockTimeoutMs > 0) blocked();
  const storage = await OpfsStorage.open(name, engine.create && !engine.readOnly, lockTimeoutMs);
  if (signal?.aborted) {
    storage.close();
    throw signal.reason;
  }
  return new InThreadTransport(module, storage, engine, { release: () => storage.close(), rest, syncFaces });
}
