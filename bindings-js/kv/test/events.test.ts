// Events of a database, and the removal of expired entries in the background.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mock, test } from 'node:test';
import { open, openSync } from 'mangrove-kv';
import type { CustomStorage, Database, Key, KvError } from 'mangrove-kv';
import { Connection } from '../src/wire/connection.ts';
import { KvDatabase } from '../src/api/database.ts';
import { report } from '../src/api/events.ts';
import { InThreadTransport } from '../src/engine/in-thread-transport.ts';
import { checkOptions } from '../src/api/options.ts';
import { SWEEP_ENTRIES, SWEEP_EVERY_MS, SWEEP_PAUSE_MS } from '../src/engine/sweep.ts';
import { runChild } from './support/child.ts';
import { CrashingStorage, FaultyStorage, failure } from './support/faulty-storage.ts';
import { code, rejects, withMemory, withPath, openAlone } from './support/kit.ts';
import { runScript } from './support/runtime.ts';

const module = new WebAssembly.Module(readFileSync(new URL('../dist/mangrove_bg.wasm', import.meta.url)));

/** Opens a database past the checks of `open`. */
function openUnwatched<K = Key>(storage: CustomStorage): Database<K> {
  const transport = new InThreadTransport(module, storage, checkOptions({}).engine, { release: () => undefined });
  const info = { path: 'x', persistence: 'custom', durability: 'strict' } as const;
  return new KvDatabase(new Connection(transport), info, {}) as unknown as Database<K>;
}

/** Records the reported events, in order. */
function record(db: Database): [type: string, detail: unknown][] {
  const seen: [string, unknown][] = [];
  db.addEventListener('close', ({ type, reason }) => seen.push([type, reason]));
  db.addEventListener('error', ({ type, error }) => seen.push([type, error.code]));
  return seen;
}

test('close is reported once, when nothing is left to do', async () => {
  const db = await open('x', { storage: 'memory' });
  const seen = record(db);
  db.addEventListener('close', ({ target, currentTarget }) => {
    assert.equal(target, db);
    assert.equal(currentTarget, db);
    assert.equal(db.status, 'closed');
  });
  const closing = db.close();
  assert.deepEqual(seen, []);
  await closing;
  await db.close();
  assert.deepEqual(seen, [['close', undefined]]);
});

test('close is reported for the synchronous API too', async () => {
  const db = await open('x', { storage: 'memory' });
  const seen = record(db);
  db.sync.close();
  db.sync.close();
  await db.close();
  assert.deepEqual(seen, [['close', undefined]]);
});

test('the functions of the platform that wait for events understand them', async () => {
  const db = await open('x', { storage: 'memory' });
  const closed = once(db, 'close');
  const { signal } = new AbortController();
  let calls = 0;
  const listener = (): void => {
    calls++;
  };
  db.addEventListener('close', listener);
  db.removeEventListener('close', listener);
  db.addEventListener('close', { handleEvent: listener }, { once: true, signal });
  db.addEventListener('made up', listener);
  db.dispatchEvent(new Event('made up'));
  await db.close();
  assert.equal(((await closed) as [Event])[0].type, 'close');
  assert.equal(calls, 2);
});

for (const thread of ['same', 'worker']) {
  test(`globals that an environment replaces after the import are not used, engine in thread "${thread}"`, () =>
    withPath(async (path) => {
      const { out, err, code } = await runScript('./replaced-main.mjs', [path, thread]);
      assert.equal(err, '');
      assert.deepEqual(JSON.parse(out), {
        count: 3000,
        ok: true,
        hasBackup: true,
        live: 2,
        events: ['blocked', true, 'close', true],
      });
      assert.equal(code, 0);
    }));
}

test('an operation continues if the platform cannot dispatch its event', async () => {
  const broken = new EventTarget();
  let calls = 0;
  broken.dispatchEvent = () => {
    calls++;
    throw new TypeError('it is no Event');
  };
  const db = await open('x', { storage: 'memory' });
  report(broken, db, 'close', { reason: undefined, leader: undefined });
  assert.equal(calls, 1);
  await db.close();
});

