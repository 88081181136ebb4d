// The storages that only browsers have: they pass the storage conformance tests. Also what is
// special about IndexedDB.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

for (const [kind, place] of [
  ['opfs', 'worker'],
  ['indexeddb', 'worker'],
  ['indexeddb', 'page'],
] as const) {
  test(`${kind} in a ${place} passes the storage conformance tests`, async ({ profile }) => {
    const page = await (await profile.launch()).newPage();
    await page.goto(HARNESS_URL);
    const outcome = await page.evaluate(([kind, place]) => window.checkStorage(kind, place), [kind, place] as const);
    expect(outcome.failed).toEqual([]);
    expect(outcome.passed.length).toBeGreaterThan(15);
  });
}

for (const hasWorkers of [true, false]) {
  test(`a database in IndexedDB survives a reload and a restart, ${hasWorkers ? 'with' : 'without'} workers`, async ({
    profile,
  }) => {
    const first = await profile.launch();
    const prepare = (hasWorkers: boolean): void => {
      if (!hasWorkers) Object.defineProperty(window, 'Worker', { value: undefined });
    };
    await first.addInitScript(prepare, hasWorkers);
    const page = await first.newPage();
    await page.goto(HARNESS_URL);
    const written = await page.evaluate(async () => {
      const db = await window.mangrove.open('kept', { storage: 'indexeddb' });
      await db.setMany(Array.from({ length: 5000 }, (_, index) => [index, 'x'.repeat(index % 500)] as const));
      await db.set('relaxed', 1, { durability: 'relaxed' });
      // Not closed: a page may be left at any time.
      return db.persistence;
    });
    expect(written).toBe('indexeddb');
    await page.reload();
    const check = async (): Promise<unknown> => {
      const db = await window.mangrove.open('kept', { storage: 'indexeddb', create: false });
      const found = [await db.count(), await db.get('relaxed'), await db.get(4999), (await db.verify()).ok];
      await db.close();
      return found;
    };
    const expected = [5001, 1, 'x'.repeat(499), true];
    expect(await page.evaluate(check)).toEqual(expected);
    await first.close();
    const second = await profile.launch();
    await second.addInitScript(prepare, hasWorkers);
    const again = await second.newPage();
    await again.goto(HARNESS_URL);
    expect(await again.evaluate(check)).toEqual(expected);
  });

  test(`IndexedDB ${hasWorkers ? 'is shared by openers' : 'has one opener at a time'}, typed errors, list and destroy, ${hasWorkers ? 'with' : 'without'} workers`, async ({
    profile,
  }) => {
    const page = await (await profile.launch()).newPage();
    await page.goto(HARNESS_URL);
    const found = await page.evaluate(async (hasWorkers) => {
      if (!hasWorkers) Object.defineProperty(window, 'Worker', { value: undefined });
      const { destroy, list, open } = window.mangrove;
      const storage = 'indexeddb';
      const code = (promise: Promise<unknown>): Promise<string> =>
        promise.then(
          () => 'none',
          (error: { code?: string }) => error.code ?? String(error),
        );
      const absent = await code(open('a', { storage, create: false }));
      const none = await list({ storage });
      const db = await open('a', { storage });
      await db.set('k', 1);
      const second = (lockTimeout: number): Promise<string> =>
        code(open('a', { storage, lockTimeout }).then((other) => other.close()));
      const locked = [await second(100), await second(0), await code(destroy('a', { storage }))];
      const names = (await list({ storage })).map(({ name, size }) => [name, size > 0]);
      await db.close();
      const exclusive = await code(open('a', { storage, exclusive: true }));
      const free = await open('free', { storage, lockTimeout: 0 });
      await free.close();
      await destroy('free', { storage });
      const removed = [await destroy('a', { storage }), await destroy('a', { storage })];
      return { absent, none, locked, names, exclusive, removed, after: await list({ storage }), opfs: await list() };
    }, hasWorkers);
    expect(found).toEqual({
      absent: 'KV_NOT_FOUND',
      none: [],
      locked: hasWorkers ? ['none', 'none', 'KV_LOCKED'] : ['KV_LOCKED', 'KV_LOCKED', 'KV_LOCKED'],
      names: [['a', true]],
      exclusive: 'KV_EXISTS',
      removed: [true, false],
      after: [],
      opfs: [],
    });
  });
}

