// Chromium on a profile of its own, and tabs in it.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from '@playwright/test';
import type { BrowserContext, Page } from '@playwright/test';
import type { Figure } from '../src/meter.ts';
import type { Comparison } from '../src/stages/builds.ts';
import type { StageRequest } from '../src/stages/index.ts';
import type { TabMethods } from '../src/stages/tab.ts';
import type { Tab } from '../src/stages/tabs.ts';
import { browserMemory } from './processes.ts';

export const CHROMIUM = process.env['CHROMIUM_PATH'] ?? '/usr/bin/chromium';

export const ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Tabs write at the same time, and only one is in front.
  '--disable-background-timer-throttling',
  '--disable-renderer-backgrounding',
  '--disable-backgrounding-occluded-windows',
];

export class Browser implements AsyncDisposable {
  readonly #context: BrowserContext;
  readonly #url: string;
  readonly #profile: string;

  private constructor(context: BrowserContext, url: string, profile: string) {
    this.#context = context;
    this.#url = url;
    this.#profile = profile;
  }

  static async launch(url: string): Promise<Browser> {
    const profile = await mkdtemp(join(tmpdir(), 'mangrove-bench-'));
    // Playwright's other contexts keep files in memory.
    const context = await chromium.launchPersistentContext(profile, { executablePath: CHROMIUM, args: ARGS });
    return new Browser(context, url, profile);
  }

  get version(): string {
    return `Chromium ${this.#context.browser()?.version() ?? ''}`.trim();
  }

  async #newPage(): Promise<Page> {
    const page = await this.#context.newPage();
    await page.goto(`${this.#url}?driven`, { waitUntil: 'load' });
    await page.waitForFunction(() => 'bench' in window);
    return page;
  }

  /** In a new tab, which is closed if there is no answer in time. */
  async stage(request: StageRequest, milliseconds: number): Promise<Figure[]> {
    const page = await this.#newPage();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<Figure[]>((resolve) => {
      timer = setTimeout(() => {
        resolve([{ name: '', unit: 'ms', error: `not done in ${milliseconds / 1000} s` }]);
      }, milliseconds);
    });
    try {
      if (request.stage === 'memory') {
        const cdp = await this.#context.newCDPSession(page);
        await page.exposeFunction('benchMemory', async () => {
          await cdp.send('HeapProfiler.collectGarbage');
          return browserMemory();
        });
      }
      const figures = page.evaluate((sent) => window.bench.runStage(sent), request);
      figures.catch(() => undefined);
      return await Promise.race([figures, late]);
    } finally {
      clearTimeout(timer);
      await page.close();
    }
  }

  async compareBuilds(
    names: readonly string[],
    sizes: { readonly records: number; readonly rounds: number },
    tell: (comparison: Comparison) => void,
  ): Promise<void> {
    const page = await this.#newPage();
    await page.exposeFunction('benchCompared', tell);
    await page.evaluate(([builds, given]) => window.bench.compareBuilds(builds, given), [names, sizes] as const);
    await page.close();
  }

  async newTab(): Promise<Tab> {
    const page = await this.#newPage();
    return {
      call: (method, ...values) =>
        page.evaluate(([name, list]) => (window.bench.tab[name] as (...all: unknown[]) => Promise<never>)(...list), [
          method,
          values,
        ] as [keyof TabMethods, unknown[]]),
      close: () => page.close(),
      crash: async () => {
        const cdp = await this.#context.newCDPSession(page);
        // Nobody is left to answer.
        cdp.send('Page.crash').catch(() => undefined);
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#context.close();
    await rm(this.#profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}
