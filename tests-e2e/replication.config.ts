import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from '@playwright/test';
import { launchOptions } from './browser.ts';

const [PORT, WEBSOCKET] = [4174, 8423];

/** The demo's page "Replication", served by what `npm run start:replication` starts after the build. */
export default defineConfig({
  testDir: 'specs',
  testMatch: 'demo-replication.spec.ts',
  forbidOnly: true,
  workers: 1,
  reporter: 'list',
  timeout: 120_000,
  use: { baseURL: `http://localhost:${PORT}`, trace: 'retain-on-failure' },
  metadata: { server: `ws://127.0.0.1:${WEBSOCKET}` },
  projects: [{ name: 'chromium', use: { browserName: 'chromium', launchOptions } }],
  webServer: {
    command: `node --experimental-websocket demo-web/tools/start-replication.mjs --port ${PORT} --websocket ${WEBSOCKET} --store ${(process.env['MANGROVE_SYNC_STORE'] ??= mkdtempSync(join(tmpdir(), 'mangrove-replication-demo-')))}`,
    cwd: new URL('..', import.meta.url).pathname,
    url: `http://localhost:${PORT}`,
    reuseExistingServer: false,
    timeout: 300_000,
    gracefulShutdown: { signal: 'SIGINT', timeout: 20_000 },
  },
});