test('an engine that dies reports an error, then the close', async () => {
  const storage = new CrashingStorage();
  const db = openUnwatched(storage);
  const seen = record(db);
  let reason: unknown;
  db.addEventListener('close', (event) => {
    reason = event.reason;
  });
  storage.isCrashing = true;
  await rejects(db.set('a', 1), 'KV_IO');
  assert.deepEqual(
    seen.map(([type]) => type),
    ['error', 'close'],
  );
  code('KV_IO')(reason);
  await db.close();
  assert.equal(seen.length, 2);
});

test('events need no listener', async () => {
  const storage = new CrashingStorage();
  const db = await open('x', { storage });
  storage.isCrashing = true;
  await rejects(db.set('a', 1), 'KV_IO');
});

test('a holder that blocks an open in the same thread is notified, and can let it in', () =>
  withPath(async (path) => {
    const holder = await openAlone(path);
    let blocked = 0;
    holder.addEventListener('blocked', ({ target }) => {
      blocked++;
      assert.equal(target, holder);
      void holder.close();
    });
    await (await open(path, { readOnly: true })).close();
    await rejects(openAlone(path, { lockTimeout: 0 }), 'KV_LOCKED');
    assert.equal(blocked, 0);
    const next = await openAlone(path, { lockTimeout: Infinity });
    assert.deepEqual([blocked, holder.status], [1, 'closed']);
    await next.close();
    const last = await openAlone(path);
    assert.equal(blocked, 1);
    last.addEventListener('blocked', () => last.sync.close());
    const sync = openSync(path);
    assert.equal(last.status, 'closed');
    sync.close();
  }));

// Deno and Bun have no mock timers.
const hasClock =
  typeof (mock as { timers?: unknown }).timers === 'object' && !('Deno' in globalThis) && !('Bun' in globalThis);

/**
 * Calls `use` with a database of `count` expired entries that are still stored, and a function that
 * lets time pass.
 */
async function withExpired(
  count: number,
  storage: 'memory' | CustomStorage,
  use: (db: Database<number>, pass: (ms: number) => void) => Promise<void>,
): Promise<void> {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const db =
      storage instanceof CrashingStorage ? openUnwatched<number>(storage) : await open<number>('x', { storage });
    try {
      await db.setMany(
        Array.from({ length: count }, (_, key) => [key, key]),
        { expireAt: 1 },
      );
      await use(db, (ms) => mock.timers.tick(ms));
    } finally {
      await db.close().catch(() => undefined);
    }
  } finally {
    mock.timers.reset();
  }
}

test('expired entries are removed in slices', { skip: !hasClock }, () =>
  withExpired(2 * SWEEP_ENTRIES + 10, 'memory', async (db, pass) => {
    await db.set(-1, 'stays', { expireIn: 3_600_000 });
    const stored = async (): Promise<number> => (await db.stats()).entries;
    const all = await stored();
    pass(SWEEP_EVERY_MS - 1);
    assert.equal(await stored(), all);
    pass(1);
    assert.equal(await stored(), all - SWEEP_ENTRIES);
    pass(SWEEP_PAUSE_MS);
    assert.equal(await stored(), all - 2 * SWEEP_ENTRIES);
    pass(SWEEP_PAUSE_MS);
    assert.equal(await stored(), 1);
    assert.equal(await db.size, 1);
    // The next round.
    await db.set(1, 1, { expireAt: 1 });
    pass(SWEEP_PAUSE_MS);
    assert.equal(await stored(), 2);
    pass(SWEEP_EVERY_MS);
    assert.equal(await stored(), 1);
    assert.equal(await db.get(-1), 'stays');
  }),
);

test('a database that is closed before its first sweep has removed what had expired', () =>
  withPath(async (path) => {
    let db = await open(path);
    await db.setMany(
      Array.from({ length: 5_000 }, (_, key) => [key, key]),
      { expireAt: 1 },
    );
    await db.set(-1, 'stays');
    for (const left of [5_001 - 4_096, 1]) {
      await db.close();
      db = await open(path);
      assert.equal((await db.stats()).entries, left);
      assert.equal(await db.size, 1);
    }
    await db.close();
  }));

test('the slices of a long round follow each other ever faster', { skip: !hasClock }, () =>
  withExpired(10 * SWEEP_ENTRIES, 'memory', async (db, pass) => {
    pass(SWEEP_EVERY_MS);
    for (const pause of [50, 25, 13, 7, 5, 5, 5, 5, 5]) pass(pause);
    assert.equal((await db.stats()).entries, 0);
  }),
);

