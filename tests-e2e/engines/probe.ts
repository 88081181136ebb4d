// Measures how browsers treat files, locks, channels and pages, and writes the results to
// docs/browsers. See docs/BROWSERS.md.
//
//   npm run browsers                     all probes, in Chromium and Firefox
//   npm run browsers -- firefox quota    selected browsers and probes
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BrowserContext, LaunchOptions, Page } from '@playwright/test';
import { keepsPages, launchOptions, launchProfile } from '../browser.ts';
import type { Engine } from '../browser.ts';
import { serve } from '../http.ts';
import type { Server } from '../http.ts';
import { kill, killBrowser, processesOf } from '../processes.ts';
import { Cdp } from './cdp.ts';

const ENGINES: readonly Engine[] = ['chromium', 'firefox'];
const RESULTS = new URL('../../docs/browsers/', import.meta.url);
const ROUNDS = 3;
/** Time limit per probe. */
const MOST_MS = 600_000;
const PING_ROUNDS = 3000;

interface Watch {
  readonly lockAt?: number;
  readonly handleAt?: number;
  readonly lockError?: string;
  readonly errors: string[];
  readonly attempts: number;
}

interface Probe {
  readonly engine: Engine;
  readonly url: string;
  launch(options?: LaunchOptions): Promise<BrowserContext>;
  readonly directory: string;
}

declare global {
  interface Window {
    call(worker: string, command: string, argument?: unknown): Promise<unknown>;
    end(worker: string): number;
    ports(rounds: number): Promise<unknown>;
    countWorkers(most: number): Promise<unknown>;
    readonly shows: boolean[];
  }
}

function call<T>(page: Page, worker: string, command: string, argument: object = {}): Promise<T> {
  return page.evaluate(([worker, command, argument]) => window.call(worker, command, argument), [
    worker,
    command,
    argument,
  ] as const) as Promise<T>;
}

async function newPage(context: BrowserContext, url: string): Promise<Page> {
  const page = await context.newPage();
  await page.goto(url);
  return page;
}

const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

function summary(values: (number | undefined)[]): object {
  const known = values.filter((value) => value !== undefined).sort((a, b) => a - b);
  return {
    rounds: values.length,
    min: known[0],
    median: known[known.length >> 1],
    max: known.at(-1),
    never: values.length - known.length,
  };
}

async function facts({ url, launch }: Probe): Promise<unknown> {
  const context = await launch();
  const page = await newPage(context, url);
  return {
    version: context.browser()?.version() ?? (await page.evaluate(() => navigator.userAgent)),
    inWorker: await call(page, 'w', 'facts'),
    opfs: await call(page, 'w', 'opfs'),
  };
}

/** Ways to end a page or worker that has a handle and a lock. */
const ENDS: Record<string, (page: Page, probe: Probe) => Promise<unknown>> = {
  'worker.terminate()': (page) => page.evaluate(() => window.end('holder')),
  'reload': (page) => page.reload(),
  'going to another page of the site': (page, { url }) => page.goto(`${url}elsewhere.html`),
  'closing the tab': (page) => page.close(),
  'a crash of the tab': async (page, { engine, directory }) => {
    if (engine === 'chromium') {
      const session = await page.context().newCDPSession(page);
      await Promise.race([
        new Promise((resolve) => page.once('crash', resolve)),
        session.send('Page.crash').catch(() => undefined),
      ]);
      return;
    }
    kill(contentProcesses(directory));
  },
};

