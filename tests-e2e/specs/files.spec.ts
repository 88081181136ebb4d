// The files that a feature fetches, as bindings-js/kv/README.md lists them: it works with these and no
// others, and fails without any one of them.
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@playwright/test';
import type { Page } from '@playwright/test';
import { build } from 'esbuild';
import { FEATURES, isAsset } from '../../docs/reference/files.mjs';
import { TYPES, serve } from '../http.ts';

const PACKAGE = fileURLToPath(new URL('../../bindings-js/kv/', import.meta.url));
const DIST = join(PACKAGE, 'dist');

const IMPORTS = {
  'mangrove-kv': '/index.js',
  ...Object.fromEntries(
    ['inline', 'live', 'blob', 'migrations', 'passkey'].map((name) => [`mangrove-kv/${name}`, `/${name}.js`]),
  ),
};
const PAGE = `<!doctype html><title>files</title><link rel="icon" href="data:,"><script type="importmap">${JSON.stringify({ imports: IMPORTS })}</script>`;

interface Files extends AsyncDisposable {
  readonly url: string;
  /** Files that a page may have; all others are missing. */
  served: readonly string[];
  readonly requested: Set<string>;
}

async function serveFiles(): Promise<Files> {
  const server = createServer(async (request, response) => {
    const name = new URL(request.url ?? '/', 'http://localhost').pathname.slice(1);
    if (name === '') return response.writeHead(200, { 'content-type': TYPES['.html'] }).end(PAGE);
    files.requested.add(name);
    if (!files.served.includes(name)) return response.writeHead(404).end();
    return response.writeHead(200, { 'content-type': TYPES[extname(name)] }).end(await readFile(join(DIST, name)));
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const files: Files = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    served: [],
    requested: new Set(),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
  return files;
}

/** By feature, a program that runs in a page. Each begins with an empty origin. */
const PROGRAMS: Record<string, () => Promise<void>> = {
  open: async () => {
    const { open } = await import('mangrove-kv');
    for (const storage of ['opfs', 'memory'] as const) {
      const db = await open('a', { storage, compression: 'lz4', feed: true });
      const follower = db.watch()[Symbol.asyncIterator]();
      const followed = follower.next();
      await db.setMany(Array.from({ length: 3000 }, (_, at) => [at, { text: 'compressible '.repeat(10) }]));
      await followed;
      await follower.return?.();
      await db.transaction(async (tx) => tx.set('b', (await tx.get(1)) as object));
      await db.collection('other').set('expiring', 1, { expireIn: 60_000 });
      await db.update('visits', (old = 0) => (old as number) + 1);
      if ((await db.snapshot().get(2999)) === undefined || (await db.count()) !== 3002)
        throw new Error('a read is wrong');
      await db.renameCollection('other', 'another');
      await db.clear();
      await db.close();
    }
  },
  indexeddb: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a', { storage: 'indexeddb' });
    await db.set(1, 1);
    await db.close();
  },
  local: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a', { storage: 'memory', thread: 'same' });
    await db.set(1, 1);
    await db.close();
  },
  indexeddbLocal: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a', { storage: 'indexeddb', thread: 'same' });
    await db.set(1, 1);
    await db.close();
  },
  indexes: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a');
    await db.collection('c', { indexes: { byValue: { key: (value) => value as number } } }).set(1, 1);
    await db.close();
  },
  stats: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a');
    await Promise.all([db.stats(), db.verify(), new Response(db.backup()).arrayBuffer(), db.refresh()]);
    await db.close();
  },
  maintenance: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a');
    await db.collection('c').set(1, 1);
    await Promise.all([db.compact(), db.layout()]);
    await db.collection('c', { indexes: { byValue: { key: (value) => value as number } } }).buildIndexes();
    await db.close();
  },
  valueStream: async () => {
    const { open, valueCodecs } = await import('mangrove-kv');
    const db = await open('a', { value: valueCodecs.bytes });
    await db.setStream('key', new Blob(['value']).stream());
    await new Response(await db.getStream('key')).arrayBuffer();
    await db.getRange('key', -2);
    await db.close();
  },
  blob: async () => {
    const { open } = await import('mangrove-kv');
    const { blob } = await import('mangrove-kv/blob');
    const db = await open('a', { value: blob() });
    await db.set('key', new Blob(['value']));
    await db.get('key');
    await db.close();
  },
  list: async () => {
    const { destroy, list } = await import('mangrove-kv');
    await list();
    await destroy('a');
  },
  indexeddbList: async () => {
    const { destroy, list } = await import('mangrove-kv');
    await list({ storage: 'indexeddb' });
    await destroy('a', { storage: 'indexeddb' });
  },
  recover: async () => {
    const { open, recover } = await import('mangrove-kv');
    const db = await open('a');
    await db.set(1, 1);
    await db.close();
    await recover('a', 'b');
  },
  versions: async () => {
    const { open } = await import('mangrove-kv');
    await (await open('a', { version: 1, upgrade: async () => undefined })).close();
  },
  bucket: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a', { bucket: 'drafts' });
    await db.set(1, 1);
    await db.close();
  },
  migrations: async () => {
    const { open } = await import('mangrove-kv');
    const { migrations, run } = await import('mangrove-kv/migrations');
    await (await open('a', { version: 1, upgrade: migrations({ 1: [run((tx) => tx.set(1, 1))] }) })).close();
  },
  encryption: async () => {
    const { open } = await import('mangrove-kv');
    for (const encryption of [{ key: new Uint8Array(32).fill(1) }, { passphrase: 'correct horse battery staple' }]) {
      const db = await open(Object.keys(encryption)[0] as string, { encryption });
      await db.set(1, 1);
      await db.close();
    }
  },
  encryptedIndexes: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a', { encryption: { key: new Uint8Array(32).fill(1) } });
    await db.collection('c', { indexes: { byValue: { key: (value) => value as number } } }).set(1, 1);
    await db.close();
  },
  changeKey: async () => {
    const { open } = await import('mangrove-kv');
    const db = await open('a', { encryption: { key: new Uint8Array(32).fill(1) } });
    await db.changeKey({ key: new Uint8Array(32).fill(2) });
    await db.reencrypt();
    await db.close();
  },
  encryptedRecover: async () => {
    const { open, recover } = await import('mangrove-kv');
    const encryption = { key: new Uint8Array(32).fill(1) };
    const db = await open('a', { encryption });
    await db.set(1, 1);
    await db.close();
    await recover('a', 'b', { encryption });
  },
  passkey: async () => {
    const { open } = await import('mangrove-kv');
    const { getPasskey } = await import('mangrove-kv/passkey');
    await (await open('a')).close();
    const code = await getPasskey({ ids: [5 as never] }).catch((error: { code: string }) => error.code);
    if (code !== 'KV_INVALID_ARGUMENT') throw new Error(String(code));
  },
  live: async () => {
    const { open } = await import('mangrove-kv');
    const { liveQuery } = await import('mangrove-kv/live');
    const db = await open('a');
    const query = liveQuery(db);
    await new Promise<void>((resolve, reject) => {
      query.subscribe(() => {
        if (query.getSnapshot().entries.length > 0) resolve();
      });
      db.set(1, 1).catch(reject);
    });
    await db.close();
  },
  inline: async () => {
    const { open } = await import('mangrove-kv/inline');
    const db = await open('a');
    await db.collection('c', { indexes: { byValue: { key: (value) => value as number } } }).set(1, 1);
    await db.stats();
    await db.close();
  },
  inlineEncryption: async () => {
    const { open } = await import('mangrove-kv/inline');
    const db = await open('a', { encryption: { key: new Uint8Array(32).fill(1) } });
    await db.collection('c', { indexes: { byValue: { key: (value) => value as number } } }).set(1, 1);
    await db.close();
  },
  inlineRecover: async () => {
    const { open, recover } = await import('mangrove-kv/inline');
    const db = await open('a');
    await db.set(1, 1);
    await db.close();
    await recover('a', 'b');
  },
  inlineEncryptedRecover: async () => {
    const { open, recover } = await import('mangrove-kv/inline');
    const encryption = { key: new Uint8Array(32).fill(1) };
    const db = await open('a', { encryption });
    await db.set(1, 1);
    await db.close();
    await recover('a', 'b', { encryption });
  },
};

