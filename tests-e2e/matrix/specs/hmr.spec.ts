// Vite's development server: a module that closes its database when it is replaced leaves no worker
// and no lock behind.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@playwright/test';
import { createServer } from 'vite';
import { stage } from '../build.mjs';

const FIRST_PORT = 4186;
const VARIANTS = [{ what: 'pre-bundled', exclude: [] }, { what: 'not pre-bundled', exclude: ['mangrove-kv'] }];

for (const [index, { what, exclude }] of VARIANTS.entries()) test(`a replaced module leaves no worker behind, with the package ${what}`, async ({ page }) => {
  const port = FIRST_PORT + index;
  const root = stage('hmr', `hmr-${index}`);
  const server = await createServer({
    root, configFile: false, logLevel: 'warn', server: { port, strictPort: true }, optimizeDeps: { exclude },
  });
  try {
    await server.listen();
    await page.goto(`http://localhost:${port}`);
    const report = (version: number) => page.waitForFunction((wanted) => {
      const { report } = globalThis as { report?: { version: number; runs: number } };
      return report?.version === wanted ? report : undefined;
    }, version).then((handle) => handle.jsonValue());
    expect(await report(1)).toEqual({ version: 1, runs: 1 });
    const main = join(root, 'main.js');
    for (const version of [2, 3]) {
      const start = performance.now();
      await writeFile(main, (await readFile(main, 'utf8')).replace(/version: \d/, `version: ${version}`));
      expect(await report(version)).toEqual({ version, runs: version });
      // If a lock were left, `open` would wait ten seconds for it.
      expect(performance.now() - start).toBeLessThan(5000);
      expect(page.workers()).toHaveLength(1);
    }
  } finally {
    await server.close();
  }
});
