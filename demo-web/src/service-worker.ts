// Serves the page from a cache for its version. Installing the worker fetches all files, so that
// the page works offline from then on.

/**
 * The parts of a service worker's global scope that are used here. Its types cannot be combined
 * with those of a page.
 */
interface Scope {
  readonly registration: { readonly scope: string };
  readonly clients: { claim(): Promise<void> };
  skipWaiting(): Promise<void>;
  addEventListener(
    type: 'install' | 'activate',
    listener: (event: { waitUntil(work: Promise<unknown>): void }) => void,
  ): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<unknown>) => void): void;
  addEventListener(
    type: 'fetch',
    listener: (event: { readonly request: Request; respondWith(response: Promise<Response>): void }) => void,
  ): void;
}

/**
 * Defined by the build: a hash of all files, and the page's files. The names of those in `assets/`
 * contain their hashes.
 */
declare const VERSION: string;
declare const FILES: readonly string[];

const worker = globalThis as unknown as Scope;
const PREFIX = 'mangrove-demo ';
const NAME = `${PREFIX}${VERSION}`;

const urlOf = (file: string): string => new URL(file, worker.registration.scope).href;
const HOME = urlOf('./');
const precached = new Set(FILES.map(urlOf));

/**
 * A file with a hash in its name may come from the previous version's cache: the data set is 17 MB.
 */
async function fetchFile(file: string): Promise<Response> {
  const url = urlOf(file);
  const isHashed = file.startsWith('assets/');
  const known = isHashed ? await caches.match(url) : undefined;
  const response = known ?? (await fetch(url, { cache: isHashed ? 'default' : 'reload' }));
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return response;
}

async function install(): Promise<void> {
  const cache = await caches.open(NAME);
  // All or nothing: a worker that fails here is not installed.
  await Promise.all(FILES.map(async (file) => cache.put(urlOf(file), await fetchFile(file))));
}

/**
 * Keeps the cache of the previous version, whose tabs may still request files. Tabs of older
 * versions have reloaded since.
 */
async function activate(): Promise<void> {
  const names = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== NAME);
  await Promise.all(names.slice(0, -1).map((name) => caches.delete(name)));
  await worker.clients.claim();
}

async function answer(request: Request): Promise<Response> {
  const cache = await caches.open(NAME);
  const url = new URL(request.url);
  url.hash = '';
  url.search = '';
  const key = request.mode === 'navigate' ? HOME : url.href;
  return (await cache.match(key)) ?? (await caches.match(key)) ?? fetch(request);
}

worker.addEventListener('install', (event) => event.waitUntil(install()));
worker.addEventListener('activate', (event) => event.waitUntil(activate()));
worker.addEventListener('message', ({ data }) => {
  if (data === 'activate') void worker.skipWaiting();
});
worker.addEventListener('fetch', (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== 'GET' || url.origin !== location.origin) return;
  const isOurs =
    request.mode === 'navigate'
      ? url.href.startsWith(HOME)
      : precached.has(`${url.origin}${url.pathname}`) || url.pathname.includes('/assets/');
  if (isOurs) event.respondWith(answer(request));
});