/** Firefox's content processes, one per site. */
function contentProcesses(directory: string): number[] {
  return processesOf(directory).filter((pid) => {
    try {
      return / tab\s*$/.test(execFileSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' }));
    } catch {
      return false;
    }
  });
}

async function release(probe: Probe): Promise<unknown> {
  const { engine, url, launch } = probe;
  const results: Record<string, unknown> = {};
  for (const [name, end] of Object.entries(ENDS)) {
    const handles: (number | undefined)[] = [];
    const locks: (number | undefined)[] = [];
    const errors = new Set<string>();
    const context = await launch();
    // Firefox runs all tabs of a site in one process. So the watcher of a crash opens afterwards,
    // and the measured time includes its start.
    const isLate = engine === 'firefox' && name === 'a crash of the tab';
    for (let round = 0; round < ROUNDS; round++) {
      const [file, lock] = [`file ${round}`, `lock ${round}`];
      const holder = await newPage(context, url);
      await call(holder, 'holder', 'hold', { file, lock });
      let watcher = isLate ? undefined : await newPage(context, url);
      const early = watcher && call<Watch>(watcher, 'watcher', 'watch', { file, lock });
      early?.catch(() => undefined);
      await sleep(200);
      const begun = Date.now();
      const ended = end(holder, probe).catch(() => undefined);
      if (name !== 'a crash of the tab') await ended;
      watcher ??= await newPage(context, url);
      const found = await (early ?? call<Watch>(watcher, 'watcher', 'watch', { file, lock }));
      handles.push(found.handleAt && found.handleAt - begun);
      locks.push(found.lockAt && found.lockAt - begun);
      for (const error of found.errors) errors.add(error);
      process.stderr.write(`${name}: ${handles.at(-1)} ms\n`);
      await Promise.race([Promise.all([holder.close().catch(() => undefined), watcher.close()]), sleep(3000)]);
    }
    await Promise.race([context.close(), sleep(5000)]);
    results[name] = {
      handleFreeMs: summary(handles),
      lockFreeMs: summary(locks),
      meanwhile: [...errors],
      ...(isLate ? { includes: 'a new tab of the site' } : {}),
    };
  }
  return results;
}

async function quota({ engine, url, launch }: Probe): Promise<unknown> {
  const context = await launch({ firefoxUserPrefs: { 'dom.quotaManager.temporaryStorage.fixedLimit': 20_000 } });
  const page = await newPage(context, url);
  if (engine === 'chromium') {
    const session = await context.newCDPSession(page);
    await session.send('Storage.overrideQuotaForOrigin', { origin: new URL(url).origin, quotaSize: 10 << 20 });
  }
  return call(page, 'w', 'full', { file: 'full' });
}

/** Chromium only: Firefox freezes only pages that were left, and offers tests no way to freeze. */
async function frozen({ engine, url, directory }: Probe): Promise<unknown> {
  if (engine !== 'chromium') return 'this browser freezes no tab, and WebDriver BiDi has no way to ask for it';
  await using cdp = new Cdp(directory);
  const holder = await cdp.newPage(url);
  const other = await cdp.newPage(url);
  await holder.call('holder', 'hold', { file: 'file', lock: 'lock', channel: 'channel', beat: 50 });
  await holder.call('echo', 'echo', { channel: 'echo' });
  await holder.evaluate('listenInPage("channel")');
  const listen = (): Promise<unknown> => other.call('listener', 'listen', { channel: 'channel', ms: 1000 });
  const found: Record<string, unknown> = { beatsInOneSecondBefore: await listen() };
  await holder.send('Page.setWebLifecycleState', { state: 'frozen' });
  await sleep(500);
  found['beatsInOneSecondFrozen'] = await listen();
  const pinged = other.call('pinger', 'pingChannel', { channel: 'echo', rounds: 100 }).then(() => 'answers', String);
  found['workerWithoutHandles'] = await Promise.race([pinged, sleep(3000).then(() => 'does not answer')]);
  await sleep(10_000);
  found['beatsInOneSecondFrozenFor11Seconds'] = await listen();
  found['locks'] = await other.call('watcher', 'query');
  found['waitFor5Seconds'] = without(
    await other.call<Watch>('watcher', 'watch', { file: 'file', lock: 'lock', timeout: 5000 }),
  );
  await other.call('mouth', 'say', { channel: 'channel', words: ['one', 'two', 'three'] });
  found['steal'] = await other.call('thief', 'steal', { lock: 'lock' });
  found['locksAfterSteal'] = await other.call('watcher', 'query');
  found['handleAfterSteal'] = without(await other.call<Watch>('watcher', 'watch', { file: 'file', timeout: 3000 }));
  await sleep(1000);
  await holder.send('Page.setWebLifecycleState', { state: 'active' });
  await sleep(1500);
  found['beatsInOneSecondAfter'] = await listen();
  found['heardByTheWorker'] = await holder.call('holder', 'heard');
  found['heardByThePage'] = await holder.evaluate('said');
  found['events'] = await holder.evaluate('lifecycle');
  found['writeAfterThaw'] = await holder.call('holder', 'write', { file: 'file' });
  return found;
}

function without({ lockAt, handleAt, ...rest }: Watch): object {
  return {
    lock: lockAt === undefined ? 'not granted' : 'granted',
    handle: handleAt === undefined ? 'not free' : 'free',
    ...rest,
  };
}

async function privateWindow({ engine, url, launch }: Probe): Promise<unknown> {
  const options =
    engine === 'chromium'
      ? { args: ['--incognito'] }
      : { firefoxUserPrefs: { 'browser.privatebrowsing.autostart': true } };
  const first = await launch(options);
  const own = await call(await newPage(first, url), 'w', 'opfs');
  await first.close();
  const second = await launch(options);
  const again = await call(await newPage(second, url), 'w', 'opfs');
  await second.close();
  return { first: own, afterRestart: again };
}

async function counts({ url, launch }: Probe): Promise<unknown> {
  const found: Record<string, unknown> = {};
  const each: Record<string, (page: Page) => Promise<unknown>> = {
    handlesOfOneWorker: (page) => call(page, 'w', 'countHandles', { most: 3000 }),
    memoriesOfOneWorker: (page) => call(page, 'w', 'countMemories', { most: 3000 }),
    workersOfOnePage: (page) => page.evaluate(() => window.countWorkers(600)),
  };
  for (const [name, count] of Object.entries(each)) {
    const context = await launch();
    found[name] = await Promise.race([
      newPage(context, url).then(count),
      sleep(120_000).then(() => 'the page answers no more'),
    ]);
    await Promise.race([context.close(), sleep(5000)]);
  }
  return found;
}

/** Whether going back restores a page, depending on what it holds when the user leaves. */
async function bfcache({ url, launch }: Probe): Promise<unknown> {
  const found: Record<string, unknown> = {};
  const [handle, lock, channel] = [{ file: 'file' }, { lock: 'lock' }, { channel: 'channel' }];
  /** `waits`: another tab waits before the page is left; `asks`: it then queries the locks. */
  const cases: Record<
    string,
    { readonly held?: object; readonly wanted?: object; readonly waits?: boolean; readonly asks?: boolean }
  > = {
    'nothing': {},
    'worker': { held: {} },
    'channel': { held: channel },
    'handle': { held: handle },
    'lock': { held: lock },
    'handle, which another tab wants': { held: handle, wanted: handle },
    'lock, which another tab wants': { held: lock, wanted: lock },
    'lock, for which another tab waits': { held: lock, wanted: lock, waits: true },
    'lock, for which another tab waits and asks who has it': { held: lock, wanted: lock, waits: true, asks: true },
    'all, which another tab wants': { held: { ...handle, ...lock, ...channel }, wanted: { ...handle, ...lock } },
  };
  const context = await launch({
    ...keepsPages,
    firefoxUserPrefs: { 'fission.bfcacheInParent': true, 'browser.sessionhistory.max_total_viewers': 8 },
  });
  const watcher = await newPage(context, url);
  for (const [name, { held, wanted, waits, asks }] of Object.entries(cases)) {
    const page = await newPage(context, url);
    if (held !== undefined) await call(page, 'holder', 'hold', held);
    const early = waits && call<Watch>(watcher, 'w', 'watch', { ...wanted, timeout: 3000 });
    await page.goto(`${url}elsewhere.html`);
    await sleep(500);
    if (asks) await call(watcher, 'asker', 'query');
    const watch = wanted && without(await (early || call<Watch>(watcher, 'w', 'watch', { ...wanted, timeout: 3000 })));
    await sleep(500);
    await page.goBack({ waitUntil: 'commit' }).catch(() => undefined);
    await sleep(1000);
    const shows = await page.evaluate(() => window.shows);
    const reasons = await page.evaluate(() =>
      JSON.stringify(
        (performance.getEntriesByType('navigation')[0] as { notRestoredReasons?: unknown } | undefined)
          ?.notRestoredReasons ?? null,
      ),
    );
    const parsed = JSON.parse(reasons) as { reasons?: { reason: string }[] } | null;
    found[name] = {
      restored: shows.at(-1),
      ...(watch === undefined ? {} : { toOthersMeanwhile: watch }),
      reasons: parsed?.reasons?.map(({ reason }) => reason),
    };
    process.stderr.write(`${name}: ${shows.at(-1)}\n`);
    await page.close();
  }
  return found;
}

/** Whether a page survives if the site's previous page was dropped during its worker's script. */
async function dropped({ url, launch }: Probe): Promise<unknown> {
  const found: Record<string, unknown> = {};
  const context = await launch(keepsPages);
  const watcher = await newPage(context, url);
  for (const then of ['nothing', 'read', 'write', 'truncate', 'flush', 'getSize', 'close', 'write if timers are set']) {
    const page = await newPage(context, url);
    let isCrashed = false;
    page.on('crash', () => {
      isCrashed = true;
    });
    await call(page, 'holder', 'hold', { file: then, lock: then });
    await page.evaluate((then) => void window.call('holder', 'busy', { file: then, ms: 1500, then }), then);
    await page.goto(`${url}elsewhere.html`);
    const watch = without(await call<Watch>(watcher, 'w', 'watch', { file: then, lock: then, timeout: 5000 }));
    await sleep(3000);
    found[then] = { nextPage: isCrashed ? 'crashed' : await page.title(), toOthersMeanwhile: watch };
    process.stderr.write(`${then}: ${JSON.stringify(found[then])}\n`);
    await page.close();
  }
  return found;
}

async function messages({ url, launch }: Probe): Promise<unknown> {
  const context = await launch();
  const page = await newPage(context, url);
  const other = await newPage(context, url);
  const argument = { channel: 'same tab', rounds: PING_ROUNDS };
  await call(page, 'channel echo', 'echo', argument);
  await call(other, 'far echo', 'echo', { channel: 'tabs' });
  // Until both are ready.
  await sleep(500);
  return {
    rounds: PING_ROUNDS,
    portBetweenWorkers: await page.evaluate((rounds) => window.ports(rounds), PING_ROUNDS),
    channelBetweenWorkersOfOneTab: await call(page, 'ping', 'pingChannel', argument),
    channelBetweenWorkersOfTwoTabs: await call(page, 'ping', 'pingChannel', { ...argument, channel: 'tabs' }),
  };
}

const PROBES: Record<string, (probe: Probe) => Promise<unknown>> = {
  facts,
  release,
  quota,
  frozen,
  private: privateWindow,
  counts,
  bfcache,
  dropped,
  messages,
};

async function run(engine: Engine, name: string, server: Server): Promise<unknown> {
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-probe-'));
  const contexts: BrowserContext[] = [];
  const launch = async (options: LaunchOptions = {}): Promise<BrowserContext> => {
    const { args = [], ...rest } = options;
    const own = engine === 'chromium' ? (launchOptions.args ?? []) : [];
    const context = await launchProfile(engine, directory, { ...rest, args: [...own, ...args] });
    contexts.push(context);
    return context;
  };
  try {
    const probing = (PROBES[name] as (probe: Probe) => Promise<unknown>)({
      engine,
      url: server.url,
      launch,
      directory,
    });
    return await Promise.race([probing, sleep(MOST_MS).then(() => ({ failed: 'not done in time' }))]);
  } catch (error) {
    return { failed: String(error).split('\n')[0] };
  } finally {
    await Promise.race([Promise.all(contexts.map((context) => context.close().catch(() => undefined))), sleep(10_000)]);
    killBrowser(directory);
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

async function record(engine: Engine, name: string, value: unknown): Promise<void> {
  const file = new URL(`${engine}.json`, RESULTS);
  const before = JSON.parse(await readFile(file, 'utf8').catch(() => '{}')) as Record<string, unknown>;
  await mkdir(RESULTS, { recursive: true });
  await writeFile(file, `${JSON.stringify({ ...before, [name]: value }, null, 2)}\n`);
}

const wanted = process.argv.slice(2);
const pick = <T extends string>(all: readonly T[]): T[] => {
  const chosen = all.filter((name) => wanted.includes(name));
  return chosen.length === 0 ? [...all] : chosen;
};

await using server = await serve(new URL('probe/', import.meta.url).pathname);
for (const engine of pick(ENGINES)) {
  for (const name of pick(Object.keys(PROBES))) {
    const value = await run(engine, name, server);
    process.stdout.write(`${new Date().toISOString()} ${engine} ${name}: ${JSON.stringify(value, null, 2)}\n`);
    await record(engine, name, value);
  }
}
process.exit();
