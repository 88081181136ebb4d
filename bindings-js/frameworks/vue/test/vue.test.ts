// The composable with Vue's own reactivity, its renderer over plain objects, and its server
// renderer.
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Database, Key } from 'mangrove-kv';
import { liveQuery, mirror, preload } from 'mangrove-kv/live';
import type { LiveSource } from 'mangrove-kv/live';
import { useLiveQuery, useLiveWindow } from '@mangrove-kv/vue';
import type { LiveRefs } from '@mangrove-kv/vue';
import {
  createRenderer,
  createSSRApp,
  defineComponent,
  effectScope,
  h,
  nextTick,
  reactive,
  ref,
  shallowRef,
} from 'vue';
import type { Component, EffectScope } from 'vue';
import { compileScript, parse } from 'vue/compiler-sfc';
import { renderToString } from 'vue/server-renderer';
import { counted, eventually } from '../../../kv/test/support/counted.ts';
import type { Counted } from '../../../kv/test/support/counted.ts';
import { code, guideBlock, withMemory } from '../../../kv/test/support/kit.ts';

const keysOf = ({ entries }: LiveRefs<Key, unknown>): string => entries.value.map(([key]) => String(key)).join();

/** Begins a query in a scope of its own. */
function inScope<T>(begin: () => T): T & { readonly scope: EffectScope } {
  const scope = effectScope(true);
  return Object.assign(scope.run(begin) as T & object, { scope }) as T & { scope: EffectScope };
}

test('refs follow the entries of a range until the scope ends', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    const source = counted(db);
    const live = inScope(() => useLiveQuery(source, { prefix: 'a' }));
    assert.deepEqual([live.status.value, keysOf(live)], ['loading', '']);
    await eventually(() => live.status.value === 'ready');
    assert.deepEqual(live.entries.value, [['a1', 1]]);
    await db.set('a2', 3);
    await eventually(() => keysOf(live) === 'a1,a2');
    assert.equal(live.result.value.entries, live.entries.value);
    assert.equal(source.watches, 1);

    live.scope.stop();
    assert.equal(source.watches, 0);
    const { reads } = source;
    await db.set('a3', 4);
    await db.stats();
    assert.deepEqual([source.reads, keysOf(live)], [reads, 'a1,a2']);
  }));

test('a change of the range or of the source reads again, and one that says the same does not', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['a2', 2],
      ['b1', 3],
      [[1, 'x'], 4],
      [[2, 'x'], 5],
    ]);
    const other = db.collection<Key, number>('other');
    await other.set('o', 6);
    const sources = [counted(db), counted(other)] as const;
    const source = shallowRef<Counted<Key, number> | undefined>();
    const range = ref<{ prefix?: string | number[]; limit?: number }>({ prefix: 'a' });
    const live = inScope(() => useLiveQuery(source, range));
    await nextTick();
    assert.deepEqual([live.status.value, keysOf(live)], ['loading', '']);
    source.value = sources[0];
    await eventually(() => keysOf(live) === 'a1,a2');

    range.value = { prefix: 'a', limit: 1 };
    await eventually(() => keysOf(live) === 'a1');
    // Deep changes of a reactive object are changes, too.
    range.value.limit = 2;
    await eventually(() => keysOf(live) === 'a1,a2');
    range.value = { prefix: [1] };
    await eventually(() => keysOf(live) === '1,x');
    const before = [live.result.value, sources[0].reads] as const;
    range.value = { prefix: [1] };
    await nextTick();
    assert.deepEqual([live.result.value === before[0], sources[0].reads], [true, before[1]]);
    (range.value.prefix as number[])[0] = 2;
    await eventually(() => keysOf(live) === '2,x');
    assert.equal(sources[0].watches, 1);

    range.value = {};
    source.value = sources[1];
    await nextTick();
    assert.deepEqual([live.status.value, keysOf(live)], ['loading', '']);
    await eventually(() => keysOf(live) === 'o');
    assert.deepEqual(
      sources.map(({ watches }) => watches),
      [0, 1],
    );
    live.scope.stop();
    assert.deepEqual(
      sources.map(({ watches }) => watches),
      [0, 0],
    );
  }));

