// A quota that is really exhausted: writes that need room are refused with a typed error and leave
// no trace; everything else works.
import type { BrowserContext, Page } from '@playwright/test';
import { HARNESS_URL, OPFS_WORKER } from '../browser.ts';
import { expect, test } from '../persistent.ts';

const QUOTA_BYTES = 8 << 20;

/** Sets the origin's quota; without a number, restores the browser's own. */
async function setQuota(context: BrowserContext, page: Page, quotaSize?: number): Promise<void> {
  const session = await context.newCDPSession(page);
  await session.send('Storage.overrideQuotaForOrigin', {
    origin: HARNESS_URL,
    ...(quotaSize === undefined ? {} : { quotaSize }),
  });
  // The session stays open for the test, in case the override ends with it.
}

interface Load {
  readonly perCommit: number;
  readonly valueBytes: number;
  readonly durability: 'strict' | 'relaxed' | 'none';
}

/** Stores until there is no room; returns the number of acknowledged entries and the refusal. */
function fill(page: Page, name: string, load: Load): Promise<{ count: number; failure: unknown[]; found: unknown[] }> {
  return page.evaluate(
    async ({ name, load: { perCommit, valueBytes, durability } }) => {
      const { open } = window.mangrove;
      const db = await open<number, Uint8Array>(name);
      Object.assign(window, { db });
      const value = (): Uint8Array => {
        const bytes = new Uint8Array(valueBytes);
        for (let at = 0; at < valueBytes; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
        return bytes;
      };
      let count = 0;
      let failure: unknown[] = [];
      while (failure.length === 0) {
        const entries = Array.from({ length: perCommit }, (_, index) => [count + index, value()] as const);
        try {
          await db.setMany(entries, { durability });
          count += perCommit;
        } catch (error) {
          const { code, retryable } = error as { code?: string; retryable?: boolean };
          failure = [code ?? String(error), retryable];
        }
      }
      const found = [
        await db.count(),
        await db.has(count),
        (await db.get(count - 1))?.length,
        db.status,
        (await db.verify()).ok,
      ];
      return { count, failure, found };
    },
    { name, load },
  );
}

/**
 * Removes every other entry one by one, compacts, stores again, clears almost all and closes;
 * returns what was removed and what was left.
 */
function goOn(page: Page, count: number, load: Load): Promise<unknown> {
  return page.evaluate(
    async ({ count, load: { valueBytes, durability } }) => {
      const { db } = window as unknown as { db: Awaited<ReturnType<typeof window.mangrove.open<number, Uint8Array>>> };
      let removed = 0;
      for (let key = 0; key < count; key += 2) removed += Number(await db.delete(key, { durability }));
      await db.compact();
      await db.set(count, new Uint8Array(valueBytes), { durability });
      const found = [removed, await db.count(), (await db.verify()).ok];
      await db.clear({ gte: 1, lt: count });
      await db.compact();
      found.push(await db.count());
      await db.close();
      return found;
    },
    { count, load },
  );
}

const LOADS: Record<string, Load> = {
  'small values': { perCommit: 1, valueBytes: 5000, durability: 'strict' },
  'small values, relaxed': { perCommit: 1, valueBytes: 5000, durability: 'relaxed' },
  'unlogged values': { perCommit: 1, valueBytes: 5000, durability: 'none' },
  'large values': { perCommit: 1, valueBytes: 200_000, durability: 'strict' },
  'transactions': { perCommit: 200, valueBytes: 1000, durability: 'strict' },
};

for (const [name, load] of Object.entries(LOADS)) {
  for (const reloads of [false, true]) {
    test(`at the quota writes are refused and all else works: ${name}${reloads ? ', after a reload' : ''}`, async ({
      profile,
    }) => {
      const context = await profile.launch();
      const page = await context.newPage();
      await page.goto(HARNESS_URL);
      await setQuota(context, page, QUOTA_BYTES);
      const { count, failure, found } = await fill(page, 'full', load);
      expect(failure).toEqual(['KV_QUOTA_EXCEEDED', true]);
      expect(found).toEqual([count, false, load.valueBytes, 'open', true]);
      expect(count).toBeGreaterThan(5);
      if (reloads) {
        if (load.durability === 'none')
          await page.evaluate(() => (window as unknown as { db: { flush(): Promise<void> } }).db.flush());
        await page.reload();
        const kept = await page.evaluate(async () => {
          const db = await window.mangrove.open('full', { create: false });
          Object.assign(window, { db });
          return [await db.count(), (await db.verify()).ok];
        });
        expect(kept).toEqual([count, true]);
      }
      expect(await goOn(page, count, load)).toEqual([Math.ceil(count / 2), count - Math.ceil(count / 2) + 1, true, 1]);
      await setQuota(context, page);
      const after = await page.evaluate(async () => {
        const { open } = window.mangrove;
        const db = await open<number, string>('full', { create: false });
        for (let key = 0; key < 20; key++) await db.set(key, 'x'.repeat(1_000_000));
        const found = [await db.count({ lt: 20 }), (await db.verify()).ok];
        await db.close();
        return found;
      });
      expect(after).toEqual([20, true]);
    });
  }
}

test('a transaction larger than the quota leaves nothing', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  await setQuota(context, page, QUOTA_BYTES);
  const found = await page.evaluate(async () => {
    const { open } = window.mangrove;
    // Larger than the cache too, so it goes to the file before it commits.
    const db = await open<number, Uint8Array>('huge', { cacheBytes: 1 << 20 });
    await db.set(-1, new Uint8Array(1000));
    const value = (): Uint8Array => crypto.getRandomValues(new Uint8Array(1000));
    const codes: unknown[] = [];
    for (let round = 0; round < 2; round++) {
      const tried = db.setMany(Array.from({ length: 20_000 }, (_, index) => [index, value()] as const));
      codes.push(
        await tried.then(
          () => 'none',
          (error: { code?: string }) => error.code,
        ),
      );
    }
    const found = [...codes, await db.count(), (await db.verify()).ok];
    await db.set(0, value());
    await db.close();
    const again = await open<number, Uint8Array>('huge');
    found.push(await again.count(), (await again.verify()).ok);
    await again.close();
    return found;
  });
  expect(found).toEqual(['KV_QUOTA_EXCEEDED', 'KV_QUOTA_EXCEEDED', 1, true, 2, true]);
});

