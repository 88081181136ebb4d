// The browser entry loads this module only if the engine runs in the caller's thread.
import { InThreadTransport } from '../engine/in-thread-transport.ts';
import type { CheckedOptions } from '../api/options.ts';
import { syncFaces } from '../api/synchronous.ts';
import { KvError } from '../base/errors.ts';
import { WatchedStorage } from '../storage/custom.ts';
import { MemoryStorage } from '../storage/memory.ts';
import { OpfsStorage } from '../storage/opfs.ts';
import type { Transport } from '../wire/transport.ts';

/** OPFS requires a dedicated worker. */
export async function openHere(
  module: WebAssembly.Module,
  lazy: WebAssembly.Module | undefined,
  name: string,
  { engine, lockTimeoutMs, signal, storage: kind, bucket, tracer }: CheckedOptions,
): Promise<Transport> {
  const options = { release: (): void => undefined, lazy, syncFaces, trace: tracer?.record };
  if (typeof kind === 'object') return new InThreadTransport(module, new WatchedStorage(kind), engine, options);
  if (kind === 'memory') return new InThreadTransport(module, new MemoryStorage(), engine, options);
  if (!('createSyncAccessHandle' in FileSystemFileHandle.prototype)) {
    throw new KvError(
      'KV_UNSUPPORTED',
      'files of the origin private file system can be used in the same thread in dedicated workers only',
    );
  }
  const storage = await OpfsStorage.open(name, engine.create && !engine.readOnly, lockTimeoutMs, bucket);
  if (signal?.aborted) {
    storage.close();
    throw signal.reason;
  }
  return new InThreadTransport(module, storage, engine, { ...options, release: () => storage.close() });
}
