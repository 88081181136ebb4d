// Each bundler builds the installed package, and a browser runs it: open, write, read back, and
// again after a reload. Next and SvelteKit also render the page on the server, which imports the
// package.
import { expect, test } from '@playwright/test';
import type { Page } from '@playwright/test';
import { STRICT_CSP, serve } from '../../http.ts';
import { build } from '../builder.ts';
import type { Report } from '../builder.ts';

const STRICT = { 'content-security-policy': STRICT_CSP };
/** Pages of frameworks have inline scripts and styles. */
const FRAMEWORK = {
  'content-security-policy': `${STRICT_CSP.replace("script-src 'self'", "script-src 'self' 'unsafe-inline'")}; style-src 'self' 'unsafe-inline'`,
};

const BUNDLERS = {
  vite: STRICT,
  webpack: STRICT,
  rspack: STRICT,
  esbuild: STRICT,
  plain: STRICT,
  next: FRAMEWORK,
  sveltekit: FRAMEWORK,
};

async function reportOf(page: Page, url: string): Promise<Report> {
  await page.goto(url);
  return (await (await page.waitForFunction(() => (globalThis as { report?: unknown }).report)).jsonValue()) as Report;
}

for (const [bundler, headers] of Object.entries(BUNDLERS)) {
  test(bundler, async ({ page }) => {
    const problems: string[] = [];
    const requests: string[] = [];
    page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
    page.on('pageerror', (error) => problems.push(error.message));
    page.on('request', (request) => requests.push(request.url()));
    await using server = await serve(await build(bundler), headers);

    const first = await reportOf(page, server.url);
    expect(first).toEqual({
      persistence: 'opfs',
      runs: 1,
      keys: ['a', 'b', 'runs'],
      restored: ['copied'],
      inPage: 'refused',
    });
    const second = await reportOf(page, server.url);
    expect(second).toEqual({ ...first, runs: 2 });
    // For each of the two loads: the core, the maintenance module, and the rest in both databases'
    // workers.
    const modules = requests.filter((url) => url.endsWith('.wasm'));
    expect([modules.length, new Set(modules).size]).toEqual([8, 3]);

    requests.length = 0;
    expect(await reportOf(page, `${server.url}?inline`)).toEqual({
      persistence: 'opfs',
      runs: 1,
      keys: ['a', 'b', 'runs'],
      restored: ['copied'],
    });
    expect(requests.filter((url) => /\.wasm|^blob:/.test(url))).toEqual([]);
    expect(problems).toEqual([]);
  });
}
