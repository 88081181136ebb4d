// Restoring a backup and recovering a damaged database in a real browser, and what is left when the
// browser is killed during a restore.
import { HARNESS_URL } from '../browser.ts';
import { isOriginKept } from '../origin.ts';
import { expect, test } from '../persistent.ts';
import { killBrowser } from '../processes.ts';

for (const storage of ['opfs', 'indexeddb'] as const) {
  test(`a backup is restored into ${storage}`, async ({ profile }) => {
    const page = await (await profile.launch()).newPage();
    const requests: string[] = [];
    page.on('request', (request) => requests.push(new URL(request.url()).pathname));
    await page.goto(HARNESS_URL);
    const result = await page.evaluate(async (storage) => {
      const { open, restore, list, destroy } = window.mangrove;
      const place = storage === 'indexeddb' ? ({ storage } as const) : {};
      const codeOf = (work: Promise<unknown>): Promise<string> =>
        work.then(
          () => 'none',
          (error: { code?: string }) => error.code ?? String(error),
        );
      const stateOf = async (name: string): Promise<unknown[]> => {
        const db = await open(name, { create: false, storage });
        const state = [
          await db.size,
          (await db.verify()).problems.length,
          ((await db.get(7)) as { text: string }).text,
        ];
        await db.close();
        return state;
      };
      const db = await open('source', { storage });
      await db.setMany(Array.from({ length: 5000 }, (_, key) => [key, { key, text: `text ${key}` }] as const));
      const blob = await new Response(db.backup()).blob();
      await db.set(7, { text: 'changed' });
      const told: [number, number][] = [];
      const codes = {
        open: await codeOf(restore('source', blob, { ...place, overwrite: true })),
        exists: '',
        damaged: '',
        none: await codeOf(restore('fresh', new Blob(['no backup']), place)),
        endless: '',
      };
      const afterFailure = (await list(place)).map(({ name }) => name);
      await restore('blob', blob, { ...place, onProgress: (...progress) => told.push(progress) });
      await restore('stream', db.backup(), place);
      await db.close();
      codes.exists = await codeOf(restore('source', blob, place));
      const bytes = new Uint8Array(await blob.arrayBuffer());
      const at = bytes.length >> 1;
      bytes[at] = (bytes[at] as number) ^ 1;
      codes.damaged = await codeOf(restore('source', new Blob([bytes]), { ...place, overwrite: true }));
      const controller = new AbortController();
      const endless = new ReadableStream<Uint8Array>({
        pull: (stream) => {
          stream.enqueue(bytes.slice(0, 100));
          controller.abort(new Error('enough'));
        },
      });
      codes.endless = await codeOf(
        restore('source', endless, { ...place, overwrite: true, signal: controller.signal }),
      );
      const kept = await stateOf('source');
      await restore('source', blob, { ...place, overwrite: true });
      const states = [kept, await stateOf('source'), await stateOf('blob'), await stateOf('stream')];
      const files: string[] = [];
      if (storage === 'opfs') {
        const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('mangrove');
        const directory = await root.getDirectoryHandle('blob');
        for await (const name of (directory as unknown as { keys(): AsyncIterable<string> }).keys()) files.push(name);
      }
      for (const name of ['source', 'blob', 'stream']) await destroy(name, place);
      return { codes, states, told: told.at(-1), afterFailure, files: files.sort() };
    }, storage);
    expect(result).toEqual({
      codes: {
        open: 'KV_LOCKED',
        exists: 'KV_EXISTS',
        damaged: 'KV_CORRUPT',
        none: 'KV_CORRUPT',
        endless: 'Error: enough',
      },
      states: [
        [5000, 0, 'changed'],
        [5000, 0, 'text 7'],
        [5000, 0, 'text 7'],
        [5000, 0, 'changed'],
      ],
      told: [5000, 5000],
      afterFailure: ['source'],
      files: storage === 'opfs' ? ['data', 'log'] : [],
    });
    expect(requests.filter((path) => /mangrove_maintenance_bg.*\.wasm$/.test(path))).toHaveLength(1);
  });
}

test('a page that never restores loads no code for it', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  const requests: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  await page.goto(HARNESS_URL);
  await page.evaluate(async () => {
    const db = await window.mangrove.open('plain');
    await db.set(1, 1);
    await db.close();
  });
  expect(requests.filter((url) => url.includes('maintenance'))).toEqual([]);
});

