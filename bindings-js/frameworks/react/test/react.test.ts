// The hook where React runs without a page: on a server. `tests-e2e` has it in a browser.
import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import type { Key } from 'mangrove-kv';
import { liveQuery, mirror, preload } from 'mangrove-kv/live';
import type { LiveSource } from 'mangrove-kv/live';
import { useLiveQuery, useLiveWindow, useReplication } from '@mangrove-kv/react';
import { MemoryLog, MemoryServer, replicate } from '@mangrove-kv/replication';
import type { Replication } from '@mangrove-kv/replication';
import { Suspense, createElement, useState } from 'react';
import { renderToPipeableStream, renderToString } from 'react-dom/server';
import { counted } from '../../../kv/test/support/counted.ts';
import { code, withMemory } from '../../../kv/test/support/kit.ts';

function List({
  source,
  range,
}: {
  source: LiveSource<Key, number> | undefined;
  range: object;
}): ReturnType<typeof createElement> {
  const { status, error } = useLiveQuery(source, range);
  return createElement('p', null, `${status} ${(error as { code?: string } | undefined)?.code ?? ''}`);
}

test('on a server nothing is read, and what is invalid is a result', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    const source = counted(db);
    const draw = (given: LiveSource<Key, number> | undefined, range: object = {}): string =>
      renderToString(createElement(List, { source: given, range }));
    assert.equal(draw(source, { prefix: 'a' }), '<p>loading </p>');
    assert.equal(draw(undefined), '<p>loading </p>');
    assert.equal(draw(source, { lmit: 1 }), '<p>failed KV_INVALID_ARGUMENT</p>');
    assert.equal(draw({} as never), '<p>failed KV_INVALID_ARGUMENT</p>');
    await db.stats();
    assert.deepEqual([source.reads, source.watches], [0, 0]);
  }));

test('a server renders what was preloaded or is mirrored, of a range and of the query itself', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a', 1],
      ['b', 2],
    ]);
    const query = liveQuery(db, { prefix: 'a' });
    const Rows = (): ReturnType<typeof createElement> =>
      createElement(
        'p',
        null,
        useLiveQuery(query, { suspense: true })
          .entries.map(([key]) => String(key))
          .join(),
      );
    await preload(query);
    assert.equal(renderToString(createElement(Rows)), '<p>a</p>');
    assert.equal(renderToString(createElement(List, { source: db, range: { prefix: 'a' } })), '<p>ready </p>');
    assert.equal(renderToString(createElement(List, { source: db, range: { prefix: 'b' } })), '<p>loading </p>');
    await mirror(db, { prefix: 'b' }).ready;
    assert.equal(renderToString(createElement(List, { source: db, range: { prefix: 'b' } })), '<p>ready </p>');
  }));

/** Streams a component to its end. */
function stream(component: ReturnType<typeof createElement>): Promise<{ html: string; errors: unknown[] }> {
  return new Promise((resolve) => {
    const errors: unknown[] = [];
    let html = '';
    const sink = new Writable({
      write: (chunk, _, done) => {
        html += String(chunk);
        done();
      },
    });
    sink.on('finish', () => resolve({ html, errors }));
    const { pipe } = renderToPipeableStream(component, {
      onShellReady: () => pipe(sink),
      onError: (error) => void errors.push(error),
    });
  });
}

test('a stream of a server waits for the rows, and has their failure once, also of sources that are not of the package', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    for (const source of [db, counted(db)]) {
      const Rows = ({ range }: { range: object }): ReturnType<typeof createElement> =>
        createElement(
          'p',
          null,
          useLiveQuery<Key, number>(source, range, { suspense: true }).entries.map(String).join(),
        );
      const draw = (range: object): ReturnType<typeof stream> =>
        stream(
          createElement('div', null, createElement(Suspense, { fallback: 'waiting' }, createElement(Rows, { range }))),
        );
      const read = await draw({ prefix: 'a' });
      assert.match(read.html, /<p>a,1<\/p>/);
      assert.deepEqual(read.errors, []);
      // Only the read finds what is wrong.
      const { errors } = await draw({ gte: Number.NaN });
      assert.equal(errors.length, 1);
      assert.ok(code('KV_INVALID_KEY')(errors[0]));
    }
  }));

test('a query that was made before reads again after its failure', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    let failures = 2;
    const source: LiveSource<Key, number> = {
      watch: (options) => db.watch(options),
      entries: (range) => {
        if (failures-- > 0) throw new Error('not yet');
        return db.entries(range);
      },
    };
    const query = liveQuery(source);
    const Rows = (): ReturnType<typeof createElement> =>
      createElement('p', null, useLiveQuery(query, { suspense: true }).entries.map(String).join());
    const draw = (): ReturnType<typeof stream> =>
      stream(createElement('div', null, createElement(Suspense, { fallback: 'waiting' }, createElement(Rows))));
    const seen: unknown[] = [];
    for (let attempt = 0; attempt < 3; attempt++) {
      const { html, errors } = await draw();
      seen.push(errors.map(String).concat(/<p>(.*)<\/p>/.exec(html)?.[1] ?? []));
      // An error is remembered for the drawing that React does once more.
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assert.deepEqual(seen, [['Error: not yet'], ['Error: not yet'], ['a,1']]);
  }));

test('React refuses a component that makes its source each time, instead of reading without end', () =>
  withMemory<Key, number>({}, async (db) => {
    const Careless = (): ReturnType<typeof createElement> => {
      // As the first result does on a page.
      const [isAgain, setAgain] = useState(false);
      if (!isAgain) setAgain(true);
      return createElement('p', null, useLiveQuery(db.collection('numbers')).status);
    };
    assert.throws(() => renderToString(createElement(Careless)), /Too many re-renders/);
  }));

test('the state of replication is "connecting" on a server and while there is none', () =>
  withMemory({ feed: true }, async (db) => {
    const State = ({
      replication,
    }: {
      replication: Replication | null | undefined;
    }): ReturnType<typeof createElement> => createElement('p', null, useReplication(replication).status);
    const replication = await replicate(db, { log: new MemoryLog(new MemoryServer()), collections: { notes: {} } });
    await replication.flush();
    for (const given of [replication, null, undefined])
      assert.equal(renderToString(createElement(State, { replication: given })), '<p>connecting</p>');
    await replication.close();
  }));

test('a window on a server reads nothing, and what is invalid is a result', () =>
  withMemory<Key, number>({}, async (db) => {
    const Rows = ({
      source,
      range,
    }: {
      source: LiveSource<Key, number> | undefined;
      range: object;
    }): ReturnType<typeof createElement> => {
      const [{ status, error }, move] = useLiveWindow(source, range);
      return createElement(
        'p',
        null,
        `${status} ${typeof move} ${(error as { code?: string } | undefined)?.code ?? ''}`,
      );
    };
    const source = counted(db);
    const draw = (given: LiveSource<Key, number> | undefined, range: object = {}): string =>
      renderToString(createElement(Rows, { source: given, range }));
    assert.equal(draw(source, { limit: 5 }), '<p>loading function </p>');
    assert.equal(draw(undefined), '<p>loading function </p>');
    assert.equal(draw(source, { lmit: 1 }), '<p>failed function KV_INVALID_ARGUMENT</p>');
    await db.stats();
    assert.deepEqual([source.reads, source.watches], [0, 0]);
  }));
