// Helpers for tests of several tabs, each with its database as `window.db`.
import type { BrowserContext, Page } from '@playwright/test';
import { HARNESS_URL } from './browser.ts';

type Options = NonNullable<Parameters<typeof window.mangrove.open>[1]>;

declare global {
  interface Window {
    db: Awaited<ReturnType<typeof window.mangrove.open>>;
    /** Workers started for `db`; the last one is current. */
    workers: Worker[];
    seen: unknown[];
    /** Events of `db`, with error codes. */
    events: string[];
  }
}

export async function emptyTab(context: BrowserContext): Promise<Page> {
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  await page.waitForFunction(() => document.title === 'ready');
  return page;
}

/** Opens the database in a page, in a worker with fault injection. */
export async function openIn(
  page: Page,
  name = 'shared',
  options: Omit<Options, 'worker' | 'signal' | 'indexes' | 'upgrade' | 'onUpgrade'> = {},
): Promise<void> {
  await page.evaluate(
    async ([database, given]) => {
      window.events = [];
      const { startFaultyWorker } = await window.loadFaults();
      window.workers = [];
      const worker = (): Worker => {
        const started = startFaultyWorker();
        window.workers.push(started);
        return started;
      };
      window.db = await window.mangrove.open(database, { ...(given as object), worker });
      const note = (what: string, code?: unknown): unknown =>
        window.events.push(code === undefined ? what : `${what} ${String(code)}`);
      window.db.addEventListener('error', ({ error }) => note('error', error.code));
      window.db.addEventListener('blocked', () => note('blocked'));
      window.db.addEventListener('close', ({ reason }) =>
        note('close', (reason as { code?: string } | undefined)?.code),
      );
    },
    [name, options] as const,
  );
}

export async function openTab(
  context: BrowserContext,
  name = 'shared',
  options: Omit<Options, 'worker' | 'signal' | 'indexes' | 'upgrade' | 'onUpgrade'> = {},
): Promise<Page> {
  const page = await emptyTab(context);
  await openIn(page, name, options);
  return page;
}

export function set(page: Page, key: string, value: unknown): Promise<void> {
  return page.evaluate(([at, what]) => window.db.set(at as string, what), [key, value] as const);
}

export function get(page: Page, key: string): Promise<unknown> {
  return page.evaluate((at) => window.db.get(at), key);
}

/** Whether this page's worker leads. */
export function leads(page: Page, name = 'shared'): Promise<boolean> {
  return page.evaluate(async (database) => {
    const { clientOf, leadingClients } = await window.loadFaults();
    const own = clientOf(window.workers.at(-1));
    return own !== undefined && (await leadingClients(database)).includes(own);
  }, name);
}

/** Overrides a page's visibility, since headless pages are all visible. */
export function setVisible(page: Page, isVisible: boolean): Promise<void> {
  return page.evaluate((visible) => {
    Object.defineProperty(document, 'visibilityState', { value: visible ? 'visible' : 'hidden', configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, isVisible);
}

/** Fires the event of freezing or resuming a page, since headless pages are never frozen. */
export function setFrozen(page: Page, isFrozen: boolean): Promise<boolean> {
  return page.evaluate((type) => document.dispatchEvent(new Event(type)), isFrozen ? 'freeze' : 'resume');
}
