// Encrypted databases: they open with their key only, wherever and however they are opened, and give away nothing.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { open, openSync, recover, restore, valueCodecs } from 'mangrove-kv';
import type { Encryption } from 'mangrove-kv';
import * as inline from 'mangrove-kv/inline';
import { MapStorage } from './support/map-storage.ts';
import { copyDirectory, rejects, withMemory, withPath } from './support/kit.ts';

const key = (byte: number): Encryption => ({ key: new Uint8Array(32).fill(byte) });
const CHEAP = { memoryKiB: 64, passes: 1 };
const MARKER = 'c0nfid3nt1al';

async function fill(path: string, encryption: Encryption | undefined): Promise<void> {
  const db = await open(path, { encryption, feed: true });
  const notes = db.collection<string, { text: string }>(`notes ${MARKER}`, {
    indexes: { byText: { key: ({ text }) => text } },
  });
  for (let number = 0; number < 50; number++)
    await notes.set(`${MARKER}${number}`, { text: `${number}${MARKER}`.repeat(20) });
  await db.collection(`blobs ${MARKER}`).set('large', MARKER.repeat(100_000));
  await notes.delete(`${MARKER}3`);
  await db.close();
}

async function assertFilled(path: string, encryption: Encryption): Promise<void> {
  const db = await open(path, { encryption, create: false });
  const notes = db.collection<string, { text: string }>(`notes ${MARKER}`, {
    indexes: { byText: { key: ({ text }) => text } },
  });
  assert.equal(await notes.size, 49);
  assert.equal((await notes.get(`${MARKER}7`))?.text, `7${MARKER}`.repeat(20));
  assert.equal(await notes.index('byText', { whenIncomplete: 'wait' }).count(), 49);
  assert.equal(await db.collection(`blobs ${MARKER}`).get('large'), MARKER.repeat(100_000));
  assert.equal((await db.verify()).ok, true);
  await db.close();
}

function filesOf(path: string): Buffer {
  return Buffer.concat(readdirSync(path).map((name) => readFileSync(join(path, name))));
}

async function bytesOf(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  const pieces = [];
  for await (const piece of stream as unknown as AsyncIterable<Uint8Array>) pieces.push(piece);
  return Buffer.concat(pieces);
}

test('a database opens with its key only, and a refusal changes nothing', () =>
  withPath(async (path) => {
    await fill(path, key(1));
    const before = filesOf(path);
    await rejects(open(path), 'KV_WRONG_KEY');
    await rejects(open(path, { readOnly: true }), 'KV_WRONG_KEY');
    await rejects(open(path, { encryption: key(2) }), 'KV_WRONG_KEY');
    await rejects(open(path, { encryption: { passphrase: 'p' } }), 'KV_WRONG_KEY');
    assert.throws(() => openSync(path), { code: 'KV_WRONG_KEY' });
    assert.throws(() => openSync(path, { encryption: key(2) }), { code: 'KV_WRONG_KEY' });
    assert.ok(filesOf(path).equals(before), 'a refusal wrote something');
    await assertFilled(path, key(1));
    const sync = openSync(path, { encryption: key(1), readOnly: true });
    assert.equal(sync.collection(`notes ${MARKER}`).size, 49);
    sync.close();
  }));

test('a plain database is not opened with a key', () =>
  withPath(async (path) => {
    await fill(path, undefined);
    const before = filesOf(path);
    assert.ok(before.includes(MARKER), 'the marker is found where nothing is encrypted');
    await rejects(open(path, { encryption: key(1) }), 'KV_NOT_ENCRYPTED');
    assert.ok(filesOf(path).equals(before), 'a refusal wrote something');
    const db = await open(path);
    await rejects(db.changeKey(key(1)), 'KV_INVALID_ARGUMENT');
    await db.close();
  }));

test('nothing that is written can be read', () =>
  withPath(async (path) => {
    await fill(path, key(1));
    assert.ok(!filesOf(path).includes(MARKER));
    const db = await open(path, { encryption: key(1) });
    const backup = await bytesOf(db.backup());
    await db.close();
    assert.ok(!backup.includes(MARKER));
    await rejects(restore(`${path}-restored`, backup), 'KV_WRONG_KEY');
    await rejects(restore(`${path}-restored`, backup, { encryption: key(2) }), 'KV_WRONG_KEY');
    await restore(`${path}-restored`, backup, { encryption: key(1) });
    assert.ok(!filesOf(`${path}-restored`).includes(MARKER));
    await assertFilled(`${path}-restored`, key(1));
    await rejects(recover(path, `${path}-recovered`), 'KV_WRONG_KEY');
    assert.equal((await recover(path, `${path}-recovered`, { encryption: key(1) })).entries, 50);
    assert.ok(!filesOf(`${path}-recovered`).includes(MARKER));
    await assertFilled(`${path}-recovered`, key(1));
  }));