test('a round in which nothing is due writes nothing', { skip: !hasClock }, () =>
  withExpired(1, 'memory', async (db, pass) => {
    await db.set(-1, 'stays', { expireIn: 3_600_000 });
    pass(SWEEP_EVERY_MS);
    await db.flush();
    const { version, bytesWritten, logBytesWritten, checkpoints } = await db.stats();
    pass(SWEEP_EVERY_MS);
    await db.flush();
    const after = await db.stats();
    assert.deepEqual(
      [after.version, after.bytesWritten, after.logBytesWritten, after.checkpoints],
      [version, bytesWritten, logBytesWritten, checkpoints],
    );
  }),
);

test('watches see what was removed in the background', { skip: !hasClock }, () =>
  withExpired(1, 'memory', async (db, pass) => {
    const commits = db.watch();
    const next = commits.next();
    await db.count();
    pass(SWEEP_EVERY_MS);
    assert.deepEqual((await next).value?.changes, [{ type: 'delete', collection: '', key: 0, expired: true }]);
    await commits.return();
  }),
);

test('a failure in the background is reported, and the removal retried', { skip: !hasClock }, async () => {
  const storage = new FaultyStorage();
  await withExpired(1, storage, async (db, pass) => {
    const seen = record(db as Database<never> as unknown as Database);
    storage.roomBytes = 0;
    storage.broken.set('write', failure('ENOSPC'));
    pass(SWEEP_EVERY_MS);
    assert.deepEqual(seen, [['error', 'KV_QUOTA_EXCEEDED']]);
    assert.equal(db.status, 'open');
    storage.broken.clear();
    storage.roomBytes = Infinity;
    pass(SWEEP_EVERY_MS);
    assert.equal((await db.stats()).entries, 0);
    assert.equal(seen.length, 1);
  });
});

test('an engine that dies in the background reports it', { skip: !hasClock }, async () => {
  const storage = new CrashingStorage();
  await withExpired(1, storage, async (db, pass) => {
    const seen = record(db as Database<never> as unknown as Database);
    storage.isCrashing = true;
    pass(SWEEP_EVERY_MS);
    assert.deepEqual(
      seen.map(([type]) => type),
      ['error', 'close'],
    );
    await rejects(db.get(0), 'KV_IO');
  });
});

test('nothing is removed from a read-only database, nor after the close', { skip: !hasClock }, () =>
  withPath(async (path) => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const writer = openSync(path);
      writer.set('a', 1, { expireAt: 1 });
      const reader = await open(path, { readOnly: true });
      const seen = record(reader);
      mock.timers.tick(SWEEP_EVERY_MS);
      assert.deepEqual(seen, []);
      assert.equal((await reader.stats()).entries, 1);
      await reader.close();
      writer.close();
      mock.timers.tick(SWEEP_EVERY_MS);
    } finally {
      mock.timers.reset();
    }
  }),
);

test('a commit that waits for its flush is not disturbed', { skip: !hasClock }, () =>
  withPath(async (path) => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const db = await open<number>(path);
      await db.setMany(
        Array.from({ length: 10 }, (_, key) => [key, key]),
        { expireAt: 1 },
      );
      const writing = Array.from({ length: 5 }, (_, key) => db.set(100 + key, key));
      // By now the message has been sent, and its flush runs in another thread.
      await Promise.resolve();
      mock.timers.tick(SWEEP_EVERY_MS);
      await Promise.all(writing);
      mock.timers.tick(SWEEP_PAUSE_MS);
      assert.equal((await db.stats()).entries, 5);
      assert.deepEqual(await db.values().toArray(), [0, 1, 2, 3, 4]);
      assert.equal((await db.verify()).ok, true);
      await db.close();
    } finally {
      mock.timers.reset();
    }
  }),
);

test('a process ends although a database is open', () =>
  withPath(async (path) => {
    const child = runChild(['leave', path]);
    assert.equal(await child.line(), 'open');
    await child.ended;
  }));

test('errors of events are KvErrors', () =>
  withMemory({}, async (db) => {
    db.addEventListener('error', ({ error }) => {
      const typed: KvError = error;
      void typed.retryable;
    });
  }));