test('a damaged database is recovered', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const result = await page.evaluate(async () => {
    const { open, recover } = window.mangrove;
    const codeOf = (work: Promise<unknown>): Promise<string> =>
      work.then(
        () => 'none',
        (error: { code?: string }) => error.code ?? String(error),
      );
    const db = await open('damaged', { compression: 'none' });
    await db.setMany(Array.from({ length: 3000 }, (_, key) => [key, `text ${key} `.repeat(30)] as const));
    const locked = await codeOf(recover('damaged', 'whole'));
    await db.close();
    const whole = await recover('damaged', 'whole');
    const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('mangrove');
    const file = await (await root.getDirectoryHandle('damaged')).getFileHandle('data');
    const writable = await file.createWritable({ keepExistingData: true });
    await writable.write({ type: 'write', position: 0, data: new Uint8Array(8192).fill(7) });
    await writable.write({ type: 'write', position: 200_000, data: new Uint8Array(5000).fill(7) });
    await writable.close();
    const before = await (await file.getFile()).text();
    const refused = await codeOf(open('damaged', { create: false }));
    const told: number[] = [];
    const report = await recover('damaged', 'recovered', { onProgress: (done) => told.push(done) });
    const exists = await codeOf(recover('damaged', 'recovered'));
    const missing = await codeOf(recover('nothing', 'other'));
    const again = await open('recovered', { create: false });
    let isRight = true;
    for await (const [key, value] of again) isRight &&= value === `text ${key as number} `.repeat(30);
    const found = { size: await again.size, ok: (await again.verify()).ok, isRight };
    await again.close();
    return {
      locked,
      whole,
      refused,
      exists,
      missing,
      report,
      told: told.at(-1),
      found,
      isUnchanged: before === (await (await file.getFile()).text()),
    };
  });
  const { report } = result;
  expect(result).toMatchObject({
    locked: 'KV_LOCKED',
    whole: { entries: 3000, lost: 0, problems: [] },
    exists: 'KV_EXISTS',
    missing: 'KV_NOT_FOUND',
    isUnchanged: true,
    told: report.entries,
    found: { size: report.entries, ok: true, isRight: true },
  });
  expect(result.refused).not.toBe('none');
  expect(report.entries).toBeGreaterThan(1000);
  expect(report.entries).toBeLessThan(3000);
  expect(report.problems.length).toBeGreaterThan(0);
});

