// Live queries in React: what is rendered, how often, and what stays open.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

for (const isStrict of [false, true]) {
  test(`a live query renders in React once per change and without tearing${isStrict ? ', in strict mode' : ''}`, async ({
    profile,
  }) => {
    const page = await (await profile.launch()).newPage();
    const errors: string[] = [];
    page.on('pageerror', (error) => errors.push(String(error)));
    // Collects React's warnings; the 404 is the browser's request for an icon that does not exist.
    page.on(
      'console',
      (message) => message.type() === 'error' && !message.text().includes('404') && errors.push(message.text()),
    );
    await page.goto(HARNESS_URL);
    await page.evaluate((isStrict) => window.mountReact(isStrict), isStrict);
    const first = page.locator('#first');
    const second = page.locator('#second');
    const counts = () => page.evaluate(() => window.react.counts());
    await expect(first).toHaveText('ready: ');
    // The extra watch of strict mode's doubled effects is closed again.
    expect((await counts()).watches).toBe(1);

    const { renders } = await counts();
    for (let value = 1; value <= 5; value++) {
      await page.evaluate((value) => window.react.set('a', value), value);
      await expect(first).toHaveText(`ready: a=${value}`);
      await expect(second).toHaveText(`ready: a=${value}`);
    }
    expect((await counts()).renders - renders).toBe(5);

    await page.evaluate(async () => {
      for (let round = 1; round <= 10; round++) {
        window.react.transition(round);
        // Writes between the slices of the transition.
        for (let at = 0; at < 5; at++) {
          await new Promise((resolve) => setTimeout(resolve, 1));
          await window.react.set('b', round * 10 + at);
        }
      }
    });
    await expect(first).toHaveText('ready: a=5 b=104');
    await expect(page.locator('i').first()).toHaveText('10');
    expect((await counts()).torn).toBe(0);

    await page.evaluate(() => window.react.fail());
    await expect(first).toHaveText('failed: KV_CODEC_MISMATCH');
    await expect(second).toHaveText('failed: KV_CODEC_MISMATCH');
    expect((await counts()).watches).toBe(0);
    await page.evaluate(() => window.react.unmount());
    expect(await counts()).toMatchObject({ watches: 0, text: null });
    await page.evaluate(() => window.react.close());
    expect(errors).toEqual([]);
  });
}

test('unmounting ends the watch of a live query', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  await page.evaluate(() => window.mountReact(true));
  await expect(page.locator('#first')).toHaveText('ready: ');
  const { before, after } = await page.evaluate(async () => {
    const before = window.react.counts();
    window.react.unmount();
    for (let value = 0; value < 5; value++) await window.react.set('a', value);
    return { before, after: window.react.counts() };
  });
  expect(before.watches).toBe(1);
  expect(after).toEqual({ renders: before.renders, torn: 0, watches: 0, text: null });
  await page.evaluate(() => window.react.close());
});