/** Runs a program in an origin without data; returns its error's message, if it fails. */
async function run(page: Page, url: string, program: () => Promise<void>): Promise<string | undefined> {
  await page.goto('about:blank');
  const session = await page.context().newCDPSession(page);
  await session.send('Storage.clearDataForOrigin', { origin: new URL(url).origin, storageTypes: 'all' });
  await session.detach();
  await page.goto(url);
  return page.evaluate(program).then(
    () => undefined,
    ({ message }: Error) => message,
  );
}

test('each feature of the table has a program', () => {
  expect(Object.keys(PROGRAMS)).toEqual(Object.keys(FEATURES));
});

for (const [id, { base, files, instead }] of Object.entries(FEATURES)) {
  test(`files: ${id}`, async ({ page }) => {
    await using server = await serveFiles();
    const program = PROGRAMS[id] as () => Promise<void>;
    const all = [...base.filter((file) => file !== instead), ...files];
    server.served = all;
    expect(await run(page, server.url, program)).toBeUndefined();
    expect([...server.requested].sort()).toEqual(all.sort());
    for (const missing of files) {
      server.served = all.filter((file) => file !== missing);
      expect(await run(page, server.url, program), `without ${missing}`).toBeDefined();
    }
  });
}

test('module and worker are fetched before the browser says whether it has a file system', async ({ page }) => {
  await using server = await serveFiles();
  server.served = FEATURES['open']!.files;
  await page.goto(server.url);
  await page.evaluate(async () => {
    navigator.storage.getDirectory = () => new Promise(() => undefined);
    const { open } = await import('mangrove-kv');
    open('early').catch(() => undefined);
  });
  await expect.poll(() => [...server.requested].sort()).toEqual(['index.js', 'mangrove_core_bg.wasm', 'worker.js']);
});

