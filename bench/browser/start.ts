// From the navigation to the first 30 of 20,000 rows on a slow phone: a page for each store, in turns,
// with cold caches behind a slow connection, and with warm ones.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { chromium } from '@playwright/test';
import type { BrowserContext } from '@playwright/test';
import { build } from 'vite';
import { ARGS, CHROMIUM } from './driver/browser.ts';
import { median } from './src/report/numbers.ts';
import { SlowServer } from './start/network.ts';
import type { Link } from './start/network.ts';
import { preloadDatabase } from './start/preload.ts';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    slowdown: { type: 'string', default: '4' },
    /** Prints what is fetched, in order. */
    requests: { type: 'boolean', default: false },
  },
});

const PAGES = ['mangrove', 'mangrove-preloaded', 'dexie', 'indexeddb'];
/** The "Slow 4G" of Lighthouse: 1.6 Mbit/s, and a round trip of 150 ms. */
const SLOW_4G: Link = { roundTripMs: 150, bytesPerSecond: 1_600_000 / 8 };
const ROOT = join(import.meta.dirname, '../../target/bench/start');

async function buildPages(): Promise<void> {
  await build({
    root: join(import.meta.dirname, 'start'),
    configFile: false,
    logLevel: 'warn',
    plugins: [preloadDatabase((path) => path.includes('preloaded'))],
    worker: { format: 'es' },
    build: {
      target: 'es2022',
      outDir: ROOT,
      emptyOutDir: true,
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      rolldownOptions: { input: PAGES.map((page) => join(import.meta.dirname, `start/${page}.html`)) },
    },
  });
}

async function visit(
  context: BrowserContext,
  url: string,
  { cold, slowdown }: { cold: boolean; slowdown: number },
): Promise<number> {
  const page = await context.newPage();
  try {
    const cdp = await context.newCDPSession(page);
    if (cold) await cdp.send('Network.clearBrowserCache');
    await cdp.send('Emulation.setCPUThrottlingRate', { rate: slowdown });
    await page.goto(url, { waitUntil: 'commit' });
    await page.waitForFunction(() => Number(document.title) > 0, undefined, { polling: 20 });
    return Number(await page.title());
  } finally {
    await page.close();
  }
}

await buildPages();
await using server = await SlowServer.listen(ROOT);
const profile = await mkdtemp(join(tmpdir(), 'mangrove-start-'));
const context = await chromium.launchPersistentContext(profile, { executablePath: CHROMIUM, args: ARGS });
try {
  const slowdown = Number(options.slowdown);
  for (const page of PAGES) await visit(context, `${server.url}/${page}.html?seed`, { cold: true, slowdown: 1 });
  const cold = new Map(PAGES.map((page) => [page, [] as number[]]));
  const warm = new Map(PAGES.map((page) => [page, [] as number[]]));
  for (let round = 0; round < Number(options.rounds); round++) {
    for (const page of PAGES) {
      const url = `${server.url}/${page}.html`;
      server.restart(SLOW_4G);
      cold.get(page)!.push(await visit(context, url, { cold: true, slowdown }));
      if (options.requests && round === 0) {
        for (const { path, bytes, atMs } of server.sent)
          process.stdout.write(
            `  ${page.padEnd(20)} ${atMs.toFixed(0).padStart(6)} ms ${String(bytes).padStart(7)} bytes ${path}\n`,
          );
      }
      // The browser keeps compiled code from the second visit on.
      await visit(context, url, { cold: false, slowdown });
      await visit(context, url, { cold: false, slowdown });
      warm.get(page)!.push(await visit(context, url, { cold: false, slowdown }));
    }
  }
  for (const page of PAGES) {
    process.stdout.write(
      `${page.padEnd(20)} cold ${median(cold.get(page)!)!.toFixed(0).padStart(6)} ms   warm ${median(warm.get(page)!)!.toFixed(0).padStart(6)} ms\n`,
    );
  }
} finally {
  await context.close();
  await rm(profile, { recursive: true, force: true });
}
