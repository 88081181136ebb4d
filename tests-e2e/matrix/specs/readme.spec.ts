// The first sample of the README, verbatim, in a page without a bundler.
import { readFileSync } from 'node:fs';
import { expect, test } from '@playwright/test';
import { serve } from '../../http.ts';

const SERVED = new URL('../build/served', import.meta.url).pathname;
const README = readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');
const SAMPLE = /^```js\n([^]*?)^```$/m.exec(README)?.[1] as string;

test('the README sample runs without a bundler', async ({ page }) => {
  await using server = await serve(SERVED);
  const lines: string[] = [];
  page.on('console', (message) => lines.push(message.text()));
  page.on('pageerror', (error) => lines.push(error.message));
  await page.route('**/readme.html', (route) =>
    route.fulfill({
      contentType: 'text/html',
      body: `<!doctype html><link rel="icon" href="data:,"><script type="importmap">{"imports":{"mangrove-kv":"./kv/index.js"}}</script><script type="module">${SAMPLE}</script>`,
    }),
  );
  await page.goto(`${server.url}readme.html`);
  await expect.poll(() => lines.at(-1), { timeout: 30_000 }).toBe('1');
  expect(lines).toHaveLength(2);
  expect(lines[0]).toContain('Analytical Engine');
});
