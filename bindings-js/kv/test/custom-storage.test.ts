// A user's storage: the database works on it, and what each of its failures causes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { CustomStorage, Database, StorageFile } from 'mangrove-kv';
import { rejects } from './support/kit.ts';
import { FaultyStorage, failure } from './support/faulty-storage.ts';

const text = (size: number): string =>
  Array.from({ length: size / 8 }, () => Math.random().toString(36).slice(2, 10).padEnd(8, 'x')).join('');

async function withStorage(use: (storage: FaultyStorage, db: Database) => Promise<void>): Promise<void> {
  const storage = new FaultyStorage();
  const db = await open('custom', { storage });
  await use(storage, db);
  await db.close();
  assert.equal(storage.closed, storage.opened, 'every file is closed');
}

test('a database works on a custom storage', () =>
  withStorage(async (storage, db) => {
    assert.equal(db.persistence, 'custom');
    assert.equal(db.path, 'custom');
    await db.set('a', 1);
    assert.ok(storage.flushes > 0);
    const before = storage.flushes;
    await Promise.all([db.set('b', 2), db.set('c', 3), db.delete('a'), db.set('d', 4)]);
    const shared = storage.flushes - before;
    await db.set('e', 5);
    assert.equal(shared, storage.flushes - before - shared, 'writes of one turn share the flushes of a single write');
    await db.close();
    const again = await open('custom', { storage });
    assert.deepEqual(await again.keys().toArray(), ['b', 'c', 'd', 'e']);
    await again.close();
    await rejects(open('custom', { storage, exclusive: true }), 'KV_EXISTS');
  }));

test('a full disk undoes the write and leaves the rest usable', () =>
  withStorage(async (storage, db) => {
    await db.setMany(Array.from({ length: 200 }, (_, index) => [index, text(1000)]));
    const [first, size] = [await db.get(0), await db.size];
    storage.roomBytes = 10_000;
    let written = 0;
    for (let failed = false; !failed; ) {
      const key = `more ${written}`;
      try {
        await db.set(key, text(4000));
        written++;
      } catch (error) {
        const { code, retryable } = error as { code: string; retryable: boolean };
        assert.equal(code, 'KV_QUOTA_EXCEEDED');
        assert.equal(retryable, true);
        assert.equal(await db.has(key), false);
        failed = true;
      }
    }
    // The log has some spare room.
    assert.ok(written < 100);
    assert.equal(await db.size, size + written);
    assert.equal(await db.get(0), first);
    const calls = await Promise.allSettled([db.get(0), db.set('x', text(50_000)), db.get('x'), db.has('x'), db.size]);
    assert.deepEqual(
      calls.map((call) => (call.status === 'fulfilled' ? call.value : (call.reason as { code: string }).code)),
      [
        // The lookups do not show what could not be stored.
        first,
        'KV_QUOTA_EXCEEDED',
        undefined,
        false,
        size + written,
      ],
    );
    storage.roomBytes = Infinity;
    await db.set('x', 1);
    assert.equal(await db.get('x'), 1);
    assert.deepEqual((await db.verify()).problems, []);
  }));

test('every kind of exception becomes a KvError', async () => {
  const thrown: [unknown, string][] = [
    [failure('ENOSPC'), 'KV_QUOTA_EXCEEDED'],
    [failure('EDQUOT'), 'KV_QUOTA_EXCEEDED'],
    [new DOMException('full', 'QuotaExceededError'), 'KV_QUOTA_EXCEEDED'],
    [new Error('broken disk'), 'KV_IO'],
    ['text', 'KV_IO'],
    [null, 'KV_IO'],
    [undefined, 'KV_IO'],
    [42, 'KV_IO'],
    [
      new Proxy(
        {},
        {
          get: () => {
            throw new Error('no');
          },
        },
      ),
      'KV_IO',
    ],
  ];
  for (const [error, code] of thrown) {
    const storage = new FaultyStorage();
    const db = await open('custom', { storage });
    await db.set('a', 1);
    storage.broken.set('write', error);
    await assert.rejects(db.set('b', 2), (reason: { code: string }) => {
      assert.equal(reason.code, code);
      return true;
    });
    storage.broken.clear();
    assert.equal(await db.get('a'), 1);
    assert.equal(await db.get('b'), undefined);
    if (code === 'KV_QUOTA_EXCEEDED') {
      await db.set('b', 2);
      await db.close();
    } else {
      // What the failed write left is unknown.
      await rejects(db.set('b', 2), 'KV_IO');
      await rejects(db.close(), 'KV_IO');
    }
    assert.equal(storage.closed, storage.opened, 'every file is closed');
  }
});

