// The page chooses where the WebAssembly module and the worker come from.
import { expect, test } from '@playwright/test';
import { serve } from '../../http.ts';

const SERVED = new URL('../build/served', import.meta.url).pathname;

test('the module loads from every kind of source that a page can pass', async ({ page }) => {
  await using server = await serve(SERVED);
  const requests: string[] = [];
  page.on('request', (request) => requests.push(new URL(request.url()).pathname + new URL(request.url()).search));
  await page.goto(server.url);
  const values = await page.evaluate(async () => {
    const { open } = window.kv;
    const bytes = await (await fetch('/kv/mangrove_bg.wasm?bytes')).arrayBuffer();
    const response = await fetch('/kv/mangrove_bg.wasm?response');
    const sources = [
      'kv/mangrove_bg.wasm?text',
      new URL('/kv/mangrove_bg.wasm?url', location.href),
      response,
      response,
      bytes,
      new WebAssembly.Module(bytes),
    ];
    const got: unknown[] = [];
    for (const wasm of sources) {
      const db = await open('sources', { wasm });
      await db.set('n', (((await db.get('n')) as number | undefined) ?? 0) + 1);
      got.push(await db.get('n'));
      await db.close();
    }
    return got;
  });
  expect(values).toEqual([1, 2, 3, 4, 5, 6]);
  const modules = requests.filter((path) => path.includes('.wasm')).map((path) => path.split('?')[1]);
  expect(modules).toEqual(['bytes', 'response', 'text', 'url']);
});

test('a database uses the worker that the page names or starts, and ends it on close', async ({ page }) => {
  await using server = await serve(SERVED);
  await page.goto(server.url);
  const kinds = await page.evaluate(async () => {
    const { open } = window.kv;
    const start = (): Worker => new Worker('/kv/worker.js?function', { type: 'module' });
    const workers = ['/kv/worker.js?text', new URL('/kv/worker.js?url', location.href), start, start];
    const databases = await Promise.all(workers.map((worker, index) => open(`worker ${index}`, { worker })));
    Object.assign(globalThis, { databases });
    return databases.map((db) => db.persistence);
  });
  expect(kinds).toEqual(['opfs', 'opfs', 'opfs', 'opfs']);
  expect(
    page
      .workers()
      .map((worker) => worker.url().split('?')[1])
      .sort(),
  ).toEqual(['function', 'function', 'text', 'url']);
  await page.evaluate(async () => {
    const { databases } = globalThis as unknown as { databases: { close(): Promise<void> }[] };
    await Promise.all(databases.map((db) => db.close()));
  });
  await expect.poll(() => page.workers().length).toBe(0);
});

test('a broken worker or module gives a typed error and leaves no worker behind', async ({ page }) => {
  await using server = await serve(SERVED);
  await page.goto(server.url);
  const codes = await page.evaluate(async () => {
    const { open } = window.kv;
    const code = async (options: object): Promise<string> => {
      try {
        await open('errors', options);
        return 'none';
      } catch (error) {
        return (error as { code?: string }).code ?? String(error);
      }
    };
    return {
      missingWorker: await code({ worker: '/nowhere.js' }),
      throwing: await code({
        worker: () => {
          throw new Error('no');
        },
      }),
      nothing: await code({ worker: () => undefined }),
      missingModule: await code({ wasm: '/nowhere.wasm' }),
      damaged: await code({ wasm: new Uint8Array(8) }),
      other: await code({ wasm: 1 }),
    };
  });
  expect(codes).toEqual({
    missingWorker: 'KV_UNSUPPORTED',
    throwing: 'KV_UNSUPPORTED',
    nothing: 'KV_INVALID_ARGUMENT',
    missingModule: 'KV_IO',
    damaged: 'KV_UNSUPPORTED',
    other: 'KV_INVALID_ARGUMENT',
  });
  await expect.poll(() => page.workers().length).toBe(0);
});
