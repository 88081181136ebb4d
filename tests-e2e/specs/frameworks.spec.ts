// Live queries in each framework: what is drawn, from the first drawing on, and what stays open.
import type { Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';
import type { Profile } from '../persistent.ts';

const FRAMEWORKS = ['angular', 'preact', 'react', 'solid', 'svelte', 'vue'] as const;

/** Opens the page. The errors are what is thrown there, and the framework's warnings. */
async function openPage(profile: Profile): Promise<{ page: Page; errors: string[] }> {
  const page = await (await profile.launch()).newPage();
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  // The 404 is the browser's request for an icon that does not exist.
  page.on(
    'console',
    (message) =>
      ['error', 'warning'].includes(message.type()) && !message.text().includes('404') && errors.push(message.text()),
  );
  await page.goto(HARNESS_URL);
  return { page, errors };
}

for (const name of FRAMEWORKS) {
  test(`a component of ${name} follows a collection, an index and other ranges, shows errors, and stops`, async ({
    profile,
  }) => {
    const { page, errors } = await openPage(profile);
    await page.evaluate((name) => window.mountFramework(name), name);
    const show = (range: object) => page.evaluate((range) => window.framework.show(range), range);
    const set = (key: string, tag: string) =>
      page.evaluate(([key, tag]) => window.framework.set(key as string, tag as string), [key, tag]);
    const counts = () => page.evaluate(() => window.framework.counts());
    // Svelte's component shows a store beside the runes.
    const views = name === 'svelte' ? ['p', 'b'] : ['p'];
    const expectText = async (text: string) => {
      for (const view of views) await expect(page.locator(`main ${view}`)).toHaveText(text);
    };
    const expectWatches = (watches: number) => expect.poll(async () => (await counts()).watches).toBe(watches);

    await expectText('loading: ');
    expect(await counts()).toEqual({ reads: 0, watches: 0 });
    await set('a', 'urgent');
    await show({ prefix: 'a' });
    await expectText('ready: a');
    await set('ab', 'late');
    await expectText('ready: a ab');
    await expectWatches(views.length);

    // Another range, of which the old one must not be seen.
    await show({ index: 'byTag', eq: 'urgent' });
    await expectText('ready: a');
    await set('ab', 'urgent');
    await expectText('ready: a ab');
    await show({ index: 'byTag', eq: 'urgent', limit: 1, reverse: true });
    await expectText('ready: ab');
    await expectWatches(views.length);

    // Until its own entries are read, a range that says so keeps those of the one before.
    const drawn = await page.evaluateHandle(() => {
      const texts: string[] = [];
      const look = (): void =>
        void texts.push(
          ...Array.from(document.querySelectorAll('main p, main b'), ({ textContent }) => textContent ?? ''),
        );
      new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
      return texts;
    });
    await show({ prefix: 'a', keepPrevious: true });
    await expectText('ready: a ab');
    expect(await drawn.evaluate((texts) => texts.filter((text) => !text.startsWith('ready: ')))).toEqual([]);
    await show({ prefix: 'ab' });
    await expectText('ready: ab');
    expect(await drawn.evaluate((texts) => texts.some((text) => text.startsWith('loading: ')))).toBe(true);
    await expectWatches(views.length);

    await show({ index: 'none' });
    await expectText('failed: KV_INVALID_ARGUMENT');
    await expectWatches(0);
    await show({ gte: 'b' });
    await expectText('ready: ');
    await set('b', 'late');
    await expectText('ready: b');

    await page.evaluate(() => window.framework.unmount());
    await expectWatches(0);
    const { reads } = await counts();
    await set('c', 'late');
    expect((await counts()).reads).toBe(reads);
    await expect(page.locator('main p')).toHaveCount(0);

    await page.evaluate(() => window.framework.close());
    expect(errors).toEqual([]);
  });
}

for (const name of FRAMEWORKS) {
  for (const how of ['mirrored', 'preloaded'] as const) {
    test(`a component of ${name} has the rows of what is ${how} when it is first drawn`, async ({ profile }) => {
      const { page, errors } = await openPage(profile);
      const { drawn, rendered, turned } = await page.evaluate(([name, how]) => window.drawFirst(name, how), [
        name,
        how,
      ] as const);
      // Svelte's component shows a store beside the runes.
      const both = (text: string) => (name === 'svelte' ? `${text}|${text}` : text);
      expect(drawn).toEqual([both('ready: a1 a2'), both('ready: a1 a2 a3')]);
      expect(rendered.filter((text) => !text.startsWith('ready: a1 a2'))).toEqual([]);
      // Nor is it drawn for another range with the rows of this one.
      expect([...new Set(turned)]).toEqual(['loading: ', 'ready: b']);
      expect(errors).toEqual([]);
    });
  }

  test(`a component of ${name} is first drawn without rows if they have to be read`, async ({ profile }) => {
    const { page, errors } = await openPage(profile);
    const { drawn, rendered } = await page.evaluate((name) => window.drawFirst(name, 'read'), name);
    expect(drawn[0]).toMatch(/^loading: /);
    expect(rendered[0]).toBe('loading: ');
    expect(errors).toEqual([]);
  });

  test(`two components of ${name} never show halves of a transaction`, async ({ profile }) => {
    const { page, errors } = await openPage(profile);
    const drawn = await page.evaluate((name) => window.drawTwo(name, 60), name);
    expect(drawn.filter((shown) => new Set(shown.split('|')).size !== 1)).toEqual([]);
    // It went through states in between, so halves would have been seen.
    expect(drawn.length).toBeGreaterThan(5);
    expect(drawn[0]).toMatch(/^ready: n=0/);
    expect(errors).toEqual([]);
  });
}

for (const name of ['angular', 'preact', 'solid'] as const) {
  test(`a window of ${name} follows signals and where it is moved, and stops`, async ({ profile }) => {
    const { page, errors } = await openPage(profile);
    await page.evaluate((name) => window.mountWindow(name), name);
    const text = page.locator('main p');
    const counts = () => page.evaluate(() => window.framework.counts());
    const show = (range: object) => page.evaluate((range) => window.framework.show(range), range);
    await expect(text).toHaveText('loading: ');
    expect(await counts()).toEqual({ reads: 0, watches: 0 });
    await show({ limit: 2 });
    await expect(text).toHaveText('ready: 0 1');
    const seen = await page.evaluateHandle(() => {
      const texts: (string | null)[] = [];
      const main = document.querySelector('main') as HTMLElement;
      new MutationObserver(() => texts.push(main.textContent)).observe(main, {
        subtree: true,
        childList: true,
        characterData: true,
      });
      return texts;
    });
    await page.evaluate(() => window.framework.move?.(10, 3));
    await expect(text).toHaveText('ready: 10 11 12');
    expect((await seen.jsonValue()).map((each) => each?.trim())).toEqual(['ready: 0 1 stale', 'ready: 10 11 12']);
    // What says the same changes nothing.
    const { reads } = await counts();
    await show({ limit: 2 });
    await show({ limit: 1, reverse: true });
    await expect(text).toHaveText('ready: 19');
    expect((await counts()).reads).toBe(reads + 1);
    expect((await counts()).watches).toBe(1);
    await page.evaluate(() => window.framework.set('25', ''));
    await expect(text).toHaveText('ready: 25');
    await page.evaluate(() => window.framework.unmount());
    await expect.poll(async () => (await counts()).watches).toBe(0);
    await page.evaluate(() => window.framework.close());
    expect(errors).toEqual([]);
  });
}
