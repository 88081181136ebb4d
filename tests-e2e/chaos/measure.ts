// Measures how long others wait when the leader goes. Another tab writes continuously; the result
// is its longest time between two acknowledged writes, from the leader's last moment on.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { BrowserContext, Page } from '@playwright/test';
import { keepsPages, launchProfile } from '../browser.ts';
import type { Engine } from '../browser.ts';
import { serveChaos } from './served.ts';
import { quantiles } from './statistics.ts';

const { values: given } = parseArgs({
  options: {
    runs: { type: 'string', default: '20' },
    browser: { type: 'string', default: 'chromium' },
    entries: { type: 'string', default: '1000' },
  },
});
const engine = given.browser as Engine;

type End = (leader: Page) => Promise<unknown>;

/** Leaves the page; the browser keeps it in the back/forward cache. */
const leave: End = (leader) => leader.goto(`${leader.url()}?elsewhere`);

const ENDS: Readonly<Record<string, End>> = {
  'db.close()': (leader) => leader.evaluate(() => window.chaos.shut()),
  'tab closed': (leader) => leader.close(),
  'tab reloaded': (leader) => leader.reload({ waitUntil: 'commit' }),
  'worker terminated': (leader) => leader.evaluate(() => window.chaos.terminate(false)),
  ...(engine !== 'chromium'
    ? {}
    : {
        'tab crashed': async (leader: Page) => {
          const session = await leader.context().newCDPSession(leader);
          const crashed = leader.waitForEvent('crash');
          session.send('Page.crash').catch(() => undefined);
          await crashed;
        },
        'page left, and kept': leave,
        'page left in the middle of a write': async (leader: Page) => {
          await leader.evaluate(() => window.chaos.order({ fault: 'halt', at: 'write', isAfter: true, ms: 1500 }));
          await leave(leader);
        },
      }),
};

async function once(context: BrowserContext, url: string, end: End): Promise<number | undefined> {
  const open = async (): Promise<Page> => {
    const page = await context.newPage();
    await page.goto(url);
    await page.waitForFunction(() => 'chaos' in window);
    await page.evaluate((lanes) => window.chaos.open({ name: 'measure', load: 'm', seed: 1, lanes }), 0);
    return page;
  };
  const leader = await open();
  const other = await open();
  await leader.evaluate((count) => window.chaos.fill(count), Number(given.entries));
  const times = other.evaluate(() => window.chaos.writeFor(2500));
  await new Promise((resolve) => {
    setTimeout(resolve, 500);
  });
  const from = Date.now();
  await end(leader);
  const done = await times;
  let longest: number | undefined;
  for (let index = 1; index < done.length; index++) {
    const [before, after] = [done[index - 1]!, done[index]!];
    if (after >= from) longest = Math.max(longest ?? 0, after - before);
  }
  await other.close();
  await leader.close().catch(() => undefined);
  return longest;
}

await using server = await serveChaos();
for (const [name, end] of Object.entries(ENDS)) {
  const profile = await mkdtemp(join(tmpdir(), 'mangrove-measure-'));
  const context = await launchProfile(engine, profile, keepsPages);
  const times: number[] = [];
  for (let run = 0; run < Number(given.runs); run++) {
    const ms = await once(context, server.url, end);
    if (ms !== undefined) times.push(ms);
  }
  await context.close();
  await rm(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  process.stdout.write(`${JSON.stringify({ engine, name, ...quantiles(times) })}\n`);
}
