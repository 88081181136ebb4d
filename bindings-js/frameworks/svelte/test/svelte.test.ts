// The store and the runes with Svelte's own runtime for pages, which is bundled, as Node would load
// the one for servers; and a component that a server renders.
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import type { Key } from 'mangrove-kv';
import { mirror, preload, liveQuery } from 'mangrove-kv/live';
import type { LiveResult } from 'mangrove-kv/live';
import { liveStore, useLiveQuery } from '@mangrove-kv/svelte';
import type { Component } from 'svelte';
import { compile, compileModule } from 'svelte/compiler';
import { render } from 'svelte/server';
import { get, writable } from 'svelte/store';
import { counted, eventually } from '../../../kv/test/support/counted.ts';
import { code, guideBlock, withMemory } from '../../../kv/test/support/kit.ts';

/** Inside the package, so that what is compiled can import it by name. */
const DIRECTORY = fileURLToPath(new URL('../../../kv/build/svelte', import.meta.url));

mkdirSync(DIRECTORY, { recursive: true });
after(() => rmSync(DIRECTORY, { recursive: true, force: true }));

async function load(name: string, source: string): Promise<unknown> {
  const file = join(DIRECTORY, name);
  writeFileSync(file, source);
  return import(pathToFileURL(file).href);
}

interface Follower {
  /** What the effect saw, each time. */
  readonly seen: string[];
  setPrefix(prefix: string): void;
  stop(): void;
}

/** An effect that reads a live query of a range that changes. */
const FOLLOW = `
import { flushSync } from 'svelte';
import { useLiveQuery, useLiveWindow } from '@mangrove-kv/svelte';

export function followWindow(source, range) {
  const seen = [];
  let live;
  const stop = $effect.root(() => {
    live = useLiveWindow(source, range);
    $effect(() => {
      seen.push(live.entries.map(([key]) => key).join() + (live.isStale ? ' stale' : ''));
    });
  });
  flushSync();
  return { seen, stop, move: (offset, limit) => flushSync(() => live.move(offset, limit)) };
}

export function followKept(source, rangeOf) {
  const seen = [];
  let prefix = $state('a');
  let live;
  const stop = $effect.root(() => {
    live = useLiveQuery(source, () => rangeOf(prefix));
    $effect(() => {
      seen.push(live.status + ': ' + live.entries.map(([key]) => key).join() + (live.isStale ? ' stale' : ''));
    });
  });
  flushSync();
  return { seen, stop, setPrefix: (next) => flushSync(() => { prefix = next; }) };
}

export function follow(source, rangeOf) {
  const seen = [];
  let prefix = $state('a');
  const stop = $effect.root(() => {
    const live = $derived(useLiveQuery(source, rangeOf(prefix)));
    $effect(() => {
      seen.push(live.status + ': ' + live.entries.map(([key]) => key).join() + (live.error === undefined ? '' : live.error.code));
    });
  });
  flushSync();
  return { seen, stop, setPrefix: (next) => flushSync(() => { prefix = next; }) };
}
`;

interface Followers {
  follow(source: unknown, rangeOf: (prefix: string) => object): Follower;
  followKept: Followers['follow'];
  followWindow(
    source: unknown,
    range: object,
  ): { readonly seen: string[]; stop(): void; move(offset: number, limit: number): void };
}

async function loadFollow(): Promise<Followers> {
  const { js } = compileModule(FOLLOW, { filename: 'follow.svelte.js', generate: 'client' });
  const {
    outputFiles: [output],
  } = await build({
    stdin: { contents: js.code, resolveDir: DIRECTORY },
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    conditions: ['browser'],
    logLevel: 'silent',
    // The code of the adapter is bundled with Svelte, the database is the one that this test opens.
    external: ['mangrove-kv', 'mangrove-kv/live'],
    plugins: [
      {
        name: 'adapter',
        setup: ({ onResolve }) =>
          onResolve({ filter: /^mangrove-kv\/svelte$/ }, () => ({
            path: fileURLToPath(import.meta.resolve('@mangrove-kv/svelte')),
          })),
      },
    ],
  });
  return (await load('follow.mjs', output?.text ?? '')) as Followers;
}

const keysOf = ({ entries }: LiveResult<Key, unknown>): string => entries.map(([key]) => String(key)).join();

