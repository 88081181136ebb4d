// In Chromium a tab has address space for about a hundred engines, as some GiB are reserved for each; in Firefox an origin has 512 workers.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

test('too many open databases are refused, and room is found again when they are closed', async ({ browserName, profile }) => {
  test.skip(browserName === 'firefox', 'it refuses none: the next test has what it does');
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(async () => {
    const { open } = window.mangrove;
    const databases: Awaited<ReturnType<typeof open>>[] = [];
    let refused: { code?: string; retryable?: boolean } = {};
    while (databases.length < 1000 && refused.code === undefined) {
      await open('many', { storage: 'memory' }).then((db) => databases.push(db), (error: typeof refused) => { refused = error; });
    }
    const count = databases.length;
    await Promise.all(databases.map((db) => db.close()));
    const again = await open('many', { storage: 'memory' });
    await again.set('a', 1);
    const value = await again.get('a');
    await again.close();
    return { count, refused: { code: refused.code, retryable: refused.retryable }, value };
  });
  expect(found.refused).toEqual({ code: 'KV_IO', retryable: true });
  expect(found.count).toBeGreaterThan(50);
  expect(found.value).toBe(1);
});

// Firefox starts no more than dom.workers.maxPerDomain workers of an origin, 512 as a rule. One more waits for another to end, and nothing tells.
test('an open that finds no worker waits for one, and can be given up', async ({ browserName, profile }) => {
  test.skip(browserName !== 'firefox', 'Chromium has no such limit: the test before has what it does');
  const MOST = 20;
  const page = await (await profile.launch({ firefoxUserPrefs: { 'dom.workers.maxPerDomain': MOST } })).newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(async (most) => {
    const { open } = window.mangrove;
    const databases = await Promise.all(Array.from({ length: most }, () => open('many', { storage: 'memory' })));
    const states: string[] = [];
    const controller = new AbortController();
    const given = open('many', { storage: 'memory', signal: controller.signal }).then(() => 'open', (error: Error) => error.message);
    const waiting = open('many', { storage: 'memory' });
    void waiting.then(() => states.push('open'));
    controller.abort(new Error('enough'));
    states.push(await given);
    // Still none: what is asked of the others is answered before.
    for (const db of databases) await db.set('a', 1);
    states.push('waits');
    await databases.pop()?.close();
    databases.push(await waiting);
    for (const db of databases) await db.close();
    return states;
  }, MOST);
  expect(found).toEqual(['enough', 'waits', 'open']);
});

test('closed databases that are still referred to take no room', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const opened = await page.evaluate(async () => {
    // The engine runs in the page itself.
    const makeFiles = (): object => {
      const files = new Map<string, Uint8Array>();
      const get = (name: string): Uint8Array => files.get(name) ?? new Uint8Array(0);
      const resize = (name: string, size: number): void => {
        const bytes = new Uint8Array(size);
        bytes.set(get(name).subarray(0, size));
        files.set(name, bytes);
      };
      const open = (name: string): object => {
        resize(name, get(name).length);
        return {
          read: (at: number, into: Uint8Array) => into.set(get(name).subarray(at, at + into.length)),
          write: (at: number, from: Uint8Array) => {
            if (at + from.length > get(name).length) resize(name, at + from.length);
            get(name).set(from, at);
          },
          flush: () => {}, size: () => get(name).length, truncate: (size: number) => resize(name, size), close: () => {},
        };
      };
      return { open, list: () => [...files.keys()], remove: (name: string) => files.delete(name) };
    };
    const held: unknown[] = [];
    for (let count = 0; count < 300; count++) {
      const db = await window.mangrove.open('held', { storage: makeFiles() as never });
      await db.close();
      held.push(db);
    }
    return held.length;
  });
  expect(opened).toBe(300);
});