test('IndexedDB at the quota: acknowledged writes are there after reopening', async ({ profile }) => {
  const context = await profile.launch();
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  await setQuota(context, page, QUOTA_BYTES);
  const found = await page.evaluate(async () => {
    const { open } = window.mangrove;
    const storage = 'indexeddb';
    const db = await open<number, Uint8Array>('full', { storage });
    let count = 0;
    let code: unknown;
    while (code === undefined) {
      await db.set(count, crypto.getRandomValues(new Uint8Array(50_000))).then(
        () => count++,
        (error: { code?: string }) => {
          code = error.code;
        },
      );
    }
    const status = db.status;
    await db.close().catch(() => undefined);
    const again = await open<number, Uint8Array>('full', { storage });
    return [
      code,
      status,
      (await again.count()) - count,
      (await again.verify()).ok,
      (await again.get(count - 1))?.length,
    ];
  });
  expect(found).toEqual(['KV_QUOTA_EXCEEDED', 'open', 0, true, 50_000]);
  await setQuota(context, page);
  await page.reload();
  const after = await page.evaluate(async () => {
    const db = await window.mangrove.open<number, Uint8Array>('full', { storage: 'indexeddb' });
    for (let key = 0; key < 20; key++) await db.set(key, new Uint8Array(500_000));
    return [await db.count({ lt: 20 }), (await db.verify()).ok];
  });
  expect(after).toEqual([20, true]);
});

