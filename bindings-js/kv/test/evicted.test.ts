// Files that are removed, renamed or replaced while a database is open: nothing that is lost with
// them is acknowledged.
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openSync } from 'mangrove-kv';
import type { Durability, KvError, OpenOptions } from 'mangrove-kv';
import { code, rejects, withPath, openAlone as open } from './support/kit.ts';

/** Other systems do not remove or rename files that are open. */
const skip = process.platform === 'win32';

function replace(file: string): void {
  copyFileSync(file, `${file}.copy`);
  renameSync(`${file}.copy`, file);
}

const TAKINGS: Readonly<Record<string, (path: string) => void>> = {
  'the data is removed': (path) => rmSync(join(path, 'data')),
  'the log is removed': (path) => rmSync(join(path, 'log')),
  'the directory is removed': (path) => rmSync(path, { recursive: true }),
  'the directory is renamed': (path) => renameSync(path, `${path}.away`),
  'the directory above is renamed': (path) => renameSync(dirname(path), `${dirname(path)}.away`),
  'a file takes the place of the directory': (path) => {
    renameSync(path, `${path}.away`);
    writeFileSync(path, 'a file');
  },
  'the data is replaced': (path) => replace(join(path, 'data')),
  'the log is replaced': (path) => replace(join(path, 'log')),
  'a copy takes the place of the directory': (path) => {
    renameSync(path, `${path}.away`);
    mkdirSync(path);
    for (const name of ['data', 'log']) copyFileSync(join(`${path}.away`, name), join(path, name));
  },
};

const THREADS: Readonly<Record<string, OpenOptions>> = { 'in this thread': {}, 'in a worker': { thread: 'worker' } };
const DURABILITIES: readonly Durability[] = ['strict', 'relaxed', 'none'];

/** The path of a database in a directory of its own. */
async function withDirectory(use: (path: string) => Promise<void>): Promise<void> {
  await withPath((path) => use(join(path, 'database')));
}

for (const [how, options] of Object.entries(THREADS)) {
  for (const [what, take] of Object.entries(TAKINGS)) {
    test(`${how}, ${what}: no write is acknowledged, reads go on, and close reports it`, { skip }, () =>
      withDirectory(async (path) => {
        const db = await open(path, { ...options, durability: 'strict' });
        await db.set('before', 1);
        take(path);
        await rejects(db.set('later', 2), 'KV_EVICTED');
        for (const durability of DURABILITIES) await rejects(db.set('later', 2, { durability }), 'KV_EVICTED');
        await rejects(
          db.transaction(async (tx) => tx.set('later', 2)),
          'KV_EVICTED',
        );
        await rejects(db.flush(), 'KV_EVICTED');
        assert.equal(await db.get('before'), 1);
        assert.equal(await db.get('later'), undefined);
        await rejects(db.close(), 'KV_EVICTED');
      }),
    );

    test(`${how}, ${what}: close reports it, whatever was written before`, { skip }, () =>
      withDirectory(async (path) => {
        for (const durability of [...DURABILITIES, undefined]) {
          const db = await open(path, options);
          if (durability !== undefined) await db.set('before', 1, { durability });
          else await db.flush();
          take(path);
          await rejects(db.close(), 'KV_EVICTED');
          rmSync(dirname(path), { recursive: true, force: true });
          rmSync(`${dirname(path)}.away`, { recursive: true, force: true });
        }
      }),
    );
  }

  test(`${how}, a relaxed commit whose flush finds the files gone is the last one`, { skip }, () =>
    withDirectory(async (path) => {
      const db = await open(path, { ...options, durability: 'relaxed' });
      await db.set('before', 1);
      rmSync(path, { recursive: true });
      for (let left = 100; ; left--) {
        assert.ok(left > 0, 'every write is accepted');
        const failure = await db.set('later', 2).then(
          () => undefined,
          (error: unknown) => error,
        );
        if (failure !== undefined) {
          code('KV_EVICTED')(failure);
          break;
        }
        await sleep(100);
      }
      await rejects(db.set('later', 3), 'KV_EVICTED');
      await rejects(db.close(), 'KV_EVICTED');
    }),
  );

  test(`${how}, whoever has the path now keeps files and lock`, { skip }, () =>
    withDirectory(async (path) => {
      const first = await open(path, { ...options, durability: 'strict' });
      await first.set('first', 1);
      renameSync(path, `${path}.away`);
      const second = await open(path, { ...options, durability: 'strict', lockTimeout: 0 });
      await second.set('second', 2);
      const holder = existsSync(join(path, 'lock')) ? readFileSync(join(path, 'lock'), 'utf8') : undefined;
      await rejects(first.set('first', 2), 'KV_EVICTED');
      await rejects(first.close(), 'KV_EVICTED');
      assert.equal(existsSync(join(path, 'lock')) ? readFileSync(join(path, 'lock'), 'utf8') : undefined, holder);
      await rejects(open(path, { lockTimeout: 0 }), 'KV_LOCKED');
      await second.set('second', 3);
      await second.close();
      const moved = await open(`${path}.away`, { lockTimeout: 0 });
      // The refused write may have reached the files that were moved.
      const [[key, value] = [], ...others] = await moved.entries().toArray();
      assert.deepEqual([key, others], ['first', []]);
      assert.ok(value === 1 || value === 2, `${value}`);
      await moved.close();
      const third = await open(path, { lockTimeout: 0 });
      assert.deepEqual(await third.entries().toArray(), [['second', 3]]);
      await third.close();
    }),
  );
}

for (const [what, take] of Object.entries(TAKINGS)) {
  test(`synchronously, ${what}: no write is acknowledged, reads go on, and close reports it`, { skip }, () =>
    withDirectory(async (path) => {
      const db = openSync(path, { durability: 'strict' });
      db.set('before', 1);
      take(path);
      for (const durability of DURABILITIES)
        assert.throws(() => db.set('later', 2, { durability }), code('KV_EVICTED'));
      assert.throws(() => db.transaction((tx) => tx.set('later', 2)), code('KV_EVICTED'));
      assert.throws(() => db.flush(), code('KV_EVICTED'));
      assert.equal(db.get('before'), 1);
      assert.throws(() => db.close(), code('KV_EVICTED'));
      assert.throws(() => db.get('before'), code('KV_CLOSED'));
    }),
  );
}

test('a flush in the background that finds the files gone is reported', { skip }, () =>
  withDirectory(async (path) => {
    const db = await open(path, { durability: 'relaxed' });
    const reported: KvError[] = [];
    db.addEventListener('error', ({ error }) => reported.push(error));
    await db.set('before', 1);
    rmSync(path, { recursive: true });
    await db.set('unnoticed', 2);
    for (let left = 100; reported.length === 0; left--) {
      assert.ok(left > 0, 'nothing is reported');
      await sleep(100);
    }
    code('KV_EVICTED')(reported[0]);
    await rejects(db.close(), 'KV_EVICTED');
  }),
);
