// The source files whose code a `get` and a `set` run in a page and its worker, as
// docs/ARCHITECTURE.md lists them.
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@playwright/test';
import type { CDPSession, Page } from '@playwright/test';
import { build } from 'esbuild';
import { serve } from '../http.ts';

const PACKAGE = fileURLToPath(new URL('../../bindings-js/kv/', import.meta.url));
const DOCUMENT = new URL('../../docs/ARCHITECTURE.md', import.meta.url);

/** Awaited one by one, so that each is a message of its own. */
const CALLS = 200;

interface Coverage {
  readonly result: readonly {
    readonly url: string;
    readonly functions: readonly {
      readonly functionName: string;
      readonly ranges: readonly { readonly startOffset: number; readonly count: number }[];
    }[];
  }[];
}

/** Bundles the package as it is built, but leaves a comment with its path before each file. */
async function bundle(directory: string): Promise<void> {
  await build({
    entryPoints: ['index', 'worker'].map((name) => join(PACKAGE, `src/entries/${name}.ts`)),
    outdir: directory,
    absWorkingDir: PACKAGE,
    bundle: true,
    format: 'esm',
    target: 'es2022',
    platform: 'browser',
    plugins: [
      {
        name: 'rare-stays-apart',
        setup: ({ onResolve }) =>
          onResolve({ filter: /^\.\// }, ({ path, kind }) =>
            kind === 'dynamic-import' ? { path, external: true } : undefined,
          ),
      },
    ],
  });
  for (const file of ['mangrove_core_bg.wasm', 'mangrove_lazy_bg.wasm'])
    await copyFile(join(PACKAGE, 'dist', file), join(directory, file));
  await writeFile(join(directory, 'index.html'), '<!doctype html><title>path</title>');
}

/** The files of `src` with functions that ran, by the comments in the bundles. */
async function filesOf({ result }: Coverage, directory: string, found: Map<string, Set<string>>): Promise<void> {
  for (const { url, functions } of result) {
    if (!/\/(?:index|worker)\.js$/.test(url)) continue;
    const text = await readFile(join(directory, new URL(url).pathname.slice(1)), 'utf8');
    const places = [...text.matchAll(/^\/\/ (\S+)$/gm)].map(({ index, 1: path = '' }) => ({ index, path }));
    for (const {
      functionName,
      ranges: [whole],
    } of functions) {
      if (whole === undefined || whole.count < CALLS / 2) continue;
      const place = places.filter(({ index }) => index <= whole.startOffset).at(-1);
      if (!place?.path.startsWith('src/')) continue;
      const path = place.path.slice('src/'.length);
      const names = found.get(path) ?? new Set();
      found.set(path, names.add(functionName));
    }
  }
}

/** Sends commands to the page's worker, which Playwright has no session for. */
async function workerSession(page: CDPSession): Promise<(method: string, params?: object) => Promise<unknown>> {
  const waiting = new Map<number, (result: unknown) => void>();
  let id = 0;
  const attached = new Promise<string>((resolve) =>
    page.on('Target.attachedToTarget', ({ sessionId }) => resolve(sessionId)),
  );
  page.on('Target.receivedMessageFromTarget', ({ message }) => {
    const reply = JSON.parse(message) as { id?: number; result?: unknown };
    if (reply.id !== undefined) waiting.get(reply.id)?.(reply.result);
  });
  await page.send('Target.setAutoAttach', { autoAttach: true, waitForDebuggerOnStart: false, flatten: false } as never);
  const sessionId = await attached;
  return (method, params = {}) =>
    new Promise((resolve) => {
      waiting.set(++id, resolve);
      void page.send(
        'Target.sendMessageToTarget' as never,
        { sessionId, message: JSON.stringify({ id, method, params }) } as never,
      );
    });
}

interface Running {
  run(): Promise<void>;
}

/** The functions that ran at least every other time, by file. */
async function pathOf(verb: 'get' | 'set', page: Page, directory: string): Promise<Map<string, Set<string>>> {
  await page.evaluate(
    async ([name, count]) => {
      const { open } = (await import(/* @vite-ignore */ '/index.js' as string)) as typeof import('mangrove-kv');
      const db = await open(name);
      const entries = Array.from({ length: count }, (_, at) => [`key ${at}`, { name: `key ${at}`, at }] as const);
      await db.setMany(entries);
      const call = { get: (key: string) => db.get(key), set: (key: string, value: object) => db.set(key, value) }[name];
      const running: Running = {
        run: async () => {
          for (const [key, value] of entries) await call(key, value);
        },
      };
      Object.assign(globalThis, running);
      await running.run();
    },
    [verb, CALLS] as const,
  );

  const session = await page.context().newCDPSession(page);
  const worker = await workerSession(session);
  const how = { callCount: true, detailed: false };
  await session.send('Profiler.enable');
  await worker('Profiler.enable');
  await session.send('Profiler.startPreciseCoverage', how);
  await worker('Profiler.startPreciseCoverage', how);
  await page.evaluate(() => (globalThis as unknown as Running).run());

  const found = new Map<string, Set<string>>();
  await filesOf(await session.send('Profiler.takePreciseCoverage'), directory, found);
  await filesOf((await worker('Profiler.takePreciseCoverage')) as Coverage, directory, found);
  return found;
}

for (const verb of ['get', 'set'] as const) {
  test(`a ${verb} runs the files that docs/ARCHITECTURE.md lists`, async ({ page }) => {
    const directory = await mkdtemp(join(tmpdir(), 'mangrove-path-'));
    try {
      await bundle(directory);
      await using server = await serve(directory);
      await page.goto(server.url);
      const found = await pathOf(verb, page, directory);
      const text = await readFile(DOCUMENT, 'utf8');
      const section = text.split(`## The path of a \`${verb}\``)[1]?.split('\n## ')[0] ?? '';
      const listed = [...section.matchAll(/^\| `([\w/.-]+\.ts)` \|/gm)].map(([, path]) => path);
      const ran = [...found].map(([path, functions]) => `${path}: ${[...functions].join(', ')}`);
      expect([...found.keys()].sort(), `the functions that ran:\n${ran.join('\n')}`).toEqual(listed.sort());
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
}
