// Exposes the package, as bundled into a page, to tests.
import * as mangrove from 'mangrove-kv';

window.mangrove = mangrove;
window.checkStorage = async (kind, place) => {
  if (place === 'page') return (await import('./conformance.ts')).checkStorage(kind);
  const worker = new Worker(new URL('./conformance-worker.ts', import.meta.url), { type: 'module' });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage(kind);
  });
};
window.runSync = () =>
  new Promise((resolve) => {
    const worker = new Worker(new URL('./sync-worker.ts', import.meta.url), { type: 'module' });
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = (event) => resolve(event.message);
  });
window.runLevelSuite = async (storage) => (await import('./level/main.ts')).run(storage);
window.loadRxdb = () => import('./rxdb.ts');
window.loadTanstack = () => import('./tanstack.ts');
window.loadMigration = () => import('./migrate.ts');
window.loadYjs = () => import('./yjs.ts');
window.loadTwins = () => import('./twins.ts');
window.runTwinsWorker = () =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./twins-worker.ts', import.meta.url), { type: 'module' });
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage(0);
  });
window.mountReact = async (isStrict) => {
  window.react = await (await import('./react/main.ts')).mountReact(isStrict);
};
window.mountSuspense = async (options) => {
  window.suspense = await (await import('./react/suspense.ts')).mountSuspense(options);
};
window.hydratePage = async (options) => (await import('./frameworks/hydrated/client.ts')).hydratePage(options);
window.mountWindow = async (name) => {
  window.framework = await (await import('./frameworks/windows.ts')).mountWindow(name);
};
window.createStreams = async (servers) => (await import('./replication.ts')).createStreams({ servers, replicas: 1 });
window.startSync = async (device, servers, isInWorker) => {
  window.replicated = await (await import('./replication.ts')).start(device, servers, isInWorker);
};
window.loadInspector = () => import('@mangrove-kv/inspector');
window.mountFramework = async (name) => {
  window.framework = await (await import('./frameworks/main.ts')).mountFramework(name);
};
window.drawFirst = async (name, how) => (await import('./frameworks/main.ts')).drawFirst(name, how);
window.drawTwo = async (name, rounds) => (await import('./frameworks/main.ts')).drawTwo(name, rounds);
window.loadLive = () => import('mangrove-kv/live');
window.loadMigrations = () => import('mangrove-kv/migrations');
window.loadPasskey = () => import('mangrove-kv/passkey');
window.loadBlob = () => import('mangrove-kv/blob');
window.loadFaults = () => import('../chaos/start-worker.ts');
document.title = 'ready';