test('after a failed flush no write succeeds until the database is reopened', async () => {
  const storage = new FaultyStorage();
  const db = await open('custom', { storage });
  await db.set('a', 1);
  storage.broken.set('flush', new Error('lost'));
  await rejects(db.set('b', 2), 'KV_IO');
  storage.broken.clear();
  await rejects(db.set('b', 2), 'KV_IO');
  assert.equal(await db.get('a'), 1);
  assert.equal(await db.get('b'), undefined, 'a write that is not durable is not visible');
  await rejects(db.close(), 'KV_IO');
  assert.equal(db.status, 'closed');
  assert.equal(storage.closed, storage.opened);
  const again = await open('custom', { storage });
  assert.equal(await again.get('a'), 1);
  await again.set('b', 2);
  await again.close();
});

test('a storage that cannot be read causes KV_IO', () =>
  withStorage(async (storage, db) => {
    await db.setMany(Array.from({ length: 3000 }, (_, index) => [index, text(200)]));
    await db.close();
    storage.broken.set('read', new Error('unreadable'));
    await rejects(open('custom', { storage }), 'KV_IO');
    storage.broken.clear();
    const again = await open('custom', { storage, cacheBytes: 65536 });
    storage.broken.set('read', new Error('unreadable'));
    await rejects(again.values().toArray(), 'KV_IO');
    storage.broken.clear();
    assert.equal((await again.values().toArray()).length, 3000);
    await again.close();
  }));

test('asynchronous methods are detected', async () => {
  const sync = new FaultyStorage();
  const asyncOpen = {
    open: async () => sync.open('data'),
    list: () => [],
    remove: () => {},
  } as unknown as CustomStorage;
  await rejects(open('x', { storage: asyncOpen }), 'KV_IO');
  const asyncList = {
    open: () => sync.open('data'),
    list: async () => [],
    remove: () => {},
  } as unknown as CustomStorage;
  await rejects(open('x', { storage: asyncList, create: false }), 'KV_IO');
  for (const method of ['read', 'write', 'flush', 'size'] as const) {
    const storage: CustomStorage = {
      open: (name) => {
        const file = new FaultyStorage().open(name);
        return {
          ...methodsOf(file),
          [method]: async () => Promise.reject(new Error('late')),
        } as unknown as StorageFile;
      },
      list: () => [],
      remove: () => {},
    };
    await rejects(open('x', { storage }), 'KV_IO');
  }
});

function methodsOf(file: StorageFile): StorageFile {
  return {
    read: (at, into) => file.read(at, into),
    write: (at, from) => file.write(at, from),
    flush: () => file.flush(),
    size: () => file.size(),
    truncate: (size) => file.truncate(size),
    close: () => file.close(),
  };
}

test('a storage that forgets writes is detected when the database is created', async () => {
  const storage = new FaultyStorage();
  const forgetful: CustomStorage = {
    open: (name) => ({ ...methodsOf(storage.open(name)), write: () => {}, size: () => 0 }),
    list: () => [],
    remove: () => {},
  };
  await assert.rejects(open('x', { storage: forgetful }), (error: { code: string }) => error.code === 'KV_IO');
});

test('a storage may use another database', async () => {
  const inner = await open('inner', { storage: 'memory' });
  const storage = new FaultyStorage();
  const spying: CustomStorage = {
    open: (name) => {
      const file = storage.open(name);
      return {
        ...methodsOf(file),
        write: (at, from) => {
          void inner.set(at, from.length, { durability: 'none' });
          file.write(at, from);
        },
      };
    },
    list: () => storage.list(),
    remove: () => {},
  };
  const outer = await open('outer', { storage: spying });
  await outer.set('a', 1);
  await outer.close();
  assert.ok((await inner.size) > 0);
  await inner.close();
});