test('with keepPrevious the entries stay until those of another range are read, and not those of another source', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    const other = db.collection<Key, number>('other');
    const source = shallowRef(db as LiveSource<Key, number>);
    const range = ref<{ prefix: string; keepPrevious?: boolean }>({ prefix: 'a', keepPrevious: true });
    for (const use of [useLiveQuery<Key, number>, useLiveWindow<Key, number>]) {
      source.value = db;
      range.value = { prefix: 'a', keepPrevious: true };
      const live = inScope(() => use(source, range));
      assert.deepEqual([live.status.value, keysOf(live)], ['loading', '']);
      await eventually(() => keysOf(live) === 'a1');
      for (const [prefix, shown, next] of [
        ['b', 'a1', 'b1'],
        ['c', 'b1', ''],
      ] as const) {
        range.value = { prefix, keepPrevious: true };
        await nextTick();
        assert.deepEqual([live.status.value, keysOf(live), live.isStale.value], ['ready', shown, true]);
        await eventually(() => keysOf(live) === next && !live.isStale.value);
        assert.deepEqual([live.status.value, live.result.value.range['prefix']], ['ready', prefix]);
      }
      range.value = { prefix: 'a' };
      await nextTick();
      assert.deepEqual([live.status.value, keysOf(live)], ['loading', '']);
      await eventually(() => keysOf(live) === 'a1');
      range.value = { prefix: 'a', keepPrevious: true };
      source.value = other;
      await nextTick();
      assert.deepEqual([live.status.value, keysOf(live)], ['loading', '']);
      live.scope.stop();
    }
  }));

test('a database in a deep ref, which makes it a proxy, is read', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    const state = reactive<{ db: Database<Key, number> | undefined }>({ db: undefined });
    const live = inScope(() => useLiveQuery(() => state.db as Database<Key, number> | undefined));
    state.db = db;
    await eventually(() => keysOf(live) === 'a');
    live.scope.stop();
  }));

test('an index is followed, by name and by handle', () =>
  withMemory({}, async (db) => {
    const notes = db.collection<Key, { tag: string }>('notes', { indexes: { byTag: { key: ({ tag }) => tag } } });
    await notes.setMany([
      ['a', { tag: 'urgent' }],
      ['b', { tag: 'late' }],
    ]);
    const tag = ref('urgent');
    const scope = effectScope(true);
    const [named, handed] = scope.run(() => [
      useLiveQuery(notes, () => ({ index: 'byTag', eq: tag.value })),
      useLiveQuery(
        () => notes.index('byTag'),
        () => ({ eq: tag.value }),
      ),
    ]) as [LiveRefs<Key, { tag: string }>, LiveRefs<Key, { tag: string }>];
    const both = (wanted: string): Promise<void> =>
      eventually(() => keysOf(named) === wanted && keysOf(handed) === wanted);
    await both('a');
    await notes.set('b', { tag: 'urgent' });
    await both('a,b');
    tag.value = 'late';
    await both('');
    await notes.set('a', { tag: 'late' });
    await both('a');
    scope.stop();
  }));

test('errors are shown: of reading, of the range, of the source', async () => {
  await withMemory<Key, number>({}, async (db) => {
    const range = ref<object>({ lmit: 1 });
    const live = inScope(() => useLiveQuery(db, range));
    assert.equal(live.status.value, 'failed');
    assert.ok(code('KV_INVALID_ARGUMENT')(live.error.value));
    range.value = { limit: 1 };
    await eventually(() => live.status.value === 'ready');
    assert.equal(live.error.value, undefined);
    range.value = { gte: Number.NaN };
    await eventually(() => live.status.value === 'failed');
    assert.ok(code('KV_INVALID_KEY')(live.error.value));
    range.value = { index: 'none' };
    await eventually(() => (live.error.value as { code?: unknown }).code === 'KV_INVALID_ARGUMENT');
    live.scope.stop();
    const wrong = inScope(() => useLiveQuery({} as never));
    assert.ok(code('KV_INVALID_ARGUMENT')(wrong.error.value));
    const unnamed = inScope(() => useLiveQuery({} as never, { index: 'byTag' }));
    assert.ok(code('KV_INVALID_ARGUMENT')(unnamed.error.value));
    for (const { scope } of [wrong, unnamed]) scope.stop();
    await db.close();
    const closed = inScope(() => useLiveQuery(db));
    await eventually(() => closed.status.value === 'failed');
    assert.ok(code('KV_CLOSED')(closed.error.value));
    closed.scope.stop();
  });
});

interface Node {
  readonly children: Node[];
  text: string;
  parent: Node | null;
}

function nodeOf(text = ''): Node {
  return { children: [], text, parent: null };
}

function remove(node: Node): void {
  node.parent?.children.splice(node.parent.children.indexOf(node), 1);
  node.parent = null;
}

/** Vue's renderer, drawing plain objects. */
const { render } = createRenderer<Node, Node>({
  createElement: () => nodeOf(),
  createText: nodeOf,
  createComment: () => nodeOf(),
  insert: (node, parent, anchor) => {
    remove(node);
    node.parent = parent;
    parent.children.splice(anchor ? parent.children.indexOf(anchor) : parent.children.length, 0, node);
  },
  remove,
  setText: (node, text) => {
    node.text = text;
  },
  setElementText: (node, text) => {
    node.text = text;
  },
  patchProp: () => undefined,
  parentNode: ({ parent }) => parent,
  nextSibling: (node) => node.parent?.children[node.parent.children.indexOf(node) + 1] ?? null,
});

