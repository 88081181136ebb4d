// Fetching and compiling the module: once, also when requested twice at once; again after a
// failure; whatever type the server declares.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { fetchModule, loadOnce } from '../src/engine/wasm.ts';
import { code } from './support/kit.ts';

const bytes = readFileSync(new URL('../dist/mangrove_bg.wasm', import.meta.url));

async function withServer(answer: (response: ServerResponse) => void, use: (url: URL) => Promise<void>): Promise<void> {
  const server = createServer((_request, response) => answer(response));
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  try {
    await use(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mangrove_bg.wasm`));
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => {
      server.close(resolve);
    });
  }
}

for (const type of ['application/wasm', 'application/wasm; charset=x', 'text/html', '']) {
  test(`a module of type "${type}" is compiled`, () =>
    withServer(
      (response) => {
        response.writeHead(200, type === '' ? {} : { 'content-type': type }).end(bytes);
      },
      async (url) => {
        assert.ok((await fetchModule(url)) instanceof WebAssembly.Module);
      },
    ));
}

test('a missing or damaged module causes a KvError', async () => {
  await withServer(
    (response) => {
      response.writeHead(404, { 'content-type': 'text/html' }).end('<html>');
    },
    (url) => assert.rejects(fetchModule(url), code('KV_IO')),
  );
  await withServer(
    (response) => {
      response.writeHead(200, { 'content-type': 'application/wasm' }).end('<html>');
    },
    (url) => assert.rejects(fetchModule(url), code('KV_UNSUPPORTED')),
  );
});

test('an unreachable server causes a KvError', async () => {
  let gone = new URL('http://127.0.0.1/');
  await withServer(
    () => undefined,
    async (url) => {
      gone = url;
    },
  );
  await assert.rejects(fetchModule(gone), code('KV_IO'));
});

test('a module is loaded once, and again after a failure', async () => {
  let loads = 0;
  let fails = true;
  const load = loadOnce(async () => {
    loads++;
    if (fails) throw new Error('offline');
    return new WebAssembly.Module(bytes);
  });
  const both = await Promise.allSettled([load(), load()]);
  assert.deepEqual(
    both.map((result) => result.status),
    ['rejected', 'rejected'],
  );
  assert.equal(loads, 1);
  fails = false;
  const [a, b] = await Promise.all([load(), load()]);
  assert.equal(a, b);
  assert.equal(await load(), a);
  assert.equal(loads, 2);
});
