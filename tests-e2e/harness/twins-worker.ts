// localForage's twin in a worker, with a store that the page uses too.
import localforage from '@mangrove-kv/localforage';

self.onmessage = async () => {
  const before = await localforage.getItem('from the page');
  await localforage.setItem('from the worker', `worker saw ${String(before)}`);
  self.postMessage(localforage.driver());
};