test('a failed IndexedDB transaction acknowledges nothing and destroys nothing', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(async () => {
    Object.defineProperty(window, 'Worker', { value: undefined });
    const { open } = window.mangrove;
    const code = (promise: Promise<unknown>): Promise<string> =>
      promise.then(
        () => 'none',
        (error: { code?: string }) => error.code ?? String(error),
      );
    const db = await open('full', { storage: 'indexeddb' });
    await db.setMany(Array.from({ length: 500 }, (_, index) => [index, 'x'.repeat(1000)] as const));
    const { put } = IDBObjectStore.prototype;
    let left = 3;
    IDBObjectStore.prototype.put = function (...args) {
      if (left-- === 0) throw new DOMException('no room', 'QuotaExceededError');
      return put.apply(this, args);
    };
    const values = Array.from({ length: 500 }, (_, index) => [index, Math.random().toString(36).repeat(300)] as const);
    const calls = [code(db.setMany(values)), code(db.get(0)), code(db.set('later', 1))];
    const codes = [...(await Promise.all(calls)), await code(db.get(0)), db.status];
    IDBObjectStore.prototype.put = put;
    const again = await open('full', { storage: 'indexeddb' });
    return { codes, count: await again.count(), value: await again.get(0), ok: (await again.verify()).ok };
  });
  const full = 'KV_QUOTA_EXCEEDED';
  expect(found).toEqual({ codes: [full, full, full, full, 'closed'], count: 500, value: 'x'.repeat(1000), ok: true });
});

test('nothing is acknowledged before the IndexedDB transaction completes', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const events = await page.evaluate(async () => {
    Object.defineProperty(window, 'Worker', { value: undefined });
    const db = await window.mangrove.open('order', { storage: 'indexeddb' });
    const events: string[] = [];
    const { transaction } = IDBDatabase.prototype;
    IDBDatabase.prototype.transaction = function (stores, mode, options) {
      const begun = transaction.call(this, stores, mode, options);
      begun.addEventListener('complete', () => events.push(`stored ${options?.durability}`));
      return begun;
    };
    for (const durability of ['strict', 'relaxed'] as const) {
      await Promise.all([
        db.set('a', durability, { durability }).then(() => events.push('acknowledged')),
        db.get('a').then((value) => events.push(String(value))),
      ]);
    }
    IDBDatabase.prototype.transaction = transaction;
    await db.close();
    return events;
  });
  expect(events).toEqual(['stored strict', 'acknowledged', 'strict', 'stored strict', 'acknowledged', 'relaxed']);
});

test('a service worker can use databases in IndexedDB', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(async () => {
    await navigator.serviceWorker.register('/service-worker.js', { type: 'module' });
    const { active } = await navigator.serviceWorker.ready;
    const ask = (): Promise<unknown> =>
      new Promise((resolve) => {
        navigator.serviceWorker.addEventListener('message', ({ data }) => resolve(data), { once: true });
        navigator.serviceWorker.startMessages();
        active?.postMessage('count');
      });
    return [await ask(), await ask()];
  });
  expect(found).toEqual([
    [1, true, 'indexeddb'],
    [2, true, 'indexeddb'],
  ]);
});

test('messages executed ahead of a failing IndexedDB transaction leave a prefix', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const rounds = await page.evaluate(async () => {
    Object.defineProperty(window, 'Worker', { value: undefined });
    const { transaction } = IDBDatabase.prototype;
    const rounds: { acknowledged: number; kept: number[]; ok: boolean }[] = [];
    for (let fails = 1; fails <= 8; fails++) {
      const db = await window.mangrove.open<number, string>(`prefix ${fails}`, { storage: 'indexeddb' });
      let begun = 0;
      IDBDatabase.prototype.transaction = function (stores, mode, options) {
        const made = transaction.call(this, stores, mode, options);
        if (++begun === fails) {
          made.commit = () => undefined;
          // Aborts late, when later messages have been executed.
          made.objectStore('sizes').get('data').onsuccess = () => made.abort();
        }
        return made;
      };
      let acknowledged = 0;
      const calls: Promise<unknown>[] = [];
      for (let key = 0; key < 40; key++) {
        calls.push(
          db.set(key, 'x'.repeat(key * 500)).then(
            () => {
              acknowledged++;
            },
            () => undefined,
          ),
        );
        await new Promise((resolve) => setTimeout(resolve, key % 3));
      }
      await Promise.all(calls);
      IDBDatabase.prototype.transaction = transaction;
      await db.close().catch(() => undefined);
      const again = await window.mangrove.open<number, string>(`prefix ${fails}`, { storage: 'indexeddb' });
      rounds.push({ acknowledged, kept: await again.keys().toArray(), ok: (await again.verify()).ok });
      await again.close();
    }
    return rounds;
  });
  for (const { acknowledged, kept, ok } of rounds) {
    expect(ok).toBe(true);
    expect(kept).toEqual(kept.map((_, index) => index));
    expect(kept.length).toBe(acknowledged);
  }
  expect(rounds.some(({ acknowledged }) => acknowledged > 0 && acknowledged < 40)).toBe(true);
});
