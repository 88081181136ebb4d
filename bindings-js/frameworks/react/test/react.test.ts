// The hook where React runs without a page: on a server. `tests-e2e` has it in a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Key } from 'mangrove-kv';
import type { LiveSource } from 'mangrove-kv/live';
import { useLiveQuery, useLiveWindow, useReplication } from '@mangrove-kv/react';
import { MemoryLog, MemoryServer, replicate } from '@mangrove-kv/replication';
import type { Replication } from '@mangrove-kv/replication';
import { createElement, useState } from 'react';
import { renderToString } from 'react-dom/server';
import { counted } from '../../../kv/test/support/counted.ts';
import { withMemory } from '../../../kv/test/support/kit.ts';

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
