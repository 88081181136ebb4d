// Limits on open databases. In Chromium a tab has address space for about a hundred engines, since
// each reserves several GiB; in Firefox an origin has 512 workers.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

/**
 * Firefox has room for more, but a page does not survive its limit of 512 workers per origin
 * (docs/BROWSERS.md).
 */
const ENOUGH = 150;

test('too many open databases are refused, and closing them makes room again', async ({ browserName, profile }) => {
  const isLimited = browserName === 'chromium';
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(
    async (most) => {
      const { open } = window.mangrove;
      const databases: Awaited<ReturnType<typeof open>>[] = [];
      let refused: { code?: string; retryable?: boolean } = {};
      while (databases.length < most && refused.code === undefined) {
        await open('many', { storage: 'memory' }).then(
          (db) => databases.push(db),
          (error: typeof refused) => {
            refused = error;
          },
        );
      }
      const count = databases.length;
      await Promise.all(databases.map((db) => db.close()));
      const again = await open('many', { storage: 'memory' });
      await again.set('a', 1);
      const value = await again.get('a');
      await again.close();
      return { count, refused: { code: refused.code, retryable: refused.retryable }, value };
    },
    isLimited ? 1000 : ENOUGH,
  );
  expect(found.refused).toEqual(isLimited ? { code: 'KV_IO', retryable: true } : {});
  if (isLimited) expect(found.count).toBeGreaterThan(50);
  else expect(found.count).toBe(ENOUGH);
  expect(found.value).toBe(1);
});

test('closed databases take no room even while they are referenced', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const opened = await page.evaluate(async () => {
    // With a custom storage, the engine runs in the page itself.
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
          flush: () => {},
          size: () => get(name).length,
          truncate: (size: number) => resize(name, size),
          close: () => {},
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
