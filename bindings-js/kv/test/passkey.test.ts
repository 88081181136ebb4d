// Passkeys outside of browsers: importing has no effect, and calls say what is missing. The keys that are sealed need no
// authenticator. tests-e2e/specs/passkeys.spec.ts has the rest.
import assert from 'node:assert/strict';
import { createHmac, hkdfSync } from 'node:crypto';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import { createPasskey, getPasskey, sealKey, unsealKey } from 'mangrove-kv/passkey';
import type { Passkey } from 'mangrove-kv/passkey';
import { rejects, withPath } from './support/kit.ts';

/** What an authenticator that returns these bytes leads to. */
async function passkeyOf(id: string, secret: Uint8Array<ArrayBuffer>): Promise<Passkey> {
  return { id, key: await crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveBits']) };
}

const secret = (byte: number): Uint8Array<ArrayBuffer> => new Uint8Array(32).fill(byte);

test('where there are no passkeys, calls fail with what to do', async () => {
  await rejects(createPasskey({ name: 'ada' }), 'KV_UNSUPPORTED');
  await rejects(getPasskey(), 'KV_UNSUPPORTED');
});

test('the key of a database is the documented one, whatever the version', () =>
  withPath(async (path) => {
    const { key } = await passkeyOf('a', secret(7));
    const db = await open<string, number>(path, { encryption: { key } });
    await db.set('a', 1);
    await db.close();
    const derived = hkdfSync('sha256', secret(7), new Uint8Array(32), 'mangrove-kv: key of a database', 32);
    const again = await open<string, number>(path, { encryption: { key: new Uint8Array(derived) } });
    assert.equal(await again.get('a'), 1);
    await again.close();
    const other = await passkeyOf('b', secret(8));
    await rejects(open(path, { encryption: { key: other.key } }), 'KV_WRONG_KEY');
  }));

test('a sealed key of an earlier version still opens', async () => {
  // Made by this format's description in docs/ENCRYPTION.md, not by this package.
  const info = 'mangrove-kv: key that seals the key of a database';
  const sealing = hkdfSync('sha256', secret(7), new Uint8Array(32), info, 32);
  const aes = await crypto.subtle.importKey('raw', sealing, 'AES-GCM', false, ['encrypt']);
  const iv = new Uint8Array(12).fill(3);
  const additionalData = new TextEncoder().encode('credential');
  const key = createHmac('sha256', 'key').digest();
  const text = await crypto.subtle.encrypt({ name: 'AES-GCM', iv, additionalData }, aes, key);
  const sealed = Buffer.concat([iv, new Uint8Array(text)]).toString('base64url');
  const opened = await unsealKey(
    [{ version: 1, passkey: 'credential', sealed }],
    await passkeyOf('credential', secret(7)),
  );
  assert.deepEqual(Buffer.from(opened), key);
});

test('a key is sealed anew each time, survives JSON, and stays as it was', async () => {
  const passkey = await passkeyOf('a', secret(1));
  const key = crypto.getRandomValues(new Uint8Array(32));
  const before = key.slice();
  const sealed = [await sealKey(key, passkey), await sealKey(key, passkey)];
  assert.notEqual(sealed[0]!.sealed, sealed[1]!.sealed);
  assert.deepEqual(key, before);
  for (const each of sealed) assert.deepEqual(await unsealKey(JSON.parse(JSON.stringify([each])), passkey), key);
  // In a part of a larger buffer, too.
  const part = new Uint8Array(64).subarray(16, 48);
  part.set(key);
  assert.deepEqual(await unsealKey([await sealKey(part, passkey)], passkey), key);
});

test('a sealed key that is damaged locks out no passkey that has another', async () => {
  const passkey = await passkeyOf('a', secret(1));
  const key = crypto.getRandomValues(new Uint8Array(32));
  const good = await sealKey(key, passkey);
  const old = await sealKey(key, await passkeyOf('a', secret(2)));
  const damaged = [old, { ...good, sealed: 'AAAA' }, { ...good, sealed: '?' }, { ...good, version: 2 as never }];
  for (const each of damaged) assert.deepEqual(await unsealKey([each, good], passkey), key);
  assert.deepEqual(await unsealKey([...damaged, good], passkey), key);
  await rejects(unsealKey(damaged, passkey), 'KV_WRONG_KEY');
  await rejects(unsealKey(damaged.slice(2), passkey), 'KV_INVALID_ARGUMENT');
});
