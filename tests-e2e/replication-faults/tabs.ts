// Devices that are tabs of Chromium, in one browser with a profile on disk.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BrowserContext, Page } from '@playwright/test';
import { build } from 'vite';
import { replicaOptions, wrongClock } from '../../bindings-js/replication/test-servers/faults/fleet.ts';
import type { FleetDevice, FleetOptions, Method } from '../../bindings-js/replication/test-servers/faults/fleet.ts';
import type { Replica, Told } from '../../bindings-js/replication/test-servers/faults/replica.ts';
import { Waits } from '../../bindings-js/replication/test-servers/faults/waits.ts';
import { inTime, pause } from '../../bindings-js/replication/test-servers/faults/world.ts';
import { launchProfile } from '../browser.ts';
import { serve } from '../http.ts';
import type { Server } from '../http.ts';
import { killBrowser } from '../processes.ts';
import type {} from './page.ts';

/** Playwright may never settle a call on a page whose browser was killed at that moment. */
const PAGE_MS = 90_000;

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Starts so many devices; the first one has two tabs. */
export async function startTabs(count: number, fleet: FleetOptions): Promise<readonly FleetDevice[]> {
  if (count === 0) return [];
  const browser = await Browser.start(fleet);
  return Promise.all(
    Array.from({ length: count }, (_, nth) => TabDevice.start(`t${nth}`, nth === 0 ? 2 : 1, browser, fleet)),
  );
}

/** A browser that is killed and started again. */
class Browser {
  readonly #fleet: FleetOptions;
  readonly #server: Server;
  readonly #profile = mkdtempSync(join(tmpdir(), 'mangrove-profile-'));
  readonly #pages: string;
  #context: BrowserContext | undefined;
  #launching: Promise<BrowserContext> | undefined;
  #isEnded = false;

  private constructor(fleet: FleetOptions, server: Server, pages: string) {
    this.#fleet = fleet;
    this.#server = server;
    this.#pages = pages;
  }

  static async start(fleet: FleetOptions): Promise<Browser> {
    // Runs may go on side by side.
    const pages = mkdtempSync(join(tmpdir(), 'mangrove-replication-faults-pages-'));
    await build({
      root: here('.'),
      configFile: false,
      logLevel: 'error',
      worker: { format: 'es' },
      build: { outDir: pages, emptyOutDir: true, target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false },
    });
    return new Browser(fleet, await serve(pages), pages);
  }

