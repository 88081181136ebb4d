// What destroy and restore remove: Mangrove's own files, and nothing of another program.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { destroy, open, recover, restore } from 'mangrove-kv';
import { destroy as destroyOpfs } from '../src/platform/browser-destroy.ts';
import { destroy as destroyIdb, list as listIdb } from '../src/platform/browser-indexeddb.ts';
import { rejects, withPath } from './support/kit.ts';

const FOREIGN = 'columns,of,another,program\n'.repeat(1000);

async function fill(path: string, value = 'old'): Promise<Blob> {
  const db = await open(path);
  await db.set('key', value);
  const blob = await new Response(db.backup()).blob();
  await db.close();
  return blob;
}

async function valueIn(path: string): Promise<unknown> {
  const db = await open(path, { create: false });
  const value = await db.get('key');
  await db.close();
  return value;
}

function contents(path: string): Record<string, string> {
  return Object.fromEntries(
    readdirSync(path)
      .sort()
      .map((name) => [name, readFileSync(join(path, name), 'latin1')]),
  );
}

/** Overwrites the magic in the given copies of the superblock. */
function damage(path: string, ...copies: readonly number[]): void {
  const bytes = readFileSync(join(path, 'data'));
  for (const at of copies) bytes.fill(0x2a, at, at + 64);
  writeFileSync(join(path, 'data'), bytes);
}

test('a file of another program with the name of a database file is kept', () =>
  withPath(async (path) => {
    for (const name of ['data', 'log']) {
      for (const text of [FOREIGN, 'short', `${'\0'.repeat(8192)}behind zeros`, 'MANGRBAK is no database']) {
        if (name === 'log' && text.startsWith('\0')) continue;
        await fill(path);
        writeFileSync(join(path, name), text);
        const before = contents(path);
        await assert.rejects(destroy(path), ({ code, message }: { code: string; message: string }) => {
          assert.equal(code, 'KV_CORRUPT');
          assert.match(message, new RegExp(`the file ${name} of .*database.*force: true`));
          return true;
        });
        assert.deepEqual(contents(path), before, `${name}: ${text.slice(0, 10)}`);
        assert.equal(await destroy(path, { force: true }), true);
        assert.equal(existsSync(path), false);
      }
    }
    await rejects(destroy(path, { force: 1 as never }), 'KV_INVALID_ARGUMENT');
  }));

test('a directory of another program gets no lock file, and keeps its own', () =>
  withPath(async (path) => {
    mkdirSync(path);
    writeFileSync(join(path, 'data'), FOREIGN);
    writeFileSync(join(path, 'lock'), 'of that program');
    const before = contents(path);
    const backup = await fill(`${path}-source`);
    await rejects(destroy(path), 'KV_CORRUPT');
    await rejects(restore(path, backup, { overwrite: true }), 'KV_CORRUPT');
    await rejects(restore(path, backup), 'KV_EXISTS');
    assert.deepEqual(contents(path), before);
  }));

test('a damaged beginning requires force, unless one copy of the superblock is intact', () =>
  withPath(async (path) => {
    for (const copies of [[0, 2048, 4096], [2048, 4096, 6144], [0]]) {
      await fill(path);
      damage(path, ...copies);
      assert.equal(await destroy(path), true);
      assert.equal(existsSync(path), false);
    }
    await fill(path);
    damage(path, 0, 2048, 4096, 6144);
    await rejects(destroy(path), 'KV_CORRUPT');
    assert.equal(await destroy(path, { force: true }), true);
    // Truncated after the magic, it is still recognized.
    await fill(path);
    truncateSync(join(path, 'data'), 100);
    assert.equal(await destroy(path), true);
  }));

