// The dedicated worker that runs one engine over files in OPFS, or in memory.
import { KvError } from '../base/errors.ts';
import { MemoryStorage } from '../storage/memory.ts';
import { OpfsStorage } from '../storage/opfs.ts';
import { serveTabs } from '../tabs/serve-tabs.ts';
import { postFailure, postReply, serve } from '../engine/worker-server.ts';
import type { WorkerStorage } from '../engine/worker-server.ts';

serve<WorkerStorage>(
  async ({ storage, name, engine, lockTimeoutMs, bucket }) => {
    if (storage === 'opfs') return OpfsStorage.open(name, engine.create && !engine.readOnly, lockTimeoutMs, bucket);
    if (storage === 'memory') return new MemoryStorage();
    throw new KvError('KV_INVALID_ARGUMENT', 'for IndexedDB the option worker has to give worker-indexeddb.js');
  },
  (storage) => ({
    push: (bytes, requests) => {
      // After the reply to `close`, the client may open or remove the database at once.
      const closing = storage instanceof OpfsStorage ? storage.closing : undefined;
      if (closing === undefined) postReply(bytes, requests);
      else void closing.then(() => postReply(bytes));
    },
    end: (error) => postFailure(error),
  }),
  { shared: serveTabs },
);