test('a store follows the entries of a range while it has subscribers', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    const source = counted(db);
    const store = liveStore(source, { prefix: 'a' });
    const results: LiveResult<Key, number>[] = [];
    const stop = store.subscribe((result) => void results.push(result));
    // At once, as the contract of stores has it.
    assert.deepEqual(
      results.map(({ status }) => status),
      ['loading'],
    );
    const keys = (): string => keysOf(results.at(-1)!);
    await eventually(() => keys() === 'a1');
    const others: string[] = [];
    const stopOther = store.subscribe((result) => void others.push(keysOf(result)));
    assert.deepEqual(others, ['a1']);
    await db.set('a2', 3);
    await eventually(() => keys() === 'a1,a2' && others.at(-1) === 'a1,a2');
    assert.equal(source.watches, 1);
    stop();
    stop();
    assert.equal(source.watches, 1);
    stopOther();
    assert.equal(source.watches, 0);
    const { reads } = source;
    await db.set('a3', 4);
    await db.stats();
    assert.deepEqual([source.reads, keys()], [reads, 'a1,a2']);
    // As `get` does, and a server: it reads nothing.
    assert.equal(keysOf(get(store)), 'a1,a2');
    await db.stats();
    assert.deepEqual([source.reads, source.watches], [reads, 0]);
    const again: string[] = [];
    const stopAgain = store.subscribe((result) => void again.push(keysOf(result)));
    await eventually(() => again.at(-1) === 'a1,a2,a3');
    stopAgain();
  }));

test('a store shows errors, and waits for a source', async () => {
  await withMemory<Key, number>({}, async (db) => {
    assert.equal(get(liveStore<Key, number>(undefined)).status, 'loading');
    for (const store of [
      liveStore(db, { lmit: 1 } as object),
      liveStore({} as never),
      liveStore({} as never, { index: 'byTag' }),
    ]) {
      const { status, error } = get(store);
      assert.equal(status, 'failed');
      assert.ok(code('KV_INVALID_ARGUMENT')(error));
    }
    await db.close();
    let last: LiveResult<Key, number> | undefined;
    const stop = liveStore(db).subscribe((result) => {
      last = result;
    });
    await eventually(() => last?.status === 'failed');
    assert.ok(code('KV_CLOSED')(last?.error));
    stop();
  });
});

test('runes follow the entries, a change of the range, and the end of the effect', () =>
  withMemory<Key, number>({}, async (db) => {
    const { follow } = await loadFollow();
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    const source = counted(db);
    const { seen, setPrefix, stop } = follow(source, (prefix) => ({ prefix }));
    assert.deepEqual(seen, ['loading: ']);
    await eventually(() => seen.at(-1) === 'ready: a1');
    await db.set('a2', 3);
    await eventually(() => seen.at(-1) === 'ready: a1,a2');
    setPrefix('b');
    assert.equal(seen.at(-1), 'loading: ');
    await eventually(() => seen.at(-1) === 'ready: b1');
    await eventually(() => source.watches === 1);
    stop();
    await eventually(() => source.watches === 0);
    const { reads } = source;
    const { length } = seen;
    await db.set('b2', 4);
    await db.stats();
    assert.deepEqual([source.reads, seen.length], [reads, length]);
  }));

test('runes follow an index, and show errors', () =>
  withMemory({}, async (db) => {
    const { follow } = await loadFollow();
    const notes = db.collection<Key, { tag: string }>('notes', { indexes: { byTag: { key: ({ tag }) => tag } } });
    await notes.setMany([
      ['n', { tag: 'a' }],
      ['m', { tag: 'b' }],
    ]);
    const { seen, setPrefix, stop } = follow(notes, (tag) =>
      tag === '' ? { index: 'none' } : { index: 'byTag', eq: tag },
    );
    await eventually(() => seen.at(-1) === 'ready: n');
    await notes.set('m', { tag: 'a' });
    await eventually(() => seen.at(-1) === 'ready: m,n');
    setPrefix('');
    assert.equal(seen.at(-1), 'failed: KV_INVALID_ARGUMENT');
    stop();
  }));