  async page(): Promise<Page> {
    const page = await (await this.#launch()).newPage();
    await this.load(page);
    return page;
  }

  async load(page: Page): Promise<void> {
    await page.goto(this.#server.url, { timeout: 120_000 });
    await page.waitForFunction(() => document.title === 'ready', undefined, { timeout: 120_000 });
  }

  /** All devices of it lose their pages. */
  async kill(): Promise<void> {
    const context = this.#context;
    this.#context = undefined;
    this.#launching = undefined;
    killBrowser(this.#profile);
    await context?.close().catch(() => undefined);
  }

  async end(): Promise<void> {
    if (this.#isEnded) return;
    this.#isEnded = true;
    await this.kill();
    await this.#server[Symbol.asyncDispose]();
    // Helper processes of a killed browser may still write for a moment.
    for (const directory of [this.#profile, this.#pages])
      rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }

  #launch(): Promise<BrowserContext> {
    this.#launching ??= (async () => {
      const context = await launchProfile('chromium', this.#profile, { timeout: 120_000 });
      context.setDefaultTimeout(300_000);
      await context.exposeFunction('tellHarness', (device: string, told: Told) => this.#fleet.tell(device, told));
      await context.exposeFunction('countedSoFar', () => this.#fleet.counted());
      await context.exposeFunction('credentialsOf', (device: string) => this.#fleet.credentials?.(device));
      this.#context = context;
      return context;
    })();
    const launching = this.#launching;
    launching.catch(() => {
      if (this.#launching === launching) this.#launching = undefined;
    });
    return launching;
  }
}

/** A device whose database several tabs have open. */
class TabDevice implements FleetDevice {
  readonly name: string;
  readonly waits = new Waits();
  readonly #browser: Browser;
  readonly #fleet: FleetOptions;
  readonly #pages: Page[] = [];

  private constructor(name: string, browser: Browser, fleet: FleetOptions) {
    this.name = name;
    this.#browser = browser;
    this.#fleet = fleet;
  }

  static async start(name: string, tabs: number, browser: Browser, fleet: FleetOptions): Promise<TabDevice> {
    const device = new TabDevice(name, browser, fleet);
    for (let tab = 0; tab < tabs; tab++) device.#pages.push(await device.#open());
    return device;
  }

  async disturb(): Promise<string> {
    const what = this.#fleet.random.of([
      'close tab',
      'reload tab',
      'reload tab',
      'crash tab',
      'crash tab',
      'kill browser',
      'clock of tab',
    ] as const);
    await this.waits.for(what, this.#disturb(what));
    return what;
  }

  call<M extends Method>(method: M, ...args: Parameters<Replica[M]>): Promise<Awaited<ReturnType<Replica[M]>>> {
    return this.waits.for(method, this.#call(method, args));
  }

  states(): Promise<readonly string[]> {
    return Promise.all(
      this.#pages.map((page) => (page.isClosed() ? 'closed' : page.evaluate(() => window.replica.state()))),
    );
  }

  end(): Promise<void> {
    return this.#browser.end();
  }

  async #disturb(what: 'close tab' | 'reload tab' | 'crash tab' | 'kill browser' | 'clock of tab'): Promise<void> {
    const { random } = this.#fleet;
    const page = random.of(this.#pages);
    if (what === 'clock of tab') {
      // Its browser may be dead.
      await page.evaluate((offset) => window.replica.clock(offset), wrongClock(this.#fleet)).catch(() => undefined);
    } else if (what === 'kill browser') {
      await this.#browser.kill();
    } else if (what === 'close tab') {
      await close(page);
    } else if (what === 'reload tab') {
      await inTime(
        'reloading a page',
        page.reload().then(() => this.#start(page)),
        PAGE_MS,
      ).catch(() => close(page));
    } else {
      await crash(page);
    }
    await pause(random.between(0, 2000));
    await this.#reopen();
  }

  async #call<M extends Method>(method: M, args: Parameters<Replica[M]>): Promise<Awaited<ReturnType<Replica[M]>>> {
    await this.#reopen();
    const answers = await Promise.all(
      this.#pages.map((page) =>
        page.evaluate(
          ([name, given]) =>
            (window.replica[name as Method] as (...all: unknown[]) => unknown)(...(given as unknown[])),
          [method, args] as const,
        ),
      ),
    );
    return answers[0] as Awaited<ReturnType<Replica[M]>>;
  }

  /** Opens tabs in place of those that are gone, also because another device's disturbance killed the browser. */
  async #reopen(): Promise<void> {
    for (let at = 0; at < this.#pages.length; at++) {
      for (let tries = 0; (this.#pages[at] as Page).isClosed(); tries++) {
        try {
          await inTime(
            'opening a page',
            this.#open().then(async (page) => {
              this.#pages[at] = page;
              await page.evaluate(() => window.replica.write());
            }),
            PAGE_MS,
          );
        } catch (error) {
          // The browser may be killed meanwhile.
          if (tries > 5) throw error;
          await pause(500);
        }
      }
    }
  }

  async #open(): Promise<Page> {
    const page = await this.#browser.page();
    // Pages of an origin can be in one process.
    page.on('crash', () => void page.close().catch(() => undefined));
    await this.#begin(page);
    return page;
  }

  /** Starts again in a page that was loaded again. */
  async #start(page: Page): Promise<void> {
    await page.waitForFunction(() => document.title === 'ready', undefined, { timeout: 120_000 });
    await this.#begin(page);
    await page.evaluate(() => window.replica.write());
  }

  async #begin(page: Page): Promise<void> {
    const { isOld, credentials } = this.#fleet;
    const options = replicaOptions(this.#fleet, this.name, this.name);
    await page.evaluate((given) => window.startReplica(...given), [options, isOld, credentials !== undefined] as const);
  }
}

/** Ends the process of a page; other pages of the origin may be in the same one. */
async function crash(page: Page): Promise<void> {
  const crashed = page.waitForEvent('crash', { timeout: 60_000 });
  crashed.catch(() => undefined);
  try {
    // The crash of another page in its process may have ended it, and then it does not answer.
    const session = await Promise.race([page.context().newCDPSession(page), crashed.then(() => undefined)]);
    if (session === undefined) return;
    void session.send('Page.crash').catch(() => undefined);
    await crashed;
  } catch {
    // Its browser is dead, which is as good.
  } finally {
    await close(page);
  }
}

function close(page: Page): Promise<void> {
  return inTime('closing a page', page.close(), PAGE_MS).catch(() => undefined);
}