test('remains of a creation are removed, and an empty directory is not a database', () =>
  withPath(async (path) => {
    for (const data of ['', '\0'.repeat(4096), '\0'.repeat(8192)]) {
      mkdirSync(path);
      writeFileSync(join(path, 'data'), data);
      writeFileSync(join(path, 'log'), '');
      assert.equal(await destroy(path), true);
      assert.equal(existsSync(path), false);
    }
    mkdirSync(path);
    assert.equal(await destroy(path), false);
    mkdirSync(join(path, 'data'));
    await rejects(destroy(path), 'KV_CORRUPT');
    assert.deepEqual(readdirSync(path), ['data']);
  }));

test('files beside a database are kept, with their directory', () =>
  withPath(async (path) => {
    await fill(path);
    writeFileSync(join(path, 'data.csv'), FOREIGN);
    mkdirSync(join(path, 'log.d'));
    assert.equal(await destroy(path), true);
    assert.deepEqual(readdirSync(path).sort(), ['data.csv', 'log.d']);
    // As the engine leaves it when the first half of the log was never begun.
    const db = await open(path);
    await db.close();
    writeFileSync(join(path, 'log'), new Uint8Array(100_000));
    assert.equal(await destroy(path), true);
  }));

test('restore replaces no foreign file, and recover removes none', () =>
  withPath(async (path) => {
    const backup = await fill(path, 'new');
    const into = `${path}-into`;
    mkdirSync(into);
    writeFileSync(join(into, 'data'), FOREIGN);
    await rejects(restore(into, backup, { overwrite: true }), 'KV_CORRUPT');
    await rejects(restore(into, backup, { overwrite: true, force: 'yes' as never }), 'KV_INVALID_ARGUMENT');
    assert.deepEqual(contents(into), { data: FOREIGN });
    await rejects(recover(path, into), 'KV_EXISTS');
    // The log is removed in the end, even if there was no data file.
    rmSync(join(into, 'data'));
    writeFileSync(join(into, 'log'), FOREIGN);
    await rejects(restore(into, backup), 'KV_CORRUPT');
    await rejects(restore(into, backup, { overwrite: true }), 'KV_CORRUPT');
    await rejects(recover(path, into), 'KV_CORRUPT');
    assert.deepEqual(contents(into), { log: FOREIGN });
    writeFileSync(join(into, 'data'), FOREIGN);
    await rejects(restore(into, backup, { force: true }), 'KV_EXISTS');
    await restore(into, backup, { overwrite: true, force: true });
    assert.equal(await valueIn(into), 'new');
  }));

/** The part of the origin private file system that removal needs. */
class Opfs {
  readonly files = new Map<string, Map<string, string>>();
  /** Name of a file that a worker has open. */
  held: string | undefined;

  async install(use: () => Promise<void>): Promise<void> {
    const missing = (): never => {
      throw new DOMException('nothing there', 'NotFoundError');
    };
    const directory = (files: Map<string, string>): unknown => ({
      getFileHandle: async (name: string) => ({
        getFile: files.has(name) ? async () => new Blob([files.get(name) as string]) : missing(),
      }),
      removeEntry: async (name: string) => {
        if (name === this.held) throw new DOMException('held', 'NoModificationAllowedError');
        if (!files.delete(name)) missing();
      },
    });
    const root = {
      getDirectoryHandle: async (name: string) =>
        name === 'mangrove' ? root : directory(this.files.get(name) ?? missing()),
      removeEntry: async (name: string) => {
        if ((this.files.get(name)?.size ?? 0) > 0) throw new DOMException('not empty', 'InvalidModificationError');
        this.files.delete(name);
      },
    };
    const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
    const value = { storage: { getDirectory: async () => root }, locks };
    Object.defineProperty(globalThis, 'navigator', { configurable: true, value });
    try {
      await use();
    } finally {
      if (before === undefined) delete (globalThis as { navigator?: unknown }).navigator;
      else Object.defineProperty(globalThis, 'navigator', before);
    }
  }
}

const locks = { request: (_name: string, _options: unknown, held: (lock: unknown) => Promise<void>) => held({}) };
const SUPERBLOCK = `${'\0'.repeat(4096)}MANGROVE`;