test('on a server nothing is read', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    const source = counted(db);
    const component = `
    <script>
      import { liveStore, useLiveQuery } from '@mangrove-kv/svelte';
      let { source } = $props();
      const store = liveStore(source);
      const live = $derived(useLiveQuery(source));
    </script>
    <p>{$store.status} {live.status}</p>`;
    const { js } = compile(component, { filename: 'Page.svelte', generate: 'server' });
    const { default: Page } = (await load('page.mjs', js.code)) as { default: Component<{ source: object }> };
    const { body } = render(Page, { props: { source } });
    assert.match(body, /<p>loading loading<\/p>/);
    assert.equal(useLiveQuery(source).status, 'loading');
    await db.stats();
    assert.deepEqual([source.reads, source.watches], [0, 0]);
  }));

test('the component of the guide draws on a server', () =>
  withMemory<Key, number>({}, async (db) => {
    const { js } = compile(guideBlock('svelte'), { filename: 'Notes.svelte', generate: 'server' });
    const { default: Notes } = (await load('notes.mjs', js.code)) as {
      default: Component<{ db: object | undefined; author: string }>;
    };
    assert.match(render(Notes, { props: { db, author: 'ada' } }).body, /<p>Loading<\/p>/);
    assert.match(
      render(Notes, { props: { db: {}, author: 'ada' } }).body,
      /<p role="alert">KvError: .*needs a collection/,
    );
  }));

test('an effect follows where a window is moved', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany(Array.from({ length: 20 }, (_, key) => [key, key] as const));
    const { followWindow } = await loadFollow();
    const { seen, stop, move } = followWindow(db, { limit: 2 });
    await eventually(() => seen.at(-1) === '0,1');
    move(10, 3);
    assert.equal(seen.at(-1), '0,1 stale');
    await eventually(() => seen.at(-1) === '10,11,12');
    stop();
  }));

test('a query of a function keeps what it showed until the next range is read, if that says so', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
      ['c1', 3],
    ]);
    const { followKept } = await loadFollow();
    const source = counted(db);
    const kept = followKept(source, (prefix) => ({ prefix, keepPrevious: prefix !== 'c' }));
    await eventually(() => kept.seen.at(-1) === 'ready: a1');
    kept.setPrefix('b');
    await eventually(() => kept.seen.at(-1) === 'ready: b1');
    assert.deepEqual(kept.seen, ['loading: ', 'ready: a1', 'ready: a1 stale', 'ready: b1']);
    kept.setPrefix('c');
    await eventually(() => kept.seen.at(-1) === 'ready: c1');
    assert.deepEqual(kept.seen.slice(4), ['loading: ', 'ready: c1']);
    await eventually(() => source.watches === 1);
    kept.stop();
    await eventually(() => source.watches === 0);
  }));

test('a store begins with its initial entries, also of what is mirrored, and shows them no more once it is read', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['a2', 2],
    ]);
    const initial = [['a0', 0]] as const;
    await preload(liveQuery(db, { prefix: 'a' }));
    for (const isMirrored of [false, true]) {
      if (isMirrored) await mirror(db).ready;
      for (const range of [{ prefix: 'a' }, writable({ prefix: 'a' })]) {
        const store = liveStore<Key, number>(db, range, { initial });
        const seen: string[] = [];
        const stop = store.subscribe((result) => void seen.push(`${keysOf(result)}${result.isStale ? ' stale' : ''}`));
        await eventually(() => seen.length > 1);
        assert.deepEqual(seen, ['a0 stale', 'a1,a2']);
        stop();
        assert.equal(keysOf(get(store)), 'a1,a2');
      }
      assert.equal(keysOf(get(liveStore<Key, number>(db, { prefix: 'a' }))), 'a1,a2');
    }
  }));

test('a store follows a store of ranges', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    const source = counted(db);
    const ranges = writable<{ prefix: string; keepPrevious: boolean }>({ prefix: 'a', keepPrevious: true });
    const seen: string[] = [];
    const stop = liveStore<Key, number>(source, ranges).subscribe(
      (result) => void seen.push(`${result.status} ${keysOf(result)}${result.isStale ? ' stale' : ''}`),
    );
    await eventually(() => seen.at(-1) === 'ready a1');
    // The same range again reads nothing.
    const { reads } = source;
    ranges.set({ prefix: 'a', keepPrevious: true });
    await db.stats();
    assert.equal(source.reads, reads);
    ranges.set({ prefix: 'b', keepPrevious: true });
    await eventually(() => seen.at(-1) === 'ready b1');
    assert.deepEqual(seen, ['loading ', 'ready a1', 'ready a1 stale', 'ready b1']);
    stop();
    assert.equal(source.watches, 0);
  }));
