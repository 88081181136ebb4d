import { defineConfig } from '@playwright/test';
import { launchOptions } from '../browser.ts';

export default defineConfig({
  testDir: 'specs',
  outputDir: 'test-results',
  fullyParallel: true,
  forbidOnly: true,
  workers: 2,
  reporter: 'list',
  // Next alone takes a minute on a busy machine.
  timeout: 240_000,
  use: { launchOptions },
  projects: [{ name: 'chromium', use: { browserName: 'chromium' } }],
  globalSetup: './setup.mjs',
});
