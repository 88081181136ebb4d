// What names a database in Node, Deno and Bun: a path, or a URL object for one.
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { destroy, open, openSync, recover, restore } from 'mangrove-kv';
import { code, rejects, withPath } from './support/kit.ts';

test('a file: URL is accepted wherever a path is', () =>
  withPath(async (path) => {
    const at = (name: string): URL => pathToFileURL(`${path}-${name} ä%`);
    const path2 = (name: string): string => `${path}-${name} ä%`;
    const db = await open(at('a'));
    await db.set('n', 1);
    assert.equal(db.path, path2('a'));
    const backup = await new Response(db.backup()).blob();
    await db.close();
    await restore(at('b'), backup);
    const sync = openSync(at('b'));
    assert.equal(sync.get('n'), 1);
    sync.close();
    assert.deepEqual((await recover(at('b'), at('c'))).entries, 1);
    for (const name of ['a', 'b', 'c']) assert.ok(existsSync(join(path2(name), 'data')));
    assert.ok(await destroy(at('a')));
    assert.ok(!existsSync(path2('a')));
  }));

test('a URL object of another realm is accepted too', () =>
  withPath(async (path) => {
    const { href } = pathToFileURL(path);
    const db = await open({ href, toString: () => href } as URL);
    assert.equal(db.path, path);
    await db.close();
  }));

test('URLs in strings, URLs of no file and other values are refused, and nothing is created', () =>
  withPath(async (path) => {
    const blob = new Blob([]);
    const before = readdirSync('.');
    const wrong = [
      'file:///x',
      'FILE:x',
      'http://x/y',
      'https://x',
      'opfs://x',
      new URL('http://x/y'),
      new URL('data:,x'),
      new URL('file:///a%2Fb'),
      '',
      'a\0b',
      undefined,
      null,
      5,
      {},
    ];
    for (const name of wrong as string[]) {
      await rejects(open(name), 'KV_INVALID_ARGUMENT');
      assert.throws(() => openSync(name), code('KV_INVALID_ARGUMENT'));
      await rejects(destroy(name), 'KV_INVALID_ARGUMENT');
      await rejects(restore(name, blob), 'KV_INVALID_ARGUMENT');
      await rejects(recover(name, path), 'KV_INVALID_ARGUMENT');
      await rejects(recover(path, name), 'KV_INVALID_ARGUMENT');
    }
    assert.deepEqual(readdirSync('.'), before);
    await assert.rejects(open('file:///x'), /"file:\/\/\/x" is a URL in a string, not a path; pass a path, or new URL/);
    await assert.rejects(open(new URL('http://x/y')), /http:\/\/x\/y is not a path/);
  }));

test('a name that only looks like a URL is a path', () =>
  withPath(async (path) => {
    for (const name of ['a:b', 'http:x', 'x//y']) {
      const db = await open(`${path}/${name}`);
      await db.close();
      assert.ok(existsSync(`${path}/${name}/data`));
    }
  }));
