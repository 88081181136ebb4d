// Runs the blocks of docs/PERSISTERS.md verbatim, each as a page that is loaded twice, and drives
// the libraries through what the blocks export.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { QueryClient } from '@tanstack/query-core';
import type { experimental_createQueryPersister } from '@tanstack/query-persist-client-core';
import { createStore } from 'jotai/vanilla';
import type { PrimitiveAtom } from 'jotai/vanilla';
import { RESET } from 'jotai/vanilla/utils';
import type { Database } from 'mangrove-kv';
import type { StoreApi } from 'zustand/vanilla';
import { eventually } from './support/counted.ts';
import { code, withPath } from './support/kit.ts';

/** Inside the package, so that the examples can import it by name. */
const DIRECTORY = fileURLToPath(new URL('../build/persisters', import.meta.url));
const PAGE = readFileSync(new URL('../../../docs/PERSISTERS.md', import.meta.url), 'utf8');
const BLOCKS = [...PAGE.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code]) => code as string);

mkdirSync(DIRECTORY, { recursive: true });
after(() => rmSync(DIRECTORY, { recursive: true, force: true }));

let loads = 0;

/** Loads the block that contains `text`, over a database at `path`, whose engine is in a worker as in a page. */
async function load<T>(text: string, path: string): Promise<T & { readonly db: Database }> {
  const found = BLOCKS.filter((block) => block.includes(text));
  assert.equal(found.length, 1);
  const file = join(DIRECTORY, `${loads++}.mjs`);
  writeFileSync(
    file,
    (found[0] as string).replace("open('app')", `open(${JSON.stringify(path)}, { thread: 'worker' })`),
  );
  return (await import(pathToFileURL(file).href)) as T & { db: Database };
}

const ANSWER = { at: new Date(5), tags: new Set(['a']), count: 5n };

test('each block is tested here', () => assert.equal(BLOCKS.length, 4));

test('TanStack Query, query by query', () =>
  withPath(async (path) => {
    type Page = {
      readonly client: QueryClient;
      readonly persister: ReturnType<typeof experimental_createQueryPersister>;
    };
    let calls = 0;
    const ask = (client: QueryClient): Promise<unknown> =>
      client.fetchQuery({ queryKey: ['answer'], queryFn: async () => (calls++, ANSWER) });
    const first = await load<Page>('experimental_createQueryPersister({', path);
    assert.deepEqual(await ask(first.client), ANSWER);
    const queries = first.db.collection('queries');
    while ((await queries.size) === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    assert.ok((await queries.getEntry('tanstack-query-["answer"]'))?.expiresAt);
    first.client.clear();
    await first.db.close();

    const second = await load<Page>('experimental_createQueryPersister({', path);
    assert.deepEqual(await ask(second.client), ANSWER);
    assert.equal(calls, 1);
    // The calls that need `entries`.
    second.client.clear();
    await second.persister.restoreQueries(second.client as never);
    assert.deepEqual(second.client.getQueryData(['answer']), ANSWER);
    await second.persister.removeQueries();
    assert.equal(await second.db.collection('queries').size, 0);
    second.client.clear();
    await second.db.close();
  }));

test('TanStack Query, the whole cache', () =>
  withPath(async (path) => {
    type Page = { readonly client: QueryClient; readonly restored: Promise<void>; readonly stop: () => void };
    const first = await load<Page>('persistQueryClient({', path);
    await first.restored;
    await first.client.fetchQuery({ queryKey: ['answer'], queryFn: async () => ANSWER });
    const caches = first.db.collection<string, { clientState: { queries: unknown[] } }>('caches');
    while (((await caches.get('REACT_QUERY_OFFLINE_CACHE'))?.clientState.queries.length ?? 0) === 0)
      await new Promise((resolve) => setTimeout(resolve, 10));
    first.stop();
    first.client.clear();
    await first.db.close();

    const second = await load<Page>('persistQueryClient({', path);
    await second.restored;
    assert.deepEqual(second.client.getQueryData(['answer']), ANSWER);
    second.stop();
    second.client.clear();
    await second.db.close();
  }));

test('Zustand', () =>
  withPath(async (path) => {
    interface State {
      readonly seen: Map<string, Date>;
      visit(page: string): void;
    }
    type Page = { readonly visits: StoreApi<State> & { persist: { hasHydrated(): boolean; clearStorage(): void } } };
    const first = await load<Page>('createStore(persist(', path);
    await eventually(() => first.visits.persist.hasHydrated());
    first.visits.getState().visit('home');
    const { seen } = first.visits.getState();
    // Calls take effect in order, so closing waits for the write.
    await first.db.close();

    const second = await load<Page>('createStore(persist(', path);
    await eventually(() => second.visits.persist.hasHydrated());
    assert.deepEqual(second.visits.getState().seen, seen);
    assert.ok(seen.get('home') instanceof Date);
    assert.deepEqual(await second.db.collection('states').get('visits'), { state: { seen }, version: 1 });
    // What the page says about actions.
    await assert.rejects(
      second.db.collection('states').set('visits', { state: second.visits.getState() }),
      code('KV_INVALID_VALUE'),
    );
    second.visits.persist.clearStorage();
    assert.equal(await second.db.collection('states').has('visits'), false);
    await second.db.close();
  }));

test('Jotai', () =>
  withPath(async (path) => {
    interface Draft {
      readonly text: string;
      readonly changed: Date | null;
    }
    type Page = { readonly draft: PrimitiveAtom<Draft | Promise<Draft>> };
    const first = await load<Page>('atomWithStorage(', path);
    const store = createStore();
    const seen: unknown[] = [];
    const stop = store.sub(first.draft, () => seen.push(store.get(first.draft)));
    const texts = (): string => seen.map((draft) => (draft as Draft).text ?? '?').join();
    const written = { text: 'one', changed: new Date(1) };
    await store.set(first.draft, written);
    const elsewhere = first.db.collection<string, Draft>('atoms');
    assert.deepEqual(await elsewhere.get('draft'), written);

    // Another tab's write, which a collection of its own stands for here.
    await elsewhere.set('draft', { text: 'two', changed: null });
    await eventually(() => (store.get(first.draft) as Draft).text === 'two');
    // Fast writes: none of them is followed by an older text.
    seen.length = 0;
    const typed = Array.from({ length: 300 }, (_, at) => 'x'.repeat(at + 10));
    for (const text of typed) {
      void store.set(first.draft, { text, changed: null });
      await new Promise((resolve) => setTimeout(resolve, text.length % 3));
    }
    while ((await elsewhere.get('draft'))?.text !== typed.at(-1))
      await new Promise((resolve) => setTimeout(resolve, 1));
    await elsewhere.set('other', { text: '', changed: null });
    const lengths = texts()
      .split(',')
      .map((text) => text.length);
    assert.deepEqual(
      lengths,
      [...lengths].sort((a, b) => a - b),
    );
    await elsewhere.set('draft', { text: 'three', changed: null });
    await eventually(() => (store.get(first.draft) as Draft).text === 'three');
    await elsewhere.delete('draft');
    await eventually(() => (store.get(first.draft) as Draft).text === '');
    await store.set(first.draft, written);
    stop();
    await first.db.close();

    const second = await load<Page>('atomWithStorage(', path);
    const other = createStore();
    const stopOther = other.sub(second.draft, () => undefined);
    await eventually(() => (other.get(second.draft) as Draft).text === 'one');
    assert.deepEqual(other.get(second.draft), written);
    await other.set(second.draft, RESET as never);
    assert.equal(await second.db.collection('atoms').has('draft'), false);
    stopOther();
    await second.db.close();
  }));
