// The tabs of one browser, seen from the process that disturbs them.
import type { BrowserContext, CDPSession, Page } from '@playwright/test';
import type { Chaos } from './messages.ts';

export interface TabOptions {
  readonly url: string;
  readonly database: string;
  readonly lanes: number;
}

/** Rejects after `ms`, so that the run itself never hangs either. */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

let loads = 0;

export class Tab {
  readonly page: Page;
  readonly #options: TabOptions;
  #session: CDPSession | undefined;
  /** Name of the page load that the tab shows. */
  load = '';
  isFrozen = false;
  isHidden = false;
  isCrashed = false;

  private constructor(page: Page, options: TabOptions) {
    this.page = page;
    this.#options = options;
    page.on('crash', () => {
      this.isCrashed = true;
    });
  }

  static async open(context: BrowserContext, options: TabOptions, seed: number, round: number): Promise<Tab> {
    const tab = new Tab(await context.newPage(), options);
    await tab.enter(seed, round);
    return tab;
  }

  get canRun(): boolean {
    return !this.isFrozen && !this.isCrashed && !this.page.isClosed();
  }

  /** Reloads the page and starts its writes; `round` 0 starts none. */
  async enter(seed: number, round: number): Promise<void> {
    this.load = '';
    await within(30_000, "the page's load", this.page.goto(this.#options.url));
    await this.begin(seed, round);
  }

  /**
   * Goes to another page of the site and back: to the same page load if the browser kept it,
   * otherwise to a new one.
   */
  async leaveAndGoBack(afterMs: number, seed: number, round: number): Promise<void> {
    const { page } = this;
    const { url } = this.#options;
    this.isFrozen = true;
    await within(30_000, 'leaving', page.goto(`${url}?elsewhere`));
    await page.waitForTimeout(afterMs);
    await page.evaluate(() => history.back()).catch(() => undefined);
    await within(30_000, 'going back', page.waitForURL(url, { waitUntil: 'commit' }));
    await this.#scripted();
    const isKept = await this.call('isOpen');
    this.isFrozen = false;
    if (!isKept) await this.begin(seed, round);
  }

  async begin(seed: number, round: number): Promise<void> {
    const load = `p${++loads}`;
    const { database, lanes } = this.#options;
    await this.#scripted();
    await within(
      60_000,
      `open of ${load}`,
      this.page.evaluate((options) => window.chaos.open(options), { name: database, load, seed, lanes }),
    );
    this.load = load;
    if (round > 0) await this.call('start', round);
  }

  /** Resolves when the page's script has run. */
  async #scripted(): Promise<void> {
    await within(
      30_000,
      'the script',
      this.page.waitForFunction(() => 'chaos' in window),
    );
  }

  /** Calls a method of the page. */
  call<M extends keyof Chaos>(method: M, ...args: Parameters<Chaos[M]>): Promise<Awaited<ReturnType<Chaos[M]>>> {
    const called = this.page.evaluate(
      ([name, given]) => (window.chaos[name as keyof Chaos] as (...all: unknown[]) => unknown)(...(given as unknown[])),
      [method, args] as const,
    );
    return within(
      method === 'stop' || method === 'read' ? 90_000 : 45_000,
      `${method} in ${this.load}`,
      called,
    ) as Promise<Awaited<ReturnType<Chaos[M]>>>;
  }

  async devtools(): Promise<CDPSession> {
    this.#session ??= await this.page.context().newCDPSession(this.page);
    return this.#session;
  }
}
