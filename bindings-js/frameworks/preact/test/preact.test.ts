// The hooks where Preact runs without a page: on a server. `tests-e2e` has them in a browser.
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { transform } from 'esbuild';
import type { Key } from 'mangrove-kv';
import { liveQuery, mirror, preload } from 'mangrove-kv/live';
import type { LiveSource } from 'mangrove-kv/live';
import { useLiveQuery, useLiveWindow } from '@mangrove-kv/preact';
import { signal } from '@preact/signals';
import { createElement } from 'preact';
import type { FunctionComponent, VNode } from 'preact';
import { renderToString } from 'preact-render-to-string';
import { counted } from '../../../kv/test/support/counted.ts';
import { guideBlock, withMemory } from '../../../kv/test/support/kit.ts';

interface Properties {
  readonly source: unknown;
  readonly range: unknown;
}

type Parts = ReturnType<typeof useLiveQuery<Key, number>>;

const textOf = ({ status, entries, error }: Parts): string =>
  `${status.value} ${entries.value.map(([key]) => String(key)).join()}${(error.value as { code?: string } | undefined)?.code ?? ''}`;

const List = ({ source, range }: Properties): VNode =>
  createElement('p', null, textOf(useLiveQuery(source as LiveSource<Key, number>, range as object)));

const Rows = ({ source, range }: Properties): VNode => {
  const live = useLiveWindow(source as LiveSource<Key, number>, range as object);
  return createElement('p', null, `${typeof live.move} ${textOf(live)}`);
};

test('on a server nothing is read, and what is invalid is a result', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    const source = counted(db);
    for (const [component, prefix] of [
      [List, ''],
      [Rows, 'function '],
    ] as const) {
      const draw = (given: unknown, range: unknown = {}): string =>
        renderToString(createElement(component, { source: given, range }));
      assert.equal(draw(source, { prefix: 'a' }), `<p>${prefix}loading </p>`);
      assert.equal(
        draw(signal(source), () => ({ prefix: 'a' })),
        `<p>${prefix}loading </p>`,
      );
      assert.equal(draw(undefined), `<p>${prefix}loading </p>`);
      assert.equal(draw(source, { lmit: 1 }), `<p>${prefix}failed KV_INVALID_ARGUMENT</p>`);
      assert.equal(draw({}), `<p>${prefix}failed KV_INVALID_ARGUMENT</p>`);
      assert.equal(draw({}, { index: 'byTag' }), `<p>${prefix}failed KV_INVALID_ARGUMENT</p>`);
    }
    await db.stats();
    assert.deepEqual([source.reads, source.watches], [0, 0]);
  }));

test('a server renders what was preloaded or is mirrored, also of signals', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a', 1],
      ['b', 2],
    ]);
    const draw = (range: unknown): string => renderToString(createElement(List, { source: signal(db), range }));
    await preload(liveQuery(db, { prefix: 'a' }));
    assert.equal(draw(signal({ prefix: 'a' })), '<p>ready a</p>');
    assert.equal(draw({ prefix: 'b' }), '<p>loading </p>');
    await mirror(db, { prefix: 'b' }).ready;
    assert.equal(
      draw(() => ({ prefix: 'b' })),
      '<p>ready b</p>',
    );
  }));

test('the component of the guide draws on a server', () =>
  withMemory<Key, number>({}, async (db) => {
    const { code } = await transform(guideBlock('jsx', '@mangrove-kv/preact'), {
      loader: 'jsx',
      jsx: 'automatic',
      jsxImportSource: 'preact',
    });
    // Inside a package, so that it can import others by name.
    const directory = fileURLToPath(new URL('../../../kv/build/preact', import.meta.url));
    mkdirSync(directory, { recursive: true });
    try {
      writeFileSync(`${directory}/notes.mjs`, code);
      const { Notes } = (await import(pathToFileURL(`${directory}/notes.mjs`).href)) as {
        Notes: FunctionComponent<{ readonly db: unknown; readonly author: string }>;
      };
      const draw = (source: unknown): string => renderToString(createElement(Notes, { db: source, author: 'ada' }));
      assert.equal(draw(db), '<p>Loading</p>');
      assert.equal(draw(undefined), '<p>Loading</p>');
      assert.match(draw({}), /<p role="alert">KvError: .*needs a collection/);
      const notes = db.collection<Key, { text: string }>('notes');
      await notes.set(['ada', 1], { text: 'Note A' });
      await mirror(notes).ready;
      assert.equal(draw(notes), '<ul><li>Note A</li></ul>');
    } finally {
      rmSync(directory, { recursive: true });
    }
  }));