/**
 * Faulty bodies of `write` for the data file and the log, the code that the caller gets, and
 * whether the database accepts writes afterwards.
 */
const FAULTS = {
  'returns 0': ['return 0', 'KV_QUOTA_EXCEEDED', true],
  'writes a part': ['return write.call(this, from.subarray(0, from.length >> 1), options)', 'KV_QUOTA_EXCEEDED', true],
  'returns a negative count': ['return -8', 'KV_QUOTA_EXCEEDED', true],
  'returns a negative count as an unsigned integer': ['return 4294967288', 'KV_QUOTA_EXCEEDED', true],
  'returns NaN': ['return NaN', 'KV_QUOTA_EXCEEDED', true],
  'throws QuotaExceededError': ['throw new DOMException("no room", "QuotaExceededError")', 'KV_QUOTA_EXCEEDED', true],
  'throws InvalidStateError': ['throw new DOMException("it is closed", "InvalidStateError")', 'KV_IO', false],
  'throws an exception without a name': ['throw new DOMException("something")', 'KV_IO', false],
  'throws a value that is no error': ['throw undefined', 'KV_IO', false],
} as const;

for (const [name, [body, code, goesOn]] of Object.entries(FAULTS)) {
  test(`a write that ${name} gets a typed error and loses nothing`, async ({ profile }) => {
    const context = await profile.launch();
    await context.route(OPFS_WORKER, async (route) => {
      const response = await route.fetch();
      // A message on the channel sets how many writes work before the fault begins.
      const script = `{
        const { write } = FileSystemSyncAccessHandle.prototype;
        let left = Infinity;
        FileSystemSyncAccessHandle.prototype.write = function (from, options) {
          if (left-- > 0) return write.call(this, from, options);
          ${body};
        };
        const channel = new BroadcastChannel('faults');
        channel.onmessage = ({ data }) => { left = data; channel.postMessage('set'); };
      }\n`;
      await route.fulfill({ response, body: script + (await response.text()) });
    });
    const page = await context.newPage();
    await page.goto(HARNESS_URL);
    const found = await page.evaluate(async () => {
      const { open } = window.mangrove;
      const channel = new BroadcastChannel('faults');
      const workAfter = (writes: number): Promise<void> =>
        new Promise((resolve) => {
          channel.onmessage = () => resolve();
          channel.postMessage(writes);
        });
      const rounds: unknown[] = [];
      for (let writes = 0; writes < 3; writes++) {
        const db = await open<number, Uint8Array>(`faults ${writes}`);
        await db.setMany(
          Array.from({ length: 300 }, (_, key) => [key, crypto.getRandomValues(new Uint8Array(1000))] as const),
        );
        await workAfter(writes);
        const codes = new Set<unknown>();
        let stored = 0;
        for (let tries = 0; tries < 6; tries++) {
          const written =
            tries % 2 === 0
              ? db.set(1000 + tries, crypto.getRandomValues(new Uint8Array(50_000)))
              : db.setMany([
                  [1000 + tries, new Uint8Array(100)],
                  [0, new Uint8Array(1)],
                ]);
          await written.then(
            () => stored++,
            (error: { code?: string }) => codes.add(error.code),
          );
        }
        const reads = [(await db.count()) - stored, (await db.get(5))?.length, db.status];
        await workAfter(Infinity);
        const later = await db.set(2000, new Uint8Array(10)).then(
          () => true,
          () => false,
        );
        await db.close().catch(() => undefined);
        const again = await open<number, Uint8Array>(`faults ${writes}`, { create: false });
        rounds.push([
          [...codes],
          reads,
          later,
          (await again.count()) - stored - Number(later),
          (await again.verify()).ok,
        ]);
        await again.close();
      }
      return rounds;
    });
    for (const round of found) expect(round).toEqual([[code], [300, 1000, 'open'], goesOn, 300, true]);
  });
}
