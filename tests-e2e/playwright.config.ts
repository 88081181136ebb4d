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
const CHROMIUM_ONLY = [
  '**/quota.spec.ts',
  '**/eviction.spec.ts',
  '**/demo-pwa.spec.ts',
  '**/path-files.spec.ts',
  '**/files.spec.ts',
  '**/guide-react.spec.ts',
];

/** What needs the package's API alone is tested in Chromium; `firefox-all` runs it in Firefox. */
const API_ALONE = [
  '**/demo*.spec.ts',
  '**/frameworks.spec.ts',
  '**/hydration.spec.ts',
  '**/inspector.spec.ts',
  '**/migrate.spec.ts',
  '**/react.spec.ts',
  '**/suspense.spec.ts',
  '**/tanstack-example.spec.ts',
];

/** replication.config.ts runs it. */
const NEEDS_SERVER = '**/demo-replication.spec.ts';

/** Skipped without a log server, which only the longer suite installs. */
const NEEDS_LOG = '**/replication.spec.ts';

/** In Firefox the screenshots and snapshots of a trace take a quarter of a test's time. */
const lightTrace = { mode: 'retain-on-failure' as const, screenshots: false, snapshots: false };

const inChromium = { testIgnore: [NEEDS_SERVER], use: { browserName: 'chromium' as const, launchOptions } };
const inFirefox = {
  testIgnore: [...CHROMIUM_ONLY, NEEDS_SERVER],
  use: { browserName: 'firefox' as const, launchOptions: firefoxOptions, trace: lightTrace },
};

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
    { name: 'chromium', grepInvert: /@long/, ...inChromium, testIgnore: [...inChromium.testIgnore, NEEDS_LOG] },
    { name: 'chromium-replication', testMatch: NEEDS_LOG, ...inChromium },
    { name: 'firefox', grepInvert: /@long/, ...inFirefox, testIgnore: [...inFirefox.testIgnore, ...API_ALONE] },
    // With the tests that take minutes; not run in CI.
    { name: 'chromium-all', ...inChromium },
    { name: 'firefox-all', ...inFirefox },
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
