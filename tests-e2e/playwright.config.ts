import { defineConfig } from '@playwright/test';
import { BASE_URL, launchOptions } from './browser.ts';

export default defineConfig({
  testDir: '.',
  fullyParallel: true,
  forbidOnly: true,
  retries: 0,
  workers: 2,
  reporter: 'list',
  timeout: 60_000,
  use: { baseURL: BASE_URL, launchOptions, trace: 'retain-on-failure' },
  projects: [{ name: 'chromium', use: { browserName: 'chromium' } }],
  webServer: {
    // The built page, not the development server: it proves that a bundler finds the worker and the module.
    command: `npm run build --workspace demo-web && npm run preview --workspace demo-web -- --port ${new URL(BASE_URL).port} --strictPort`,
    cwd: new URL('..', import.meta.url).pathname,
    url: BASE_URL,
    reuseExistingServer: false,
    timeout: 120_000,
  },
});
