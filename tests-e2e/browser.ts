import { chromium, firefox } from '@playwright/test';
import type { BrowserContext, BrowserContextOptions, BrowserType, LaunchOptions } from '@playwright/test';

/**
 * How every test starts Chromium. Playwright's own `page` keeps the origin private file system in memory:
 * tests of what survives a restart use `chromium.launchPersistentContext(directory, launchOptions)`.
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

/** The worker's script of databases in OPFS and in memory, as the bundler has named it. */
export const OPFS_WORKER = /\/worker-(?!indexeddb)[^/]*\.js$/;

/** To start Chromium as people have it: it keeps pages that are left, to show them again. Playwright's way is not to. */
export const keepsPages: LaunchOptions = { ignoreDefaultArgs: ['--disable-back-forward-cache'] };

/** How every test starts Firefox: an unchanged one, over WebDriver BiDi. */
export const firefoxOptions: LaunchOptions = {
  channel: 'moz-firefox',
  executablePath: process.env['FIREFOX_PATH'] ?? '/usr/bin/firefox-esr',
};

export type Engine = 'chromium' | 'firefox';

const ENGINES: Record<Engine, { readonly type: BrowserType; readonly options: LaunchOptions }> = {
  chromium: { type: chromium, options: launchOptions },
  firefox: { type: firefox, options: firefoxOptions },
};

/** Starts a browser on a profile, whose files are on the disk. */
export function launchProfile(engine: Engine, directory: string, options: BrowserContextOptions & LaunchOptions = {}): Promise<BrowserContext> {
  const { type, options: own } = ENGINES[engine];
  return type.launchPersistentContext(directory, { ...own, ...options });
}

/** The first of the ports that pages are served on; several runs at a time take several. */
const PORT = Number(process.env['MANGROVE_E2E_PORT'] ?? 4173);

/** Where the demo page is served while the tests run. */
export const BASE_URL = `http://localhost:${PORT}`;

/** Where a bare page that gives tests the package as `window.mangrove` is served. */
export const HARNESS_URL = `http://localhost:${PORT + 1}`;
