// The package in a real browser: two databases at once, errors for bad input, a second opener, one
// compilation for concurrent opens, key order compared with IndexedDB's own.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

test('databases are independent, calls take effect in order, values survive a reopen', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  const requests: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  await page.goto(HARNESS_URL);
  const result = await page.evaluate(async () => {
    const { open } = window.mangrove;
    const [a, b] = await Promise.all([open('a'), open('b')]);
    // Not awaited individually: writes take effect in the order of the calls.
    void a.set('k', { from: 'a', when: new Date(5), bytes: new Uint8Array([1, 2]), set: new Set([1n]) });
    void b.set('k', 'b');
    const got = await Promise.all([a.get('k'), b.get('k'), a.size, b.get('absent')]);
    await a.close();
    await b.close();
    const again = await open('a');
    const kept = (await again.get('k')) as { when: Date; bytes: Uint8Array; set: Set<bigint> };
    await again.close();
    return {
      got: [(got[0] as { from: string }).from, got[1], got[2], got[3] === undefined],
      kept: [kept.when.getTime(), [...kept.bytes], kept.set.has(1n)],
    };
  });
  expect(result).toEqual({ got: ['a', 'b', 1, true], kept: [5, [1, 2], true] });
  expect(requests.filter((url) => url.endsWith('.wasm'))).toHaveLength(1);
});

test('bad input gets typed errors, and a second opener shares the database', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const codes = await page.evaluate(async () => {
    const { open, destroy } = window.mangrove;
    const code = async (run: () => Promise<unknown>): Promise<string> => {
      try {
        await run();
        return 'none';
      } catch (error) {
        return (error as { code?: string }).code ?? String(error);
      }
    };
    const db = await open('errors');
    await db.set('kept', 1);
    const found = {
      key: await code(() => db.set(Number.NaN, 1)),
      longKey: await code(() => db.set('x'.repeat(5000), 1)),
      value: await code(() => db.set('k', () => 0)),
      undefinedValue: await code(() => db.set('k', undefined)),
      absent: await code(() => open('nowhere', { create: false })),
      exclusive: await code(async () => {
        await db.close();
        await open('errors', { exclusive: true });
      }),
      closed: await code(() => db.get('kept')),
      second: '',
      destroyed: '',
      kept: 0 as unknown,
    };
    const again = await open('errors');
    found.second = await code(async () => {
      await (await open('errors')).close();
    });
    found.destroyed = await code(() => destroy('errors'));
    found.kept = await again.get('kept');
    await again.close();
    return found;
  });
  expect(codes).toEqual({
    key: 'KV_INVALID_KEY',
    longKey: 'KV_KEY_TOO_LARGE',
    value: 'KV_INVALID_VALUE',
    undefinedValue: 'KV_INVALID_VALUE',
    absent: 'KV_NOT_FOUND',
    exclusive: 'KV_EXISTS',
    closed: 'KV_CLOSED',
    second: 'none',
    destroyed: 'KV_LOCKED',
    kept: 1,
  });
});

test('a foreign file is refused and left unchanged', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const result = await page.evaluate(async () => {
    const { open } = window.mangrove;
    const root = await navigator.storage.getDirectory();
    const directory = await (await root.getDirectoryHandle('mangrove', { create: true })).getDirectoryHandle(
      'foreign',
      { create: true },
    );
    const handle = await directory.getFileHandle('data', { create: true });
    const writable = await handle.createWritable();
    await writable.write('this is not a database '.repeat(1000));
    await writable.close();
    const before = await (await handle.getFile()).text();
    let code = 'none';
    try {
      await open('foreign');
    } catch (error) {
      code = (error as { code: string }).code;
    }
    return { code, unchanged: before === (await (await handle.getFile()).text()) };
  });
  expect(result).toEqual({ code: 'KV_CORRUPT', unchanged: true });
});

test('keys sort as in IndexedDB', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const differences = await page.evaluate(() => {
    const { compareKeys } = window.mangrove;
    let state = 12345;
    const below = (limit: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return (state >>> 8) % limit;
    };
    const text = (): string =>
      Array.from({ length: below(4) }, () =>
        String.fromCharCode([0, 97, 98, 0xff, 0x800, 0xd800, 0xdc00, 0xffff][below(8)]!),
      ).join('');
    const key = (depth: number): IDBValidKey => {
      switch (below(depth < 3 ? 5 : 4)) {
        case 0:
          return [0, 1, -1, 0.5, 1e300, -1e-300, Infinity, -Infinity, below(1000)][below(9)]!;
        case 1:
          return new Date(below(2_000_000) - 1_000_000);
        case 2:
          return text();
        case 3:
          return Uint8Array.from({ length: below(4) }, () => [0, 1, 255][below(3)]!);
        default:
          return Array.from({ length: below(4) }, () => key(depth + 1));
      }
    };
    let wrong = 0;
    for (let pair = 0; pair < 20_000; pair++) {
      const a = key(0);
      const b = key(0);
      if (Math.sign(compareKeys(a as never, b as never)) !== indexedDB.cmp(a, b)) wrong++;
    }
    return wrong;
  });
  expect(differences).toBe(0);
});

test('without OPFS open rejects with KV_UNSUPPORTED', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const result = await page.evaluate(async () => {
    Object.defineProperty(navigator, 'storage', { value: undefined });
    try {
      await window.mangrove.open('x');
      return 'none';
    } catch (error) {
      return (error as { code: string }).code;
    }
  });
  expect(result).toBe('KV_UNSUPPORTED');
});

test('the engine runs in the same thread on request, and is refused where that is impossible', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  expect(await page.evaluate(() => window.runSync())).toEqual(['opfs', 1, 'a,b,c', 2, 2]);
  const inPage = await page.evaluate(async () => {
    const memory = await window.mangrove.open<string, number>('memory', { storage: 'memory', thread: 'same' });
    memory.sync.set('a', 1);
    const found = [memory.sync.get('a'), await memory.get('a')];
    await memory.close();
    const code = await window.mangrove.open('file', { thread: 'same' }).then(
      () => 'none',
      (error: { code: string }) => error.code,
    );
    return [...found, code];
  });
  expect(inPage).toEqual([1, 1, 'KV_UNSUPPORTED']);
});