for (const splitting of [false, true]) {
  test(`esbuild ${splitting ? 'with' : 'without'} splitting: what the table names is all there is to copy`, async ({
    page,
  }) => {
    const directory = await mkdtemp(join(tmpdir(), 'mangrove-esbuild-'));
    try {
      await build({
        stdin: { contents: "export * from 'mangrove-kv';", resolveDir: PACKAGE, sourcefile: 'main.js' },
        outdir: directory,
        entryNames: 'main',
        bundle: true,
        splitting,
        format: 'esm',
        logLevel: 'error',
      });
      const { open, indexes, encryption, encryptedIndexes, recover, encryptedRecover } = FEATURES;
      const used = [open, indexes, recover, encryption, encryptedIndexes, encryptedRecover].flatMap(
        (feature) => feature?.files ?? [],
      );
      for (const file of new Set(used.filter(isAsset))) await copyFile(join(DIST, file), join(directory, file));
      await writeFile(join(directory, 'index.html'), PAGE.replace('/index.js', '/main.js'));
      await using server = await serve(directory);
      const missing: string[] = [];
      page.on('response', (response) => response.status() === 404 && missing.push(response.url()));
      for (const id of ['open', 'indexes', 'list', 'recover', 'encryption', 'encryptedIndexes', 'encryptedRecover']) {
        expect(await run(page, server.url, PROGRAMS[id] as () => Promise<void>), id).toBeUndefined();
      }
      expect(missing).toEqual([]);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
}
