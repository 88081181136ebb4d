// Files that are larger than any message, in and out of a database in a browser, and uploads whose
// leader goes away.
import { createHash } from 'node:crypto';
import { createWriteStream, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import type { Page } from '@playwright/test';
import type { Collection } from 'mangrove-kv';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

const MIB = 1 << 20;

interface Kept {
  readonly db: Awaited<ReturnType<typeof window.mangrove.open>>;
  readonly files: Collection<string, Blob>;
}

/** Opens a database with a collection of Blobs, as `window.db` and `window.files`. */
async function openFiles(page: Page, storage: 'opfs' | 'indexeddb' | 'memory' = 'opfs'): Promise<void> {
  await page.goto(HARNESS_URL);
  await page.evaluate(async (storage) => {
    const { blob } = await window.loadBlob();
    const db = await window.mangrove.open('files', { storage });
    Object.assign(window, { db, files: db.collection<string, Blob>('files', { value: blob() }) });
  }, storage);
}

/** Writes a file of random bytes; returns its path and digest. */
async function makeFile(
  directory: string,
  mebibytes: number,
): Promise<{ readonly path: string; readonly digest: string }> {
  const path = join(directory, 'film.bin');
  const [file, hash] = [createWriteStream(path), createHash('sha256')];
  const part = new Uint32Array(MIB / 4);
  for (let number = 0, state = 1; number < mebibytes; number++) {
    for (let at = 0; at < part.length; at++) part[at] = state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const bytes = Buffer.from(part.buffer.slice(0));
    hash.update(bytes);
    if (!file.write(bytes)) await once(file, 'drain');
  }
  file.end();
  await once(file, 'finish');
  return { path, digest: hash.digest('hex') };
}

/** What a verification finds, and the length of the file once everything is removed. */
const emptied = (page: Page): Promise<{ readonly problems: readonly unknown[]; readonly bytes: number }> =>
  page.evaluate(async () => {
    const { db, files } = window as unknown as Kept;
    const { problems } = await db.verify();
    await files.clear();
    const { after } = await db.compact();
    return { problems: [...problems, ...(await db.verify()).problems], bytes: after };
  });

for (const storage of ['opfs', 'memory'] as const) {
  test(`a file of 100 MiB from an input goes in and out: ${storage}`, async ({ profile }) => {
    test.setTimeout(240_000);
    const directory = mkdtempSync(join(tmpdir(), 'mangrove-blobs-'));
    try {
      const { path, digest } = await makeFile(directory, 100);
      const context = await profile.launch();
      const page = await context.newPage();
      await openFiles(page, storage);
      await page.evaluate(() => {
        document.body.innerHTML = '<input type="file">';
      });
      await page.setInputFiles('input', path);
      await page.evaluate(async () => {
        const { files } = window as unknown as Kept;
        await files.set('film', (document.querySelector('input') as HTMLInputElement).files![0]!);
      });
      if (storage === 'opfs') await openFiles(page);
      const found = await page.evaluate(async () => {
        const { files } = window as unknown as Kept;
        const file = (await files.get('film')) as File;
        const hex = (bytes: ArrayBuffer): string =>
          [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
        let streamed = 0;
        let largest = 0;
        const reader = (await files.getStream('film'))!.getReader();
        for (let read = await reader.read(); !read.done; read = await reader.read()) {
          streamed += read.value.length;
          largest = Math.max(largest, read.value.length);
        }
        const range = (await files.getRange('film', -70_000, -10))!;
        const same = new Uint8Array(await file.slice(-70_000, -10).arrayBuffer());
        return {
          name: file.name,
          size: file.size,
          digest: hex(await crypto.subtle.digest('SHA-256', await file.arrayBuffer())),
          streamed,
          largest,
          isSame: range.length === same.length && range.every((byte, at) => byte === same[at]),
        };
      });
      expect(found).toEqual({
        name: 'film.bin',
        size: 100 * MIB,
        digest,
        streamed: 100 * MIB,
        largest: MIB,
        isSame: true,
      });
      const { problems, bytes } = await emptied(page);
      expect(problems).toEqual([]);
      expect(bytes).toBeLessThan(2 * MIB);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });
}

/** Begins an upload in a page, of `kind`, that waits after 5 MiB until `window.go` is called. */
const beginUpload = (page: Page, kind: 'blob' | 'stream'): Promise<void> =>
  page.evaluate(async (kind) => {
    const { files } = window as unknown as Kept;
    const size = 12 << 20;
    const bytes = new Uint8Array(size);
    for (let at = 0; at < size; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
    let go = (): void => undefined;
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    const state = { bytes, go, parts: 0, outcome: undefined as Promise<unknown> | undefined };
    const wait = async (at: number): Promise<void> => {
      state.parts = Math.max(state.parts, at >> 20);
      if (at >= 5 << 20) await gate;
    };
    let upload;
    if (kind === 'blob') {
      const blob = new Blob([bytes]);
      const slice = blob.slice.bind(blob);
      blob.slice = (start = 0, end) => {
        const part = slice(start, end);
        part.arrayBuffer = async () => {
          await wait(start);
          return new Response(slice(start, end)).arrayBuffer();
        };
        return part;
      };
      upload = files.set('a', blob);
    } else {
      upload = files.setStream(
        'a',
        (async function* () {
          for (let at = 0; at < size; at += 1 << 20) {
            await wait(at);
            yield bytes.subarray(at, at + (1 << 20));
          }
        })(),
      );
    }
    state.outcome = upload.then(
      () => 'stored',
      ({ code, retryable }: { code: string; retryable: boolean }) => `${code} ${retryable}`,
    );
    Object.assign(window, { state });
    while (state.parts < 5) await new Promise((resolve) => setTimeout(resolve, 10));
  }, kind);

const endUpload = (page: Page): Promise<unknown> =>
  page.evaluate(() => {
    const { state } = window as unknown as { state: { go(): void; outcome: Promise<unknown> } };
    state.go();
    return state.outcome;
  });

const isThere = (page: Page): Promise<unknown> =>
  page.evaluate(async () => {
    const {
      files,
      state: { bytes },
    } = window as unknown as Kept & { readonly state: { readonly bytes: Uint8Array } };
    const found = await files.get('a');
    if (found === undefined) return 'none';
    const same = new Uint8Array(await found.arrayBuffer());
    return same.length === bytes.length && same.every((byte, at) => byte === bytes[at])
      ? 'whole'
      : `${same.length} bytes`;
  });

test('a Blob is stored even if its leader goes away midway, a stream fails, and nothing is leaked', async ({
  profile,
}) => {
  test.setTimeout(180_000);
  const context = await profile.launch();
  for (const [kind, outcome, left] of [
    ['stream', 'KV_SNAPSHOT_LOST true', 'none'],
    ['blob', 'stored', 'whole'],
  ] as const) {
    const [leader, tab] = [await context.newPage(), await context.newPage()];
    await openFiles(leader);
    await leader.evaluate(() => (window as unknown as Kept).db.set('who', 'leader'));
    await openFiles(tab);
    await beginUpload(tab, kind);
    await leader.close();
    expect(await endUpload(tab), kind).toBe(outcome);
    expect(await isThere(tab), kind).toBe(left);
    const { problems, bytes } = await emptied(tab);
    expect(problems).toEqual([]);
    expect(bytes, kind).toBeLessThan(2 * MIB);
    await tab.close();
  }
});

test('a tab that closes in the middle of its upload leaves nothing behind', async ({ profile }) => {
  test.setTimeout(120_000);
  const context = await profile.launch();
  const [leader, tab] = [await context.newPage(), await context.newPage()];
  await openFiles(leader);
  await leader.evaluate(() => (window as unknown as Kept).db.set('who', 'leader'));
  await openFiles(tab);
  await beginUpload(tab, 'stream');
  await tab.close();
  await expect.poll(async () => (await emptied(leader)).bytes, { timeout: 60_000 }).toBeLessThan(2 * MIB);
  expect((await emptied(leader)).problems).toEqual([]);
});
