// The page's side of SQLite with indexes.
import { Remote } from './rpc.ts';
import type { IndexedStore } from './indexed.ts';

export async function openIndexed(name: string): Promise<IndexedStore> {
  const remote = new Remote(new Worker(new URL('./sqlite-indexed-worker.ts', import.meta.url), { type: 'module' }));
  try {
    await remote.call('open', name);
  } catch (error) {
    remote.terminate();
    throw error;
  }
  return {
    load: (rows) => remote.call('load', rows),
    update: (id, due) => remote.call('update', id, due),
    get: (id) => remote.call('get', id),
    query: (due, limit) => remote.call('query', due, limit),
    count: (from, to) => remote.call('count', from, to),
    build: () => remote.call('build'),
    countBuilt: () => remote.call('countBuilt'),
    note: (value) => remote.call('note', value),
    async close() {
      await remote.call('close');
      remote.terminate();
    },
  };
}
