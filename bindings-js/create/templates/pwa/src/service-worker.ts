// Keeps all files of this version of the page, so that it works offline from the first visit on. A new version is used
// once no tab of this one is open. The data is in mangrove-kv and needs none of this.
declare const self: ServiceWorkerGlobalScope;
/** Written by the build. */
declare const FILES: readonly string[];
declare const VERSION: string;

const PREFIX = 'page-';
const CACHE = `${PREFIX}${VERSION}`;

async function install(): Promise<void> {
  const cache = await caches.open(CACHE);
  // Fails as a whole if a file is missing: then the version before stays.
  await cache.addAll(FILES.map((file) => new Request(file, { cache: 'reload' })));
}

async function removeOld(): Promise<void> {
  const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
}

async function answer(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const page = request.mode === 'navigate' ? self.registration.scope : request;
  return (await cache.match(page, { ignoreSearch: true })) ?? fetch(request);
}

self.addEventListener('install', (event) => event.waitUntil(install()));
self.addEventListener('activate', (event) => event.waitUntil(removeOld()));
self.addEventListener('fetch', (event) => {
  const { method, url } = event.request;
  if (method === 'GET' && new URL(url).origin === self.location.origin) event.respondWith(answer(event.request));
});

export {};
