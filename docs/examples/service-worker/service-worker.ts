// Caches a server's responses for a week, for use without a network. Service workers have no
// synchronous access to OPFS, so the database is in IndexedDB.
// With the module inside the script: the browser stores the script, but a separate module could not
// be loaded without a network.
import { keyCodecs, open } from 'mangrove-kv/inline';
import type { Collection } from 'mangrove-kv/inline';

// From the library "webworker", which conflicts with that of pages.
interface WorkerEvent {
  waitUntil(done: Promise<unknown>): void;
}
interface FetchEvent extends WorkerEvent {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
interface Worker {
  addEventListener(type: 'install' | 'activate', listener: (event: WorkerEvent) => void): void;
  addEventListener(type: 'fetch', listener: (event: FetchEvent) => void): void;
  skipWaiting(): Promise<void>;
  readonly clients: { claim(): Promise<void> };
}
interface Answer {
  readonly body: ArrayBuffer;
  readonly type: string;
}

const worker = globalThis as unknown as Worker;
const WEEK_MS = 7 * 24 * 3_600_000;

let opening: Promise<Collection<string, Answer>> | undefined;

/**
 * Opened on demand: the browser starts and stops service workers at will, which releases their
 * lock.
 */
function answers(): Promise<Collection<string, Answer>> {
  opening ??= open('answers', { storage: 'indexeddb' }).then(
    (db) => db.collection('answers', { key: keyCodecs.string, expireIn: WEEK_MS }),
    (error: unknown) => {
      opening = undefined;
      throw error;
    },
  );
  return opening;
}

async function keep(url: string, response: Response): Promise<void> {
  await (await answers()).set(url, {
    body: await response.arrayBuffer(),
    type: response.headers.get('content-type') ?? '',
  });
}

async function kept(url: string): Promise<Response> {
  const found = await (await answers()).get(url);
  return found === undefined
    ? Response.error()
    : new Response(found.body, { headers: { 'content-type': found.type, 'x-from': 'database' } });
}

async function answer(event: FetchEvent): Promise<Response> {
  const { request } = event;
  const response = await fetch(request).catch(() => undefined);
  if (response === undefined) return kept(request.url);
  // The page does not wait for this, and gets its response even if nothing can be stored.
  if (response.ok) event.waitUntil(keep(request.url, response.clone()).catch(console.warn));
  return response;
}

worker.addEventListener('install', (event) => event.waitUntil(worker.skipWaiting()));
worker.addEventListener('activate', (event) => event.waitUntil(worker.clients.claim()));
worker.addEventListener('fetch', (event) => {
  if (new URL(event.request.url).pathname.startsWith('/api/')) event.respondWith(answer(event));
});
