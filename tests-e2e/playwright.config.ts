import { defineConfig } from '@playwright/test';
import { BASE_URL, HARNESS_URL, firefoxOptions, launchOptions } from './browser.ts';

function serve(name: string, url: string, command: string) {
  return {
    name,
    command: `${command} --port ${new URL(url).port} --strictPort`,
    cwd: new URL('..', import.meta.url).pathname,
    url,
    reuseExistingServer: false,
    timeout: 120_000,
  };
}

/**
 * Tests that set quotas, evict data, go offline and count calls through Chromium's DevTools
 * protocol. Firefox's quota is tested in quota-engines.spec.ts.
 */
const CHROMIUM_ONLY = ['**/quota.spec.ts', '**/eviction.spec.ts', '**/demo-pwa.spec.ts', '**/get-files.spec.ts'];

/** sync.config.ts runs it. */
const NEEDS_SERVER = '**/demo-sync.spec.ts';

export default defineConfig({
  testDir: 'specs',
  fullyParallel: true,
  forbidOnly: true,
  retries: 0,
  workers: 2,
  reporter: 'list',
  timeout: 60_000,
  // A busy machine needs more than the default of 5 s for what takes half a second.
  expect: { timeout: 20_000 },
  use: { baseURL: BASE_URL, trace: 'retain-on-failure' },
  projects: [
    { name: 'chromium', testIgnore: NEEDS_SERVER, use: { browserName: 'chromium', launchOptions } },
    { name: 'firefox', grepInvert: /@long/, testIgnore: [...CHROMIUM_ONLY, NEEDS_SERVER], use: { browserName: 'firefox', launchOptions: firefoxOptions } },
    // Tests that take Firefox many minutes; not run in CI.
    { name: 'firefox-long', grep: /@long/, testIgnore: [...CHROMIUM_ONLY, NEEDS_SERVER], use: { browserName: 'firefox', launchOptions: firefoxOptions } },
    // Drives a browser that Playwright does not know.
    { name: 'webkitgtk', testDir: 'engines' },
  ],
  // The built pages, not the development server: this proves that a bundler finds the worker and
  // the module.
  webServer: [
    serve('demo-web', BASE_URL, 'npm run build --workspace demo-web && npm run preview --workspace demo-web --'),
    serve('harness', HARNESS_URL, 'vite build tests-e2e/harness && vite preview tests-e2e/harness'),
  ],
});