test('a plain backup becomes an encrypted database', () =>
  withPath(async (path) => {
    await fill(path, undefined);
    const db = await open(path);
    const backup = await bytesOf(db.backup());
    await db.close();
    await restore(`${path}-restored`, backup, { encryption: key(1) });
    assert.ok(!filesOf(`${path}-restored`).includes(MARKER));
    await assertFilled(`${path}-restored`, key(1));
  }));

test('a passphrase opens with the cost that was stored', () =>
  withPath(async (path) => {
    await fill(path, { passphrase: 'correct horse', ...CHEAP });
    await rejects(open(path, { encryption: { passphrase: 'correct horsf' } }), 'KV_WRONG_KEY');
    await rejects(open(path, { encryption: key(1) }), 'KV_WRONG_KEY');
    await assertFilled(path, { passphrase: 'correct horse' });
    await withPath(async (other) => {
      await fill(other, { passphrase: 'the default cost' });
      await assertFilled(other, { passphrase: 'the default cost', ...CHEAP });
    });
  }));

test('CryptoKeys that cannot be extracted open it', () =>
  withPath(async (path) => {
    const hmac = await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    const hkdf = await crypto.subtle.importKey('raw', new Uint8Array(32).fill(9), 'HKDF', false, ['deriveBits']);
    for (const [at, [each, other]] of [
      [hmac, hkdf],
      [hkdf, hmac],
    ].entries()) {
      await fill(`${path}-${at}`, { key: each! });
      await assertFilled(`${path}-${at}`, { key: each! });
      await rejects(open(`${path}-${at}`, { encryption: { key: other! } }), 'KV_WRONG_KEY');
      assert.throws(() => openSync(`${path}-${at}`, { encryption: { key: each! } }), { code: 'KV_UNSUPPORTED' });
    }
    const unfit = [
      await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, ['encrypt']),
      await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-1' }, false, ['sign']),
      await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-256', length: 128 }, false, ['sign']),
      await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-256' }, false, ['verify']),
    ] as CryptoKey[];
    for (const each of unfit)
      await rejects(open(`${path}-unfit`, { encryption: { key: each } }), 'KV_INVALID_ARGUMENT');
  }));

