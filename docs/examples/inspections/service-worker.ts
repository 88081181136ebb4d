// Keeps all files of this version of the page, so that it works offline from the first visit on. A
// new version is used once no tab of this one is open. The data needs none of this.

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
}

/** Set by the build. */
declare const FILES: readonly string[];
declare const VERSION: string;

const worker = globalThis as unknown as Worker;

async function install(): Promise<void> {
  const cache = await caches.open(VERSION);
  await cache.addAll(FILES.map((file) => new Request(file, { cache: 'reload' })));
}

async function removeOld(): Promise<void> {
  await Promise.all((await caches.keys()).filter((name) => name !== VERSION).map((name) => caches.delete(name)));
}

async function answer(request: Request): Promise<Response> {
  const cache = await caches.open(VERSION);
  return (await cache.match(request.mode === 'navigate' ? './' : request, { ignoreSearch: true })) ?? fetch(request);
}

worker.addEventListener('install', (event) => event.waitUntil(install()));
worker.addEventListener('activate', (event) => event.waitUntil(removeOld()));
worker.addEventListener('fetch', (event) => {
  if (event.request.method === 'GET') event.respondWith(answer(event.request));
});
