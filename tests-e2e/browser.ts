import type { LaunchOptions } from '@playwright/test';

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

/** Where the demo page is served while the tests run. */
export const BASE_URL = 'http://localhost:4173';

/** Where a bare page that gives tests the package as `window.mangrove` is served. */
export const HARNESS_URL = 'http://localhost:4174';