// Firefox removes the old file, its content before its name, and only then renames the new one.
for (const left of ['nothing', 'an empty file', 'a file'] as const) {
  test(`a restore cut off with ${left} in place of the old file leaves a whole database`, async ({ profile }) => {
    const page = await (await profile.launch()).newPage();
    await page.goto(HARNESS_URL);
    const result = await page.evaluate(async (left) => {
      const { open, restore, recover, list, destroy } = window.mangrove;
      const codeOf = (work: Promise<unknown>): Promise<string> =>
        work.then(
          () => 'none',
          (error: { code?: string }) => error.code ?? String(error),
        );
      for (const [name, value] of [
        ['old', 'old'],
        ['new', 'new'],
      ] as const) {
        const db = await open(name);
        await db.set('key', value);
        if (name === 'new')
          await db
            .backup()
            .pipeTo(
              await (await navigator.storage.getDirectory())
                .getFileHandle('backup', { create: true })
                .then((file) => file.createWritable()),
            );
        await db.close();
      }
      const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('mangrove');
      const copy = async (from: string, name: string, file: string): Promise<void> => {
        const source = await (await (await root.getDirectoryHandle(from)).getFileHandle('data')).getFile();
        const target = await (await root.getDirectoryHandle(name, { create: true })).getFileHandle(file, {
          create: true,
        });
        await source.stream().pipeTo(await target.createWritable());
      };
      const make = async (name: string): Promise<void> => {
        await copy('new', name, 'data.restored');
        const directory = await root.getDirectoryHandle(name);
        if (left === 'an empty file') await directory.getFileHandle('data', { create: true });
        if (left === 'a file') await copy('old', name, 'data');
      };
      const valueIn = async (name: string): Promise<unknown> => {
        const db = await open(name, { create: false });
        const value = await db.get('key');
        await db.close();
        return value;
      };
      const filesOf = async (name: string): Promise<string[]> => {
        const files: string[] = [];
        const directory = await root.getDirectoryHandle(name);
        for await (const file of (directory as unknown as { keys(): AsyncIterable<string> }).keys()) files.push(file);
        return files.sort();
      };
      const backup = await (await (await navigator.storage.getDirectory()).getFileHandle('backup')).getFile();
      for (const name of ['opened', 'restored', 'source', 'destroyed', 'twice']) await make(name);
      const listed = (await list()).map(({ name }) => name).sort();
      const sizes = new Set((await list()).map(({ size }) => size > 0));
      const opened = await valueIn('opened');
      const [first, second] = await Promise.all([open('twice'), open('twice')]);
      const twice = [await first.get('key'), await second.get('key')];
      await Promise.all([first.close(), second.close()]);
      const exists = await codeOf(restore('restored', backup));
      const kept = await valueIn('restored');
      const damaged = await codeOf(restore('restored', new Blob(['none']), { overwrite: true }));
      const keptToo = await valueIn('restored');
      await restore('restored', backup, { overwrite: true });
      await recover('source', 'recovered');
      const destroyed = await destroy('destroyed');
      const gone = await codeOf(open('destroyed', { create: false }));
      return {
        listed,
        sizes: [...sizes],
        opened,
        twice,
        exists,
        kept,
        damaged,
        keptToo,
        replaced: await valueIn('restored'),
        recovered: await valueIn('recovered'),
        source: await valueIn('source'),
        destroyed,
        gone,
        files: await filesOf('restored'),
      };
    }, left);
    const value = left === 'a file' ? 'old' : 'new';
    expect(result).toEqual({
      listed: ['destroyed', 'new', 'old', 'opened', 'restored', 'source', 'twice'],
      sizes: [true],
      opened: value,
      twice: [value, value],
      exists: 'KV_EXISTS',
      kept: value,
      damaged: 'KV_CORRUPT',
      keptToo: value,
      replaced: 'new',
      recovered: value,
      source: value,
      destroyed: true,
      gone: 'KV_NOT_FOUND',
      files: ['data', 'log'],
    });
  });
}

for (const storage of ['opfs', 'indexeddb'] as const) {
  test(`killing the browser during a restore into ${storage} leaves the old or the new database`, async ({
    profile,
  }) => {
    test.setTimeout(120_000);
    const seen: number[] = [];
    for (let round = 0; round < 4; round++) {
      const context = await profile.launch();
      const page = await context.newPage();
      let steps = 0;
      await page.exposeFunction('tell', () => {
        steps++;
      });
      await page.goto(HARNESS_URL);
      const isFirst = storage === 'indexeddb' ? !(await isOriginKept(page)) : round === 0;
      // Whatever was left opens, and is one of the two databases.
      const found = await page.evaluate(
        async ({ storage, isFirst }) => {
          const { open } = window.mangrove;
          const db = await open('killed', { storage });
          if (isFirst) await db.setMany(Array.from({ length: 100 }, (_, key) => [key, 'old'] as const));
          const [first, size, { problems }] = [await db.get(1), await db.size, await db.verify()];
          await db.close();
          return { size, problems, values: size === 0 ? 'none' : first === 'old' ? 'old' : typeof first };
        },
        { storage, isFirst },
      );
      expect([
        { size: 100, problems: [], values: 'old' },
        { size: 20_000, problems: [], values: 'object' },
      ]).toContainEqual(found);
      seen.push(found.size);
      void page
        .evaluate(async (storage) => {
          const { open, restore } = window.mangrove;
          const { tell } = window as unknown as { tell(): Promise<void> };
          const source = await open('new', { storage: 'memory' });
          await source.setMany(Array.from({ length: 20_000 }, (_, key) => [key, { text: `text ${key}` }] as const));
          const blob = await new Response(source.backup()).blob();
          const place = storage === 'indexeddb' ? ({ storage } as const) : {};
          for (;;) await restore('killed', blob, { ...place, overwrite: true, onProgress: () => void tell() });
        }, storage)
        .catch(() => undefined);
      await expect.poll(() => steps, { timeout: 30_000 }).toBeGreaterThan(round * 2);
      expect(killBrowser(profile.directory)).toBeGreaterThan(1);
      await context.close().catch(() => undefined);
    }
    expect(seen[0]).toBe(100);
  });
}