const List = defineComponent({
  props: { source: { type: Object, required: true }, prefix: { type: String, required: true } },
  setup(props: { source: object; prefix: string }) {
    const { status, entries } = useLiveQuery(
      () => props.source as Counted<Key, number>,
      () => ({ prefix: props.prefix }),
    );
    return () => h('p', `${status.value}: ${entries.value.map(([key]) => String(key)).join()}`);
  },
});

test('a component draws the entries, follows its properties, and stops when it is unmounted', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    const source = counted(db);
    const root = nodeOf();
    const text = (): string | undefined => root.children[0]?.text;
    render(h(List, { source, prefix: 'a' }), root);
    assert.equal(text(), 'loading: ');
    await eventually(() => text() === 'ready: a1');
    await db.set('a2', 3);
    await eventually(() => text() === 'ready: a1,a2');
    render(h(List, { source, prefix: 'b' }), root);
    await eventually(() => text() === 'ready: b1');
    assert.equal(source.watches, 1);
    render(null, root);
    assert.equal(source.watches, 0);
  }));

test('on a server nothing is read', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a1', 1);
    const source = counted(db);
    const page = await renderToString(createSSRApp(List, { source, prefix: 'a' }));
    assert.equal(page, '<p>loading: </p>');
    await db.stats();
    assert.deepEqual([source.reads, source.watches], [0, 0]);
  }));

test('a server renders what was preloaded or is mirrored, and a page begins with its entries', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    const draw = (prefix: string): Promise<string> => renderToString(createSSRApp(List, { source: db, prefix }));
    const { entries } = await preload(liveQuery(db, { prefix: 'a' }));
    assert.equal(await draw('a'), '<p>ready: a1</p>');
    assert.equal(await draw('b'), '<p>loading: </p>');
    await mirror(db, { prefix: 'b' }).ready;
    assert.equal(await draw('b'), '<p>ready: b1</p>');

    await mirror(db).ready;
    await db.set('a2', 3);
    await eventually(() => liveQuery(db, { prefix: 'a' }).getSnapshot().entries.length === 2);
    const drawn: string[] = [];
    const Page = defineComponent(() => {
      const { status, isStale, ...live } = useLiveQuery(db, { prefix: 'a' }, { initial: entries });
      return () => {
        drawn.push(`${status.value} ${keysOf({ ...live, status, isStale })}${isStale.value ? ' stale' : ''}`);
        return h('p', drawn.at(-1));
      };
    });
    const root = nodeOf();
    render(h(Page), root);
    assert.deepEqual(drawn, ['ready a1 stale']);
    await nextTick();
    assert.deepEqual(drawn, ['ready a1 stale', 'ready a1,a2']);
    render(null, root);
  }));

test('what changes between set-up and mounting is not missed', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a1', 1],
      ['b1', 2],
    ]);
    await mirror(db).ready;
    const drawn: string[] = [];
    const Page = defineComponent(() => {
      const prefix = ref('a');
      const live = useLiveQuery<Key, number>(db, () => ({ prefix: prefix.value }));
      prefix.value = 'b';
      return () => {
        drawn.push(keysOf(live));
        return h('p', drawn.at(-1));
      };
    });
    const root = nodeOf();
    render(h(Page), root);
    assert.deepEqual(drawn, ['b1']);
    render(null, root);
  }));

test('the component of the guide draws on a server', () =>
  withMemory<Key, number>({}, async (db) => {
    const { descriptor, errors } = parse(guideBlock('vue'));
    assert.deepEqual(errors, []);
    const { content } = compileScript(descriptor, {
      id: 'notes',
      inlineTemplate: true,
      templateOptions: { ssr: true, ssrCssVars: [] },
    });
    // Inside the package, so that it can import it by name.
    const directory = fileURLToPath(new URL('../../../kv/build/vue', import.meta.url));
    mkdirSync(directory, { recursive: true });
    try {
      writeFileSync(`${directory}/notes.mjs`, content);
      const { default: Notes } = (await import(pathToFileURL(`${directory}/notes.mjs`).href)) as { default: Component };
      const draw = (source: object | undefined): Promise<string> =>
        renderToString(createSSRApp(Notes, { db: source, author: 'ada' }));
      assert.equal(await draw(db), '<p>Loading</p>');
      assert.equal(await draw(undefined), '<p>Loading</p>');
    } finally {
      rmSync(directory, { recursive: true });
    }
  }));

test('refs of a window follow where it is moved', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany(Array.from({ length: 20 }, (_, key) => [key, key] as const));
    const live = inScope(() => useLiveWindow(db, { limit: 2 }));
    await eventually(() => keysOf(live) === '0,1');
    live.move(10, 3);
    assert.deepEqual([keysOf(live), live.isStale.value], ['0,1', true]);
    await eventually(() => keysOf(live) === '10,11,12');
    assert.deepEqual([live.isStale.value, live.result.value.range], [false, { offset: 10, limit: 3 }]);
    live.scope.stop();
  }));
