import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test as base } from '@playwright/test';
import type { BrowserContext, LaunchOptions } from '@playwright/test';
import { launchProfile } from './browser.ts';
import type { Engine } from './browser.ts';

export interface Profile {
  /** Starts the project's browser with this profile, which is on disk. */
  launch(options?: LaunchOptions): Promise<BrowserContext>;
  readonly directory: string;
}

/** Gives each test its own browser profile, which survives restarts of the browser. */
export const test = base.extend<{ profile: Profile }>({
  profile: async ({ baseURL, browserName }, use) => {
    const directory = await mkdtemp(join(tmpdir(), 'mangrove-profile-'));
    const contexts: BrowserContext[] = [];
    await use({
      directory,
      async launch(options = {}) {
        const context = await launchProfile(
          browserName as Engine,
          directory,
          baseURL === undefined ? options : { ...options, baseURL },
        );
        contexts.push(context);
        return context;
      },
    });
    await Promise.all(contexts.map((context) => context.close().catch(() => undefined)));
    // Helper processes of a killed browser may still write for a moment.
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  },
});

export { expect } from '@playwright/test';
