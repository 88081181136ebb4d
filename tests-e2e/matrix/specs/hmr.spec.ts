// Vite's development server: a module that closes its database when it is replaced leaves no worker
// and no lock behind.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@playwright/test';
import { createServer } from 'vite';
import { stage } from '../build.mjs';

const FIRST_PORT = 4186;
const VARIANTS = [
  { what: 'pre-bundled', exclude: [] },
  { what: 'not pre-bundled', exclude: ['mangrove-kv'] },
];

for (const [index, { what, exclude }] of VARIANTS.entries())
  test(`a replaced module leaves no worker behind, with the package ${what}`, async ({ page }) => {
    const port = FIRST_PORT + index;
    const root = stage('hmr', `hmr-${index}`);
    const server = await createServer({
      root,
      configFile: false,
      logLevel: 'warn',
      server: { port, strictPort: true },
      optimizeDeps: { exclude },
    });
    try {
      await server.listen();
      await page.goto(`http://localhost:${port}`);
      const report = (version: number) =>
        page
          .waitForFunction((wanted) => {
            const { report } = globalThis as { report?: { version: number; runs: number } };
            return report?.version === wanted ? report : undefined;
          }, version)
          .then((handle) => handle.jsonValue());
      const locks = () => page.evaluate(async () => (await navigator.locks.query()).held?.length);
      expect(await report(1)).toEqual({ version: 1, runs: 1 });
      const held = await locks();
      expect(held).toBeGreaterThan(0);
      const main = join(root, 'main.js');
      // Vite drops a change that comes before it watches the file or before the page's socket is up.
      await expect.poll(() => server.watcher.getWatched()[root]).toContain('main.js');
      await expect.poll(() => server.ws.clients.size).toBe(1);
      for (const version of [2, 3]) {
        const text = readFileSync(main, 'utf8').replace(/version: \d/, `version: ${version}`);
        // Without truncation, so that Vite never reads half a file.
        writeFileSync(main, text, { flag: 'r+' });
        expect(await report(version)).toEqual({ version, runs: version });
        expect(page.workers()).toHaveLength(1);
        // The locks of a worker that was ended are released a moment later.
        await expect.poll(locks).toBe(held);
      }
    } finally {
      await server.close();
    }
  });
