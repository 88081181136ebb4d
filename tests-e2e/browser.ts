import { chromium, firefox } from '@playwright/test';
import type { BrowserContext, BrowserContextOptions, BrowserType, LaunchOptions } from '@playwright/test';

/**
 * Launch options of Chromium for every test. Playwright's own `page` keeps the origin private file
 * system in memory, so tests of what survives a restart use
 * `chromium.launchPersistentContext(directory, launchOptions)`.
 */
export const launchOptions: LaunchOptions = {
  executablePath: process.env['CHROMIUM_PATH'] ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
  ],
};

/** Matches the bundled worker script of databases in OPFS and in memory. */
export const OPFS_WORKER = /\/worker-(?!indexeddb)[^/]*\.js$/;

/** Starts Chromium with its back/forward cache, as users have it; Playwright disables the cache. */
export const keepsPages: LaunchOptions = { ignoreDefaultArgs: ['--disable-back-forward-cache'] };

/** Launch options of Firefox for every test: an unmodified build, over WebDriver BiDi. */
export const firefoxOptions: LaunchOptions = {
  channel: 'moz-firefox',
  executablePath: process.env['FIREFOX_PATH'] ?? '/usr/bin/firefox-esr',
};

export type Engine = 'chromium' | 'firefox';

const ENGINES: Record<Engine, { readonly type: BrowserType; readonly options: LaunchOptions }> = {
  chromium: { type: chromium, options: launchOptions },
  firefox: { type: firefox, options: firefoxOptions },
};

/** Starts a browser with a profile on disk. */
export function launchProfile(
  engine: Engine,
  directory: string,
  options: BrowserContextOptions & LaunchOptions = {},
): Promise<BrowserContext> {
  const { type, options: own } = ENGINES[engine];
  return type.launchPersistentContext(directory, { ...own, ...options });
}

/** First of the ports that pages are served on; concurrent runs need different ones. */
const PORT = Number(process.env['MANGROVE_E2E_PORT'] ?? 4173);

/** Address of the demo while the tests run. */
export const BASE_URL = `http://localhost:${PORT}`;

/** Address of a bare page that exposes the package as `window.mangrove`. */
export const HARNESS_URL = `http://localhost:${PORT + 1}`;
