// The dedicated worker that runs one engine over the files of the origin private file system.
import { MemoryStorage } from './storage/memory.ts';
import { OpfsStorage } from './storage/opfs.ts';
import { postFailure, postReply, serve } from './worker-server.ts';
import type { WorkerStorage } from './worker-server.ts';

serve<WorkerStorage>(
  async ({ storage, name, engine, lockTimeoutMs }) =>
    storage === 'opfs' ? OpfsStorage.open(name, engine.create && !engine.readOnly, lockTimeoutMs) : new MemoryStorage(),
  () => ({ push: (bytes) => postReply(bytes), end: (error) => postFailure(error) }),
);
