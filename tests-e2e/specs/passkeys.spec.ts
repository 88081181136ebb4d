// Databases that passkeys unlock, with authenticators that Chromium simulates.
import type { CDPSession, Page } from '@playwright/test';
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';
import { emptyTab } from '../tabs-page.ts';

type Passkeys = typeof import('mangrove-kv/passkey');
type Passkey = Awaited<ReturnType<Passkeys['createPasskey']>>;

declare global {
  interface Window {
    passkeys: Passkeys;
    passkey: Passkey;
  }
}

test.skip(({ browserName }) => browserName !== 'chromium', 'only Chromium simulates authenticators');

interface Authenticators {
  readonly session: CDPSession;
  /** Plugs a device in; returns its id. */
  add(options?: { hasPrf?: boolean; isUserVerified?: boolean }): Promise<string>;
  remove(authenticatorId: string): Promise<unknown>;
}

async function simulate(page: Page): Promise<Authenticators> {
  const session = await page.context().newCDPSession(page);
  await session.send('WebAuthn.enable');
  return {
    session,
    add: async ({ hasPrf = true, isUserVerified = true } = {}) => {
      const options = {
        protocol: 'ctap2',
        ctap2Version: 'ctap2_1',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification: true,
        isUserVerified,
        automaticPresenceSimulation: true,
        hasPrf,
      } as const;
      return (await session.send('WebAuthn.addVirtualAuthenticator', { options })).authenticatorId;
    },
    remove: (authenticatorId) => session.send('WebAuthn.removeVirtualAuthenticator', { authenticatorId }),
  };
}

async function load(page: Page): Promise<void> {
  await page.waitForFunction(() => document.title === 'ready');
  await page.evaluate(async () => {
    window.passkeys = await window.loadPasskey();
  });
}

/** Opens "secret" with `window.passkey`; returns the error's code, or "open". */
const openWithPasskey = (page: Page): Promise<string> =>
  page.evaluate(async () => {
    try {
      window.db = await window.mangrove.open('secret', { encryption: { key: window.passkey.key } });
      return 'open';
    } catch (error) {
      return (error as { code: string }).code;
    }
  });

/** Calls a function of the package; returns its error's code, message and `retryable`, or the passkey's id. */
const attempt = (page: Page, call: 'createPasskey' | 'getPasskey', options?: object): Promise<unknown> =>
  page.evaluate(
    async ([call, options]) => {
      try {
        window.passkey = await window.passkeys[call](options as never);
        return window.passkey.id;
      } catch (error) {
        const { code, message, retryable } = error as { code: string; message: string; retryable: boolean };
        return { code, message, retryable };
      }
    },
    [call, options] as const,
  );

test('a passkey is created, encrypts a database and unlocks it after a reload; another one does not', async ({
  profile,
}) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  const devices = await simulate(page);
  const authenticatorId = await devices.add();
  await load(page);
  const id = await attempt(page, 'createPasskey', { name: 'ada@example.org', displayName: 'Ada', rpName: 'Notes' });
  expect(id).toEqual(expect.stringMatching(/^[\w-]{20,}$/));
  expect(await openWithPasskey(page)).toBe('open');
  await page.evaluate(() => window.db.set('note', 'c0nfid3nt1al'));
  // No script can read the secret.
  expect(
    await page.evaluate(async () => [
      (window.passkey.key as CryptoKey).extractable,
      await crypto.subtle.exportKey('raw', window.passkey.key).catch(() => 'refused'),
    ]),
  ).toEqual([false, 'refused']);

  await page.reload();
  await load(page);
  expect(await attempt(page, 'getPasskey', { ids: [id] })).toBe(id);
  expect(await openWithPasskey(page)).toBe('open');
  expect(await page.evaluate(() => window.db.get('note'))).toBe('c0nfid3nt1al');
  await page.evaluate(() => window.db.close());
  // Without its id: the user chooses among those of the site.
  expect(await attempt(page, 'getPasskey')).toBe(id);
  expect(await openWithPasskey(page)).toBe('open');
  await page.evaluate(() => window.db.close());

  const other = await attempt(page, 'createPasskey', { name: 'ada@example.org' });
  expect(other).not.toBe(id);
  expect(await openWithPasskey(page)).toBe('KV_WRONG_KEY');
  expect(await page.evaluate(() => window.mangrove.open('secret').catch((error: { code: string }) => error.code))).toBe(
    'KV_WRONG_KEY',
  );
  // The first one was not replaced by another of the same name.
  const { credentials } = await devices.session.send('WebAuthn.getCredentials', { authenticatorId });
  expect(credentials.length).toBe(2);
  expect(await attempt(page, 'getPasskey', { ids: [id] })).toBe(id);
  expect(await openWithPasskey(page)).toBe('open');
  expect(await page.evaluate(() => window.db.get('note'))).toBe('c0nfid3nt1al');

  // From now on the second passkey.
  expect(await attempt(page, 'getPasskey', { ids: [other] })).toBe(other);
  await page.evaluate(async () => {
    await window.db.changeKey({ key: window.passkey.key });
    await window.db.close();
  });
  expect(await openWithPasskey(page)).toBe('open');
  await page.evaluate(() => window.db.close());
  await attempt(page, 'getPasskey', { ids: [id] });
  expect(await openWithPasskey(page)).toBe('KV_WRONG_KEY');
});