test('destroy in the origin private file system', async () => {
  const opfs = new Opfs();
  const put = (files: Record<string, string>): void => void opfs.files.set('name', new Map(Object.entries(files)));
  const names = (): string[] | undefined =>
    opfs.files.has('name') ? [...(opfs.files.get('name') as Map<string, string>)].map(([name]) => name) : undefined;
  await opfs.install(async () => {
    assert.equal(await destroyOpfs('name', {}), false);
    for (const files of [
      {},
      { data: '' },
      { data: SUPERBLOCK, log: '' },
      { data: '', 'data.restored': SUPERBLOCK, 'data.restoring': 'half' },
    ]) {
      put(files);
      assert.equal(await destroyOpfs('name', {}), true);
      assert.equal(names(), undefined);
    }
    for (const files of [
      { data: FOREIGN },
      { data: SUPERBLOCK, log: FOREIGN },
      { data: '', 'data.restored': FOREIGN },
    ]) {
      put(files);
      await rejects(destroyOpfs('name', {}), 'KV_CORRUPT');
      assert.deepEqual(names(), Object.keys(files));
      assert.equal(await destroyOpfs('name', { force: true }), true);
      assert.equal(names(), undefined);
    }
    put({ data: SUPERBLOCK, 'notes.txt': FOREIGN });
    assert.equal(await destroyOpfs('name', {}), true);
    assert.deepEqual(names(), ['notes.txt']);
    assert.equal(await destroyOpfs('name', {}), false);
    put({ data: SUPERBLOCK });
    opfs.held = 'data';
    await rejects(destroyOpfs('name', {}), 'KV_LOCKED');
    assert.deepEqual(names(), ['data']);
    await rejects(destroyOpfs('name', { force: 1 as never }), 'KV_INVALID_ARGUMENT');
  });
});

function idb(
  version: number,
  stores: readonly string[],
  blocks: readonly (readonly [string, string])[] = [],
): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open('mangrove-kv:name', version);
    request.onerror = () => reject(request.error);
    request.onupgradeneeded = () => {
      for (const store of stores) request.result.createObjectStore(store);
    };
    request.onsuccess = () => {
      const db = request.result;
      const transaction = db.transaction([...stores], 'readwrite');
      for (const [file, text] of blocks) {
        transaction.objectStore('blocks').put(new TextEncoder().encode(text), [file, 0]);
        transaction.objectStore('sizes').put(text.length, file);
      }
      transaction.oncomplete = () => {
        db.close();
        resolve();
      };
    };
  });
}

test('destroy in IndexedDB', () =>
  new Opfs().install(async () => {
    const names = async (): Promise<(string | undefined)[]> => (await indexedDB.databases()).map(({ name }) => name);
    const ours = ['blocks', 'sizes'];
    assert.equal(await destroyIdb('name', {}), false);
    for (const blocks of [
      [],
      [['data', '']],
      [
        ['data', SUPERBLOCK],
        ['log', 'MANGRLOG'],
      ],
    ] as const) {
      await idb(1, ours, blocks);
      assert.equal(await destroyIdb('name', {}), true);
      assert.deepEqual(await names(), []);
    }
    const foreign: (() => Promise<void>)[] = [
      () => idb(1, ['notes']),
      () => idb(1, [...ours, 'notes']),
      () => idb(2, ours),
      () => idb(1, ours, [['data', FOREIGN]]),
      () =>
        idb(1, ours, [
          ['data', SUPERBLOCK],
          ['log', FOREIGN],
        ]),
      () =>
        idb(1, ours, [
          ['data', SUPERBLOCK],
          ['notes', FOREIGN],
        ]),
    ];
    for (const make of foreign) {
      await make();
      await rejects(destroyIdb('name', {}), 'KV_CORRUPT');
      assert.deepEqual(await names(), ['mangrove-kv:name']);
      await listIdb();
      assert.equal(await destroyIdb('name', { force: true }), true);
      assert.deepEqual(await names(), []);
    }
  }));
