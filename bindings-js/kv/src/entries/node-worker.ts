// The thread that runs one engine in Node, Deno and Bun. Unless the database is shared or read-only, the
// thread that starts it holds the directory's lock.
import { parentPort } from 'node:worker_threads';
import { MemoryStorage } from '../storage/memory.ts';
import { NodeStorage } from '../storage/node-fs.ts';
import { serveThread } from '../processes/serve-thread.ts';
import { postFailure, postReply, serve } from '../engine/worker-server.ts';
import type { Scope } from '../engine/worker-server.ts';

const port = parentPort;
if (port !== null) {
  const scope: Scope = {
    onmessage: null,
    onmessageerror: null,
    postMessage: (message, transfer = []) => port.postMessage(message, transfer as ArrayBuffer[]),
  };
  serve(
    async ({ storage, name, engine }) =>
      storage === 'fs' ? new NodeStorage(name, engine.readOnly) : new MemoryStorage(),
    () => ({ push: (bytes, requests) => postReply(bytes, requests, scope), end: (error) => postFailure(error, scope) }),
    { scope, shared: (request) => serveThread(request, scope) },
  );
  port.on('message', (data) => scope.onmessage?.({ data }));
  port.on('messageerror', () => scope.onmessageerror?.());
}
