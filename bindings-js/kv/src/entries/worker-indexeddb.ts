// The dedicated worker that runs one engine over files in IndexedDB.
import { ReplyQueue } from '../engine/reply-queue.ts';
import { IndexedDbStorage } from '../storage/indexeddb.ts';
import { serveTabs } from '../tabs/serve-tabs.ts';
import { postFailure, postReply, serve } from '../engine/worker-server.ts';

serve(
  ({ name, engine, lockTimeoutMs, bucket }) =>
    IndexedDbStorage.open(name, engine.create && !engine.readOnly, lockTimeoutMs, { bucket }),
  (storage) =>
    new ReplyQueue(
      { reply: (bytes, requests) => postReply(bytes, requests), fail: (error) => postFailure(error) },
      () => storage.settled(),
    ),
  { shared: serveTabs },
);