test('whoever may use a CryptoKey that cannot be extracted takes the key of the database away, until everything is encrypted anew', () =>
  withPath(async (path) => {
    const hmac = await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    await assert.rejects(crypto.subtle.exportKey('raw', hmac));
    await fill(path, { key: hmac });
    // What an injected script could do, and send to somebody who has a copy of the files.
    const stolen = {
      key: new Uint8Array(
        await crypto.subtle.sign('HMAC', hmac, new TextEncoder().encode('mangrove-kv: key of a database')),
      ),
    };
    await assertFilled(path, stolen);
    const copy = `${path}-copy`;
    copyDirectory(path, copy);
    const next = await crypto.subtle.generateKey({ name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    const db = await open(path, { encryption: { key: hmac } });
    await db.changeKey({ key: next });
    await db.reencrypt();
    await db.close();
    await rejects(open(path, { encryption: stolen }), 'KV_WRONG_KEY');
    await assertFilled(path, { key: next });
    // The copy of before still opens.
    await assertFilled(copy, stolen);
  }));

test('an old state as a whole opens: files that were put back, and a log without its end', () =>
  withPath(async (path) => {
    const [first, second] = [`${path}-first`, `${path}-second`];
    const db = await open(path, { encryption: key(1) });
    await db.set('first', 1);
    copyDirectory(path, first);
    await db.set('second', 2);
    copyDirectory(path, second);
    await db.close();
    const has = async (from: string, keys: readonly string[]): Promise<void> => {
      const opened = await open(from, { encryption: key(1), create: false });
      assert.deepEqual(await opened.keys().toArray(), keys);
      assert.equal((await opened.verify()).ok, true);
      await opened.close();
    };
    // A log ends where the next record is none.
    const [short, long] = [first, second].map((from) => readFileSync(join(from, 'log')));
    const end = long!.findIndex((byte, at) => byte !== short![at]);
    assert.ok(end > 0);
    for (const name of ['cut', 'zeroed']) {
      const copy = `${path}-${name}`;
      copyDirectory(second, copy);
      writeFileSync(join(copy, 'log'), name === 'cut' ? long!.subarray(0, end) : long!.fill(0, end));
      await has(copy, ['first']);
    }
    rmSync(path, { recursive: true });
    copyDirectory(first, path);
    await has(path, ['first']);
    await has(second, ['first', 'second']);
  }));

test('a passphrase is its bytes: the same text in another form of Unicode is another one', () =>
  withPath(async (path) => {
    const [composed, decomposed] = ['\u00e9t\u00e9', 'e\u0301te\u0301'];
    assert.equal(composed.normalize('NFD'), decomposed);
    await fill(path, { passphrase: composed, ...CHEAP });
    await rejects(open(path, { encryption: { passphrase: decomposed } }), 'KV_WRONG_KEY');
    await assertFilled(path, { passphrase: decomposed.normalize('NFC') });
  }));

test('a changed key is the only one, also for the same handle', () =>
  withPath(async (path) => {
    await fill(path, key(1));
    const db = await open(path, { encryption: key(1) });
    await db.changeKey(key(2));
    await db.set('after', 1);
    await db.close();
    await rejects(open(path, { encryption: key(1) }), 'KV_WRONG_KEY');
    const second = await open(path, { encryption: key(2) });
    assert.equal(await second.get('after'), 1);
    await second.changeKey({ passphrase: 'p', ...CHEAP });
    await second.close();
    await rejects(open(path, { encryption: key(2) }), 'KV_WRONG_KEY');
    await assertFilled(path, { passphrase: 'p' });
    const reader = await open(path, { encryption: { passphrase: 'p' }, readOnly: true });
    await rejects(reader.changeKey(key(3)), 'KV_READ_ONLY');
    await reader.close();
  }));

const dataOf = (path: string): Buffer => readFileSync(join(path, 'data'));

/** Reads a u64 of the data file. */
const wordAt = (bytes: Uint8Array, at: number): bigint =>
  new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(at, true);

test('everything is encrypted anew while others write', () =>
  withPath(async (path) => {
    await fill(path, key(1));
    const db = await open(path, { encryption: key(1) });
    const notes = db.collection<number, string>('filled', { value: valueCodecs.string });
    await notes.setMany(Array.from({ length: 3000 }, (_, at) => [at, `${at} `.repeat(500)] as const));
    const snapshot = db.snapshot();
    const before = dataOf(path);
    const told: [number, number][] = [];
    let isDone = false;
    const work = db.reencrypt({ onProgress: (done, total) => told.push([done, total]) }).finally(() => {
      isDone = true;
    });
    let written = 0;
    for (; !isDone; written += 1) await notes.set(10_000 + written, 'meanwhile');
    await work;
    assert.ok(told.length > 0 && told.every(([done, total]) => done > 0 && done <= total), JSON.stringify(told));
    assert.ok(written > 0);
    const after = dataOf(path);
    const wrapped = (data: Uint8Array): string => Buffer.from(data.subarray(168, 240)).toString('hex');
    assert.notEqual(wrapped(after), wrapped(before));
    for (const slot of [0, 4096])
      assert.deepEqual([after[slot + 164], wordAt(after, slot + 480)], [1, 0n], 'no previous key is left');
    assert.equal(await snapshot.collection(notes).get(7), '7 '.repeat(500));
    assert.equal(await snapshot.collection(notes).get(10_000), undefined);
    await snapshot.close();
    assert.equal((await db.verify()).ok, true);
    await db.changeKey(key(2));
    // A break leaves it where it is, and the next call ends it.
    const controller = new AbortController();
    const aborted = db.reencrypt({
      signal: controller.signal,
      onProgress: () => controller.abort(new Error('enough')),
    });
    await assert.rejects(aborted, /enough/);
    await db.close();
    const again = await open(path, { encryption: key(2) });
    assert.equal(await again.collection('filled', { value: valueCodecs.string }).size, 3000 + written);
    await again.reencrypt();
    assert.equal((await again.verify()).ok, true);
    await again.close();
    await rejects(open(path, { encryption: key(1) }), 'KV_WRONG_KEY');
    await assertFilled(path, key(2));
    const reader = await open(path, { encryption: key(2), readOnly: true });
    await rejects(reader.reencrypt(), 'KV_READ_ONLY');
    await reader.close();
  }));

test('a re-encryption waits for a stream that began before it', () =>
  withPath(async (path) => {
    const db = await open(path, { encryption: key(1) });
    const raw = db.collection<string, Uint8Array>('raw', { value: valueCodecs.bytes });
    await raw.set('first', new Uint8Array(10));
    let letGo = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    let hasBegun = (): void => undefined;
    const begun = new Promise<void>((resolve) => {
      hasBegun = resolve;
    });
    const streaming = raw.setStream(
      'long',
      (async function* () {
        yield new Uint8Array(3 << 20).fill(7);
        hasBegun();
        await held;
        yield new Uint8Array(100).fill(8);
      })(),
    );
    await begun;
    let calls = 0;
    const work = db.reencrypt({
      onProgress: () => {
        if ((calls += 1) === 4) letGo();
      },
    });
    await streaming;
    await work;
    assert.ok(calls >= 4);
    await db.close();
    const again = await open(path, { encryption: key(1) });
    const value = await again.collection<string, Uint8Array>('raw', { value: valueCodecs.bytes }).get('long');
    assert.deepEqual([value?.length, value?.[0], value?.at(-1)], [(3 << 20) + 100, 7, 8]);
    assert.equal((await again.verify()).ok, true);
    await again.close();
  }));

test('a database without encryption is not re-encrypted', () =>
  withMemory({}, async (db) => {
    await rejects(db.reencrypt(), 'KV_INVALID_ARGUMENT');
  }));

test('a worker, the inlined entry and other storages open it', () =>
  withPath(async (path) => {
    await fill(path, key(1));
    const worker = await open(path, { encryption: key(1), thread: 'worker' });
    assert.equal(await worker.collection(`notes ${MARKER}`).size, 49);
    await worker.close();
    await rejects(open(path, { encryption: key(2), thread: 'worker' }), 'KV_WRONG_KEY');
    const inlined = await inline.open(path, { encryption: key(1) });
    assert.equal(await inlined.collection(`notes ${MARKER}`).size, 49);
    await inlined.close();
    const atOnce = inline.openSync(path, { encryption: key(1) });
    assert.equal(atOnce.collection(`notes ${MARKER}`).size, 49);
    atOnce.close();
    const storage = new MapStorage();
    const custom = await open('custom', { storage, encryption: key(1) });
    await custom.set(MARKER, MARKER);
    await custom.close();
    await rejects(open('custom', { storage }), 'KV_WRONG_KEY');
    const again = await open('custom', { storage, encryption: key(1) });
    assert.equal(await again.get(MARKER), MARKER);
    await again.close();
    const memory = await open('memory', { storage: 'memory', encryption: { passphrase: 'p', ...CHEAP } });
    await memory.set(1, 2);
    assert.equal(await memory.get(1), 2);
    await memory.close();
  }));

test('a module without encryption makes no plain database of a key', () =>
  withPath(async (path) => {
    const plain = readFileSync(new URL('../dist/mangrove_core_bg.wasm', import.meta.url));
    await rejects(open(path, { encryption: key(1), wasm: plain }), 'KV_INVALID_ARGUMENT');
    assert.throws(() => openSync(path, { encryption: key(1), wasm: plain }), { code: 'KV_INVALID_ARGUMENT' });
    await fill(path, key(1));
    const whole = readFileSync(new URL('../dist/mangrove_bg.wasm', import.meta.url));
    const given = await open(path, { encryption: key(1), wasm: whole });
    assert.equal(await given.collection(`notes ${MARKER}`).size, 49);
    await given.close();
  }));

test('keys and passphrases are checked', () =>
  withPath(async (path) => {
    const wrong: unknown[] = [
      { key: new Uint8Array(31) },
      { key: new Uint8Array(33) },
      { key: 'x'.repeat(32) },
      { key: {} },
      {},
      'secret',
      null,
      { key: new Uint8Array(32), passphrase: 'p' },
      { key: new Uint8Array(32), passes: 1 },
      { passphrase: '' },
      { passphrase: 5 },
      { passphrase: 'p', memoryKiB: 7 },
      { passphrase: 'p', memoryKiB: 2 ** 21 },
      { passphrase: 'p', passes: 0 },
      { passphrase: 'p', passes: 1025 },
      { passphrase: 'p', rounds: 3 },
    ];
    for (const encryption of wrong) {
      await rejects(open(path, { encryption: encryption as Encryption }), 'KV_INVALID_ARGUMENT');
      assert.throws(
        () => openSync(path, { encryption: encryption as Encryption }),
        { code: 'KV_INVALID_ARGUMENT' },
        JSON.stringify(encryption),
      );
    }
  }));
