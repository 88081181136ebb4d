// Content security policies: what works under each, and what a page can do about the rest.
import { expect, test } from '@playwright/test';
import type { Page } from '@playwright/test';
import { STRICT_CSP, serve } from '../../http.ts';

const SERVED = new URL('../build/served', import.meta.url).pathname;
const TRUSTED_TYPES = `${STRICT_CSP}; require-trusted-types-for 'script'; trusted-types app`;

async function withPolicy(page: Page, policy: string, use: () => Promise<void>): Promise<void> {
  await using server = await serve(SERVED, { 'content-security-policy': policy });
  await page.goto(server.url);
  await use();
}

/** Opens and closes a database; returns its persistence, or the error's code and message. */
function tryToOpen(page: Page, options: { worker?: string; wasm?: string } = {}): Promise<string> {
  return page.evaluate(async (options) => {
    const { open } = window.kv;
    try {
      const db = await open('policy', options);
      await db.set('k', 1);
      await db.close();
      return db.persistence;
    } catch (error) {
      const { code, message } = error as { code: string; message: string };
      return `${code}: ${message}`;
    }
  }, options);
}

test('the package and its inlined module work under a strict policy, without blob: URLs', ({ page }) =>
  withPolicy(page, STRICT_CSP, async () => {
    expect(await tryToOpen(page)).toBe('opfs');
    const inline = await page.evaluate(async () => {
      const { open } = window.kvInline;
      const db = await open('inline');
      await db.close();
      return db.persistence;
    });
    expect(inline).toBe('opfs');
    const loaded = await page.evaluate(() => performance.getEntriesByType('resource').map((entry) => entry.name));
    expect(loaded.filter((url) => !url.startsWith('http'))).toEqual([]);
  }));

test("without 'wasm-unsafe-eval' open rejects with KV_UNSUPPORTED", ({ page }) =>
  withPolicy(page, STRICT_CSP.replace(" 'wasm-unsafe-eval'", ''), async () => {
    expect(await tryToOpen(page)).toMatch(/^KV_UNSUPPORTED: .*compiled/);
  }));

test('without workers open rejects with KV_UNSUPPORTED', ({ page }) =>
  withPolicy(page, STRICT_CSP.replace("worker-src 'self'", "worker-src 'none'"), async () => {
    expect(await tryToOpen(page)).toMatch(/^KV_UNSUPPORTED: .*no-worker/);
  }));

test('under Trusted Types the page can start the worker itself', ({ page }) =>
  withPolicy(page, TRUSTED_TYPES, async () => {
    expect(await tryToOpen(page)).toMatch(/^KV_UNSUPPORTED: .*no-worker/);
    const persistence = await page.evaluate(async () => {
      interface Factory {
        createPolicy(
          name: string,
          rules: { createScriptURL(url: string): string },
        ): { createScriptURL(url: string): string };
      }
      const { trustedTypes } = globalThis as unknown as { trustedTypes: Factory };
      const policy = trustedTypes.createPolicy('app', { createScriptURL: (url) => url });
      const { open } = window.kv;
      const db = await open('trusted', {
        worker: () => new Worker(policy.createScriptURL('/kv/worker.js'), { type: 'module' }),
      });
      await db.close();
      return db.persistence;
    });
    expect(persistence).toBe('opfs');
  }));
