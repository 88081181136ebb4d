// The primitives with Solid's own runtime for pages, which is bundled, as Node would load the one for servers; and
// components that a server renders.
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { transformAsync } from '@babel/core';
import { build } from 'esbuild';
import type { Key } from 'mangrove-kv';
import { liveQuery, mirror, preload } from 'mangrove-kv/live';
import type { LiveSource } from 'mangrove-kv/live';
import { createLiveQuery, createLiveWindow } from '@mangrove-kv/solid';
import type { LiveAccessors, LiveWindowAccessors } from '@mangrove-kv/solid';
import type { JSX } from 'solid-js';
import { createComponent, renderToString } from 'solid-js/web';
import { counted, eventually } from '../../../kv/test/support/counted.ts';
import { code, guideBlock, withMemory } from '../../../kv/test/support/kit.ts';

/** Inside a package, so that what is compiled can import others by name. */
const DIRECTORY = fileURLToPath(new URL('../../../kv/build/solid', import.meta.url));

mkdirSync(DIRECTORY, { recursive: true });
after(() => rmSync(DIRECTORY, { recursive: true, force: true }));

async function load(name: string, source: string): Promise<unknown> {
  const file = join(DIRECTORY, name);
  writeFileSync(file, source);
  return import(pathToFileURL(file).href);
}

interface Runtime {
  readonly createEffect: (effect: () => void) => void;
  readonly createRoot: <T>(run: (dispose: () => void) => T) => T;
  readonly createSignal: <T>(value: T) => [get: () => T, set: (value: T) => void];
  readonly createLiveQuery: typeof createLiveQuery;
  readonly createLiveWindow: typeof createLiveWindow;
}

async function loadRuntime(): Promise<Runtime> {
  const {
    outputFiles: [output],
  } = await build({
    stdin: {
      contents: `export * from '@mangrove-kv/solid'; export { createEffect, createRoot, createSignal } from 'solid-js';`,
      resolveDir: fileURLToPath(new URL('.', import.meta.url)),
    },
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    conditions: ['browser'],
    logLevel: 'silent',
    // The database is the one that this test opens.
    external: ['mangrove-kv', 'mangrove-kv/*'],
  });
  return (await load('runtime.mjs', output?.text ?? '')) as Runtime;
}

const runtime = await loadRuntime();

const textOf = ({ status, entries, isStale, error }: LiveAccessors<Key, unknown>): string => {
  const { code = '' } = (error() ?? {}) as { code?: string };
  return `${status()}: ${entries()
    .map(([key]) => String(key))
    .join()}${isStale() ? ' stale' : ''}${code}`;
};

/** What an effect sees of a query, each time. */
function follow<L extends LiveAccessors<Key, unknown>>(
  make: () => L,
): { readonly seen: string[]; readonly live: L; readonly dispose: () => void } {
  const seen: string[] = [];
  return runtime.createRoot((dispose) => {
    const live = make();
    runtime.createEffect(() => {
      seen.push(textOf(live));
    });
    return { seen, live, dispose };
  });
}

test('accessors follow the entries of a range until the owner is disposed of', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    const source = counted(db);
    const { seen, live, dispose } = follow(() => runtime.createLiveQuery(source, { prefix: 'a' }));
    assert.deepEqual(seen, ['loading: ']);
    await eventually(() => seen.at(-1) === 'ready: a1');
    const [row] = live.entries();
    await db.set('a2', 3);
    await eventually(() => seen.at(-1) === 'ready: a1,a2');
    assert.equal(live.entries()[0], row);
    assert.equal(source.watches, 1);
    dispose();
    assert.equal(source.watches, 0);
    const { reads } = source;
    await db.set('a3', 4);
    await db.stats();
    assert.deepEqual([source.reads, seen.at(-1)], [reads, 'ready: a1,a2']);
  }));

test('another source or range begins anew, one that says the same does not, and keepPrevious keeps the rows', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
      ['c1', 3],
    ]);
    const counting = counted(db);
    const [source, setSource] = runtime.createSignal<LiveSource<Key, number> | undefined>(undefined);
    const [range, setRange] = runtime.createSignal<{ prefix: string; keepPrevious?: boolean }>({ prefix: 'a' });
    const { seen, dispose } = follow(() => runtime.createLiveQuery(source, range));
    await db.stats();
    assert.deepEqual(seen, ['loading: ']);
    setSource(counting);
    await eventually(() => seen.at(-1) === 'ready: a1');
    const { reads } = counting;
    setRange({ prefix: 'a' });
    await db.stats();
    assert.equal(counting.reads, reads);
    setRange({ prefix: 'b', keepPrevious: true });
    assert.equal(seen.at(-1), 'ready: a1 stale');
    await eventually(() => seen.at(-1) === 'ready: b1');
    setRange({ prefix: 'c' });
    assert.equal(seen.at(-1), 'loading: ');
    await eventually(() => seen.at(-1) === 'ready: c1');
    assert.equal(counting.watches, 1);
    setRange({ lmit: 1 } as never);
    assert.match(seen.at(-1) ?? '', /^failed: .*KV_INVALID_ARGUMENT$/);
    assert.equal(counting.watches, 0);
    dispose();
  }));

