import { defineConfig } from '@playwright/test';
import { launchOptions } from '../browser.ts';

export default defineConfig({
  testDir: 'specs',
  outputDir: 'test-results',
  fullyParallel: true,
  forbidOnly: true,
  workers: 2,
  reporter: 'list',
  timeout: 120_000,
  use: { launchOptions },
  projects: [{ name: 'chromium', use: { browserName: 'chromium' } }],
  globalSetup: './setup.mjs',
});
