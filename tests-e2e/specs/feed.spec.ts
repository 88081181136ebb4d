// Commits are followed through the worker, across reloads of the page; a backup streams out of the
// worker.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

test('commits are followed through the worker and after a reload', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const seen = await page.evaluate(async () => {
    const db = await window.mangrove.open('feed', { feed: true });
    await db.set('a0', 0);
    const events: unknown[] = [];
    const following = (async () => {
      for await (const { changes } of db.watch({ prefix: 'a', initial: true })) {
        events.push(changes.map((change) => (change.type === 'set' ? change.key : change.type)));
        if (events.length === 4) return;
      }
    })();
    const called: number[] = [];
    db.subscribe({}, ({ version }) => called.push(version));
    await db.set('a1', 1);
    await db.set('b', 2);
    await db.setMany([
      ['a2', 2],
      ['c', 3],
      ['a3', 3],
    ]);
    await db.clear({ prefix: 'a' });
    await following;
    const { version } = await db.stats();
    await db.set('later', true);
    await db.close();
    return { events, called: called.length, version };
  });
  expect(seen.events).toEqual([['a0'], ['a1'], ['a2', 'a3'], ['clear']]);
  expect(seen.called).toBeGreaterThanOrEqual(4);
  await page.reload();
  const resumed = await page.evaluate(async (since) => {
    const db = await window.mangrove.open('feed');
    const step = await db.changes({ since }).next();
    await db.close();
    return step.value?.changes;
  }, seen.version);
  expect(resumed).toEqual([{ type: 'set', collection: '', key: 'later', value: true }]);
});

test('a backup streams out of the worker and a file is compacted', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const result = await page.evaluate(async () => {
    const db = await window.mangrove.open('maintenance', { compression: 'none' });
    const value = 'x'.repeat(10_000);
    await db.setMany(Array.from({ length: 500 }, (_, key) => [key, value] as const));
    const bytes = new Uint8Array(await new Response(db.backup()).arrayBuffer());
    await db.deleteMany(Array.from({ length: 450 }, (_, key) => key));
    const { before, after } = await db.compact();
    const { ok } = await db.verify();
    await db.close();
    return { magic: String.fromCharCode(...bytes.subarray(0, 8)), isShorter: after < before, ok };
  });
  expect(result).toEqual({ magic: 'MANGRBAK', isShorter: true, ok: true });
});