test('what is mirrored is there at once, initial entries come before it, and a closed database is a failure', async () => {
  await withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['a2', 2],
    ]);
    await mirror(db).ready;
    const mirrored = follow(() => runtime.createLiveQuery(db, { prefix: 'a' }));
    assert.deepEqual(mirrored.seen, ['ready: a1,a2']);
    const first = follow(() => runtime.createLiveQuery(db, { prefix: 'a' }, { initial: [['a0', 0]] }));
    // The page takes over the first; the second follows before the next frame.
    assert.deepEqual(first.seen.at(-1), 'ready: a1,a2');
    const read = follow(() => runtime.createLiveQuery(counted(db), { prefix: 'a' }, { initial: [['a0', 0]] }));
    assert.deepEqual(read.seen, ['ready: a0 stale']);
    await eventually(() => read.seen.at(-1) === 'ready: a1,a2');
    for (const { dispose } of [mirrored, first, read]) dispose();
    await db.close();
    const closed = follow(() => runtime.createLiveQuery(db));
    await eventually(() => closed.live.status() === 'failed');
    assert.ok(code('KV_CLOSED')(closed.live.error()));
    closed.dispose();
  });
});

test('a window follows where it is moved, and an index is followed by its name', () =>
  withMemory({}, async (db) => {
    const notes = db.collection<Key, { tag: string }>('notes', { indexes: { byTag: { key: ({ tag }) => tag } } });
    await notes.setMany(Array.from({ length: 20 }, (_, key) => [key, { tag: key % 2 ? 'odd' : 'even' }] as const));
    const { seen, live, dispose } = follow<LiveWindowAccessors<Key, { tag: string }>>(() =>
      runtime.createLiveWindow(notes, { index: 'byTag', eq: 'odd', limit: 2 }),
    );
    await eventually(() => seen.at(-1) === 'ready: 1,3');
    live.move(8, 3);
    assert.equal(seen.at(-1), 'ready: 1,3 stale');
    await eventually(() => seen.at(-1) === 'ready: 17,19');
    dispose();
  }));

test('on a server nothing is read, and what was preloaded is rendered', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    const source = counted(db);
    const draw = (given: unknown, range: object = {}): string => {
      const List = (): JSX.Element => textOf(createLiveQuery(given as LiveSource<Key, number>, range));
      return renderToString(() => createComponent(List, {}));
    };
    const drawWindow = (given: unknown, range: object = {}): string => {
      const Rows = (): JSX.Element => textOf(createLiveWindow(given as LiveSource<Key, number>, range));
      return renderToString(() => createComponent(Rows, {}));
    };
    for (const each of [draw, drawWindow]) {
      assert.equal(each(source), 'loading: ');
      assert.equal(each(undefined), 'loading: ');
      assert.equal(each(source, { lmit: 1 }), 'failed:  staleKV_INVALID_ARGUMENT');
      assert.equal(each({}), 'failed:  staleKV_INVALID_ARGUMENT');
    }
    await db.stats();
    assert.deepEqual([source.reads, source.watches], [0, 0]);
    assert.equal(draw(db, { prefix: 'a' }), 'loading: ');
    await preload(liveQuery(db, { prefix: 'a' }));
    assert.equal(draw(db, { prefix: 'a' }), 'ready: a');
  }));

test('the component of the guide draws on a server', () =>
  withMemory<Key, number>({}, async (db) => {
    const compiled = await transformAsync(guideBlock('jsx', '@mangrove-kv/solid'), {
      presets: [['babel-preset-solid', { generate: 'ssr' }]],
      babelrc: false,
      configFile: false,
    });
    const { Notes } = (await load('notes.mjs', compiled?.code ?? '')) as { Notes: (properties: object) => JSX.Element };
    const draw = (source: unknown): string =>
      renderToString(() => createComponent(Notes, { db: source, author: 'ada' }));
    assert.equal(draw(db), '<p>Loading</p>');
    assert.equal(draw(undefined), '<p>Loading</p>');
    assert.match(draw({}), /<p role="alert">KvError: .*needs a collection/);
    const notes = db.collection<Key, { text: string }>('notes');
    await notes.set(['ada', 1], { text: 'Note A' });
    await mirror(notes).ready;
    assert.match(draw(notes), /<ul><li>Note A<\/li><\/ul>/);
  }));