test('any of several passkeys opens a database whose key is sealed for each', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  const devices = await simulate(page);
  const phone = await devices.add();
  await load(page);
  await attempt(page, 'createPasskey', { name: 'phone' });
  const key = await page.evaluate(async () => {
    const key = crypto.getRandomValues(new Uint8Array(32));
    localStorage.setItem('keys', JSON.stringify([await window.passkeys.sealKey(key, window.passkey)]));
    window.db = await window.mangrove.open('secret', { encryption: { key } });
    await window.db.set('note', 'c0nfid3nt1al');
    await window.db.close();
    return [...key];
  });
  // A second device; the first one unlocks the key once more.
  await devices.remove(phone);
  await devices.add();
  await attempt(page, 'createPasskey', { name: 'laptop' });
  await page.evaluate(async (key) => {
    const sealed = JSON.parse(localStorage.getItem('keys') ?? '[]') as object[];
    sealed.push(await window.passkeys.sealKey(Uint8Array.from(key), window.passkey));
    localStorage.setItem('keys', JSON.stringify(sealed));
  }, key);

  // Only the second device is left.
  await page.reload();
  await load(page);
  const opened = await page.evaluate(async () => {
    const text = localStorage.getItem('keys') as string;
    const sealed = JSON.parse(text) as Parameters<Passkeys['unsealKey']>[0];
    const { getPasskey, unsealKey, sealKey } = window.passkeys;
    const passkey = await getPasskey({ ids: sealed.map((each) => each.passkey) });
    const key = await unsealKey(sealed, passkey);
    const db = await window.mangrove.open('secret', { encryption: { key } });
    const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
      promise.then(
        () => 'none',
        (error: { code: unknown }) => error.code,
      );
    const [first, second] = sealed as [(typeof sealed)[0], (typeof sealed)[0]];
    // The passkey's secret opens no key that was sealed for another one, nor a changed one.
    const stolen = { ...first, passkey: second.passkey };
    const changed = { ...second, sealed: `${second.sealed.startsWith('A') ? 'B' : 'A'}${second.sealed.slice(1)}` };
    return [
      await db.get('note'),
      passkey.id === second.passkey,
      await codeOf(unsealKey([first], passkey)),
      await codeOf(unsealKey([stolen], passkey)),
      await codeOf(unsealKey([changed], passkey)),
      await codeOf(unsealKey([{ ...second, sealed: 'AAAA' }], passkey)),
      await codeOf(unsealKey([{ ...second, version: 2 as never }], passkey)),
      await codeOf(unsealKey([{ ...second, sealed: '?' }], passkey)),
      await codeOf(unsealKey({} as never, passkey)),
      await codeOf(unsealKey(sealed, { id: 'x' } as never)),
      await codeOf(sealKey(new Uint8Array(31), passkey)),
      await codeOf(sealKey(key, {} as never)),
      Object.keys(second).sort(),
      text.includes('c0nfid'),
    ];
  });
  expect(opened).toEqual([
    'c0nfid3nt1al',
    true,
    'KV_NOT_FOUND',
    ...Array(3).fill('KV_WRONG_KEY'),
    'KV_VERSION_UNSUPPORTED',
    ...Array(5).fill('KV_INVALID_ARGUMENT'),
    ['passkey', 'sealed', 'version'],
    false,
  ]);
});

test('an authenticator without the PRF extension is refused', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  const devices = await simulate(page);
  await devices.add({ hasPrf: false });
  await load(page);
  expect(await attempt(page, 'createPasskey', { name: 'ada' })).toEqual({
    code: 'KV_UNSUPPORTED',
    message: expect.stringContaining('use another one or a passphrase'),
    retryable: false,
  });
  // One that was created without it.
  const id = await page.evaluate(async () => {
    const created = await navigator.credentials.create({
      publicKey: {
        challenge: new Uint8Array(16),
        rp: { name: 'Notes' },
        user: { id: new Uint8Array(16), name: 'ada', displayName: 'Ada' },
        pubKeyCredParams: [{ type: 'public-key', alg: -7 }],
        authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
      },
    });
    return (created as PublicKeyCredential).id;
  });
  expect(await attempt(page, 'getPasskey', { ids: [id] })).toMatchObject({ code: 'KV_UNSUPPORTED' });
});

test('a secret that comes only when the passkey is used takes a second question', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  await (await simulate(page)).add();
  await load(page);
  // As authenticators of before CTAP 2.2: they say that they can, and no more.
  await page.evaluate(() => {
    const create = navigator.credentials.create.bind(navigator.credentials);
    navigator.credentials.create = async (options) => {
      const made = (await create(options)) as PublicKeyCredential;
      made.getClientExtensionResults = () => ({ prf: { enabled: true } });
      return made;
    };
    const get = navigator.credentials.get.bind(navigator.credentials);
    navigator.credentials.get = (options) => {
      document.body.dataset['asked'] = String(options?.publicKey?.allowCredentials?.length);
      return get(options);
    };
  });
  const id = await attempt(page, 'createPasskey', { name: 'ada' });
  expect(await page.evaluate(() => document.body.dataset['asked'])).toBe('1');
  expect(await openWithPasskey(page)).toBe('open');
  await page.evaluate(() => window.db.close());
  expect(await attempt(page, 'getPasskey', { ids: [id] })).toBe(id);
  expect(await openWithPasskey(page)).toBe('open');
});

