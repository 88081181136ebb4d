// A real quota of the browser: acknowledged writes are there, the database stays open for reads and
// deletes, and writes again once there is room.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

test('at the quota of the browser, a database keeps its writes and stays usable', async ({ browserName, profile }) => {
  // In KiB. Firefox gives a site a fifth of it, but at least 10 MiB.
  const context = await profile.launch({
    firefoxUserPrefs: { 'dom.quotaManager.temporaryStorage.fixedLimit': 20_000 },
  });
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  if (browserName === 'chromium') {
    const session = await context.newCDPSession(page);
    await session.send('Storage.overrideQuotaForOrigin', { origin: new URL(HARNESS_URL).origin, quotaSize: 10 << 20 });
  }
  const found = await page.evaluate(async () => {
    const codeOf = (work: Promise<unknown>): Promise<string> =>
      work.then(
        () => 'none',
        (error: { code?: string }) => error.code ?? String(error),
      );
    const bytes = (key: number): Uint8Array => new Uint8Array(100_000).fill(key % 251);
    const db = await window.mangrove.open<number, Uint8Array>('full', { compression: 'none' });
    let code = 'none';
    let count = 0;
    while (count < 1000 && code === 'none') {
      code = await codeOf(db.set(count, bytes(count)));
      if (code === 'none') count++;
    }
    const rounds: unknown[] = [];
    // Repeated, because a failed commit must leave nothing behind.
    for (let round = 0; round < 3; round++)
      rounds.push(
        await codeOf(
          db.setMany([
            [5000, bytes(1)],
            [5001, bytes(1)],
            [5002, bytes(1)],
          ]),
        ),
      );
    const states: unknown[] = [db.status, await db.size, (await db.get(3))?.[99_999]];
    for (let key = 10; key < 30; key++) await db.delete(key);
    states.push(
      await db.size,
      await codeOf(db.compact()),
      await codeOf(db.set(6000, bytes(6000))),
      (await db.verify()).ok,
    );
    await db.close();
    const again = await window.mangrove.open<number, Uint8Array>('full');
    let wrong = 0;
    for await (const [key, value] of again)
      if (value.length !== 100_000 || value.some((byte) => byte !== key % 251)) wrong++;
    const end = [await again.size, wrong, (await again.verify()).ok];
    await again.close();
    return { code, count, rounds, states, end };
  });
  const full = 'KV_QUOTA_EXCEEDED';
  const { count } = found;
  expect(count).toBeGreaterThan(40);
  expect(count).toBeLessThan(120);
  expect(found).toEqual({
    code: full,
    count,
    rounds: [full, full, full],
    states: ['open', count, 3, count - 20, 'none', 'none', true],
    end: [count - 19, 0, true],
  });
});