test('a user who declines, a missing passkey, an excluded one and a foreign domain', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  const devices = await simulate(page);
  const first = await devices.add();
  await load(page);
  const id = await attempt(page, 'createPasskey', { name: 'ada' });
  expect(await attempt(page, 'createPasskey', { name: 'ada', excludeIds: [id] })).toMatchObject({ code: 'KV_EXISTS' });
  expect(await attempt(page, 'createPasskey', { name: 'ada', rpId: 'example.org' })).toMatchObject({
    code: 'KV_INVALID_ARGUMENT',
  });
  expect(await attempt(page, 'getPasskey', { rpId: 'example.org' })).toMatchObject({ code: 'KV_INVALID_ARGUMENT' });
  const refused = {
    code: 'KV_NOT_ALLOWED',
    message: expect.stringContaining('let the user try again'),
    retryable: true,
  };
  expect(await attempt(page, 'getPasskey', { ids: ['AAAAAAAAAAAAAAAAAAAAAA'], timeout: 1000 })).toEqual(refused);
  expect(await attempt(page, 'getPasskey', { ids: [id] })).toBe(id);
  // The user does not answer until the page gives up.
  const answer = (enabled: boolean): Promise<unknown> =>
    devices.session.send('WebAuthn.setAutomaticPresenceSimulation', { authenticatorId: first, enabled });
  await answer(false);
  const aborted = await page.evaluate(async (id) => {
    const { createPasskey, getPasskey } = window.passkeys;
    const reason = new Error('of the page');
    const controller = new AbortController();
    const outcomes = [
      await getPasskey({ signal: AbortSignal.abort(reason) }).catch((error: unknown) => error === reason),
      await createPasskey({ name: 'a', signal: AbortSignal.abort(reason) }).catch((error: unknown) => error === reason),
    ];
    const waiting = getPasskey({ ids: [id as string], signal: controller.signal }).then(
      () => 'unlocked',
      (error: unknown) => error === reason,
    );
    setTimeout(() => controller.abort(reason), 500);
    outcomes.push((await waiting) as boolean);
    return outcomes;
  }, id);
  expect(aborted).toEqual([true, true, true]);
  await answer(true);
  // After all that, the passkey is as it was. The browser takes a moment to end what was aborted.
  await expect.poll(() => attempt(page, 'getPasskey', { ids: [id] })).toBe(id);
  // The last, because the authenticator locks itself after a few fingers that it does not know.
  await devices.session.send('WebAuthn.setUserVerified', { authenticatorId: first, isUserVerified: false });
  expect(await attempt(page, 'getPasskey', { ids: [id], timeout: 1000 })).toEqual(refused);
  expect(await attempt(page, 'createPasskey', { name: 'ada', timeout: 1000 })).toEqual(refused);
});

test('wrong options are refused before the user is asked', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  await load(page);
  const wrong: [call: 'createPasskey' | 'getPasskey', options: unknown][] = [
    ['createPasskey', undefined],
    ['createPasskey', {}],
    ['createPasskey', { name: '' }],
    ['createPasskey', { name: 5 }],
    ['createPasskey', { name: 'a', rpid: 'b' }],
    ['createPasskey', { name: 'a', rpId: '' }],
    ['createPasskey', { name: 'a', attachment: 'usb' }],
    ['createPasskey', { name: 'a', timeout: -1 }],
    ['createPasskey', { name: 'a', excludeIds: 'abc' }],
    ['createPasskey', { name: 'a', excludeIds: ['+'] }],
    ['getPasskey', { id: 'a' }],
    ['getPasskey', { ids: [5] }],
    ['getPasskey', { rpId: 5 }],
  ];
  for (const [call, options] of wrong)
    expect(await attempt(page, call, options as object)).toMatchObject({ code: 'KV_INVALID_ARGUMENT' });
});

test('a browser without passkeys, or without the extension, is refused with what to do', async ({ profile }) => {
  const context = await profile.launch();
  await context.addInitScript(() => {
    if (location.hash === '#none') delete (window as { PublicKeyCredential?: unknown }).PublicKeyCredential;
    else PublicKeyCredential.getClientCapabilities = async () => ({ 'extension:prf': false }) as never;
  });
  const page = await context.newPage();
  for (const place of ['#none', '#no-prf']) {
    await page.goto('about:blank');
    await page.goto(`${HARNESS_URL}/${place}`);
    await load(page);
    for (const call of ['createPasskey', 'getPasskey'] as const)
      expect(await attempt(page, call, call === 'createPasskey' ? { name: 'ada' } : {})).toEqual({
        code: 'KV_UNSUPPORTED',
        message: expect.stringContaining('a passphrase'),
        retryable: false,
      });
  }
});
