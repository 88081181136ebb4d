// Browsers without OPFS: the effect of `onUnavailable`, and that no fallback is chosen silently.
// Also aborting an `open` that waits.
import type { BrowserContext, Page } from '@playwright/test';
import { HARNESS_URL, OPFS_WORKER } from '../browser.ts';
import { expect, test } from '../persistent.ts';

const LACKS: Record<string, { prepare(context: BrowserContext): Promise<unknown> }> = {
  'a private window': {
    prepare: (context) =>
      context.addInitScript(() => {
        navigator.storage.getDirectory = () => Promise.reject(new DOMException('not in private', 'SecurityError'));
      }),
  },
  'no OPFS': {
    prepare: (context) =>
      context.addInitScript(() => {
        Object.defineProperty(navigator.storage, 'getDirectory', { value: undefined });
      }),
  },
  'no workers': {
    prepare: (context) =>
      context.addInitScript(() => {
        Object.defineProperty(window, 'Worker', { value: undefined });
      }),
  },
  'no synchronous access': {
    prepare: (context) =>
      context.route(OPFS_WORKER, async (route) => {
        const response = await route.fetch();
        const lacking = 'delete FileSystemFileHandle.prototype.createSyncAccessHandle;';
        await route.fulfill({ response, body: lacking + (await response.text()) });
      }),
  },
};

function outcomes(page: Page, name: string): Promise<unknown> {
  return page.evaluate(async (name) => {
    const { destroy, open } = window.mangrove;
    const found: unknown[] = [];
    for (const onUnavailable of [undefined, 'throw', 'indexeddb', 'memory'] as const) {
      try {
        const db = await open(name, { onUnavailable });
        await db.set('k', 1);
        found.push([db.persistence, await db.get('k')]);
        await db.close();
        if (onUnavailable === 'indexeddb') {
          const again = await open(name, { onUnavailable, create: false });
          found.push(await again.get('k'));
          await again.close();
          await destroy(name, { storage: 'indexeddb' });
        }
      } catch (error) {
        found.push((error as { code?: string }).code ?? String(error));
      }
    }
    return found;
  }, name);
}

for (const [name, { prepare }] of Object.entries(LACKS)) {
  test(`${name}: only the requested fallback is used`, async ({ profile }) => {
    const context = await profile.launch();
    await prepare(context);
    const page = await context.newPage();
    await page.goto(HARNESS_URL);
    expect(await outcomes(page, 'somewhere')).toEqual([
      'KV_UNSUPPORTED',
      'KV_UNSUPPORTED',
      ['indexeddb', 1],
      1,
      ['memory', 1],
    ]);
  });
}

for (const [reason, prepare] of Object.entries({
  'insecure-context': () => Object.defineProperty(window, 'isSecureContext', { value: false }),
  'no-worker': () => Object.defineProperty(window, 'Worker', { value: undefined }),
  'no-opfs': () => Object.defineProperty(navigator.storage, 'getDirectory', { value: undefined }),
  'private-mode': () => {
    navigator.storage.getDirectory = () => Promise.reject(new DOMException('not in private', 'SecurityError'));
  },
})) {
  test(`checkSupport and open report the reason ${reason}`, async ({ profile }) => {
    const context = await profile.launch();
    await context.addInitScript(prepare);
    const page = await context.newPage();
    await page.goto(HARNESS_URL);
    const found = await page.evaluate(async () => {
      const { checkSupport, open } = window.mangrove;
      const support = await checkSupport();
      const failure = await open('x').catch((error: { code: string; message: string }) => error);
      const db = await open('x', { onUnavailable: 'memory' });
      const found = [
        support.ok ? '' : support.reason,
        'code' in failure ? failure.code : '',
        'code' in failure ? failure.message : '',
        db.persistence,
      ];
      await db.close();
      return found;
    });
    expect(found).toEqual([reason, 'KV_UNSUPPORTED', expect.stringContaining(`(${reason})`), 'memory']);
  });
}

test('an insecure page really lacks OPFS', async ({ browserName, profile }) => {
  const host = 'not-secure.test';
  const page = await (await profile.launch({ firefoxUserPrefs: { 'network.dns.localDomains': host } })).newPage();
  if (browserName === 'firefox') {
    await page.goto(HARNESS_URL.replace('localhost', host));
  } else {
    await page.route(`http://${host}/**`, async (route) => {
      const { pathname } = new URL(route.request().url());
      await route.fulfill({ response: await route.fetch({ url: HARNESS_URL + pathname }) });
    });
    await page.goto(`http://${host}/`);
  }
  await page.waitForFunction(() => 'mangrove' in window);
  const found = await page.evaluate(async () => {
    const { checkSupport, open } = window.mangrove;
    const support = await checkSupport();
    const code = await open('x').then(
      () => 'none',
      (error: { code: string }) => error.code,
    );
    const db = await open('x', { onUnavailable: 'memory' });
    // IndexedDB storage needs locks, which such a page lacks too.
    const inIndexedDb = await open('x', { storage: 'indexeddb' }).then(
      () => 'none',
      (error: { code: string }) => error.code,
    );
    return [support.ok ? '' : support.reason, code, db.persistence, inIndexedDb];
  });
  expect(found).toEqual(['insecure-context', 'KV_UNSUPPORTED', 'memory', 'KV_UNSUPPORTED']);
});

test('waits time out if the browser never answers', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.clock.install();
  await page.goto(HARNESS_URL);
  const begun = page.evaluate(async () => {
    const { checkSupport, estimate, open, persist } = window.mangrove;
    const never = (): Promise<never> => new Promise(() => undefined);
    const code = (promise: Promise<unknown>): Promise<unknown> =>
      promise.catch((error: { code?: string }) => error.code);
    const silent = URL.createObjectURL(new Blob([''], { type: 'text/javascript' }));
    // The worker's script never responds.
    const worker = code(open('x', { worker: silent, onUnavailable: 'memory' }));
    await checkSupport();
    Object.assign(navigator.storage, { persist: never, estimate: never, getDirectory: never });
    const waits = [
      worker,
      persist(),
      code(estimate()),
      code(checkSupport()),
      code(open('x', { onUnavailable: 'memory' })),
    ];
    document.title = 'waiting';
    return Promise.all(waits);
  });
  await expect(page).toHaveTitle('waiting');
  let ended = false;
  const codes = begun.finally(() => {
    ended = true;
  });
  // Repeatedly, since the worker starts only after the answer about OPFS.
  while (!ended) {
    await page.clock.runFor(31_000);
    await page.waitForTimeout(100);
  }
  expect(await codes).toEqual(['KV_TIMEOUT', false, 'KV_TIMEOUT', 'KV_TIMEOUT', 'KV_TIMEOUT']);
});

test('OPFS is used where available, whatever fallback is requested', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  expect(await outcomes(page, 'here')).toEqual([['opfs', 1], ['opfs', 1], ['opfs', 1], 1, ['opfs', 1]]);
});

test('a fault of the page itself triggers no fallback', async ({ profile }) => {
  const context = await profile.launch();
  await context.route(OPFS_WORKER, (route) => route.fulfill({ status: 404 }));
  const page = await context.newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(async () => {
    const { list, open } = window.mangrove;
    const code = (promise: Promise<unknown>): Promise<string> =>
      promise.then(
        () => 'none',
        (error: { code?: string }) => error.code ?? String(error),
      );
    return [
      await code(open('x', { onUnavailable: 'indexeddb' })),
      await code(open('', { onUnavailable: 'indexeddb' })),
      await code(open('x', { storage: 'fs', onUnavailable: 'memory' })),
      await list({ storage: 'indexeddb' }),
    ];
  });
  expect(found).toEqual(['KV_UNSUPPORTED', 'KV_INVALID_ARGUMENT', 'KV_UNSUPPORTED', []]);
});

test('a function that starts workers gets the kind of storage, and the wrong script is refused', async ({
  profile,
}) => {
  const context = await profile.launch();
  const page = await context.newPage();
  const scripts: string[] = [];
  page.on('worker', (worker) => scripts.push(worker.url()));
  await page.goto(HARNESS_URL);
  await page.evaluate(async () => {
    const { open } = window.mangrove;
    await (await open('a')).close();
  });
  const script = scripts.find((url) => OPFS_WORKER.test(url)) ?? '';
  const found = await page.evaluate(async (script) => {
    const { open } = window.mangrove;
    const kinds: string[] = [];
    const worker = (kind: string): Worker => {
      kinds.push(kind);
      return new Worker(script, { type: 'module' });
    };
    await (await open('a', { worker })).close();
    await (await open('a', { worker, storage: 'memory' })).close();
    const wrong = await open('a', { worker, storage: 'indexeddb' }).then(
      () => 'none',
      (error: { code?: string }) => error.code,
    );
    return { kinds, wrong };
  }, script);
  expect(found).toEqual({ kinds: ['opfs', 'memory', 'indexeddb'], wrong: 'KV_INVALID_ARGUMENT' });
});

for (const [storage, hasWorkers] of [
  ['opfs', true],
  ['indexeddb', true],
  ['indexeddb', false],
] as const) {
  test(`an open that waits for another tab can be aborted, ${storage} ${hasWorkers ? 'with' : 'without'} workers`, async ({
    profile,
  }) => {
    const context = await profile.launch();
    const [holder, waiter] = [await context.newPage(), await context.newPage()];
    await holder.goto(HARNESS_URL);
    await waiter.goto(HARNESS_URL);
    await holder.evaluate(
      async ({ storage, hasWorkers }) => {
        // With workers, tabs share a database, so `open` waits only for a tab that never answers.
        const block = (): Promise<object> =>
          new Promise((resolve) => {
            void navigator.locks.request(
              `mangrove-kv:${storage}:shared:leader`,
              () => new Promise<void>((end) => resolve({ close: end })),
            );
          });
        Object.assign(window, { held: hasWorkers ? await block() : await window.mangrove.open('shared', { storage }) });
      },
      { storage, hasWorkers },
    );
    const found = await waiter.evaluate(
      async ({ storage, hasWorkers }) => {
        if (!hasWorkers) Object.defineProperty(window, 'Worker', { value: undefined });
        const { open } = window.mangrove;
        const reason = new Error('enough');
        const early = await open('shared', { storage, signal: AbortSignal.abort(reason) }).catch(
          (error: unknown) => error === reason,
        );
        const controller = new AbortController();
        const opening = open('shared', { storage, lockTimeout: Infinity, signal: controller.signal });
        setTimeout(() => controller.abort(reason), 50);
        return [
          early,
          await opening.then(
            () => 'opened',
            (error: unknown) => error === reason,
          ),
        ];
      },
      { storage, hasWorkers },
    );
    expect(found).toEqual([true, true]);
    await holder.evaluate(() => (window as unknown as { held: { close(): Promise<void> } }).held.close());
    // The aborted opens hold nothing.
    expect(
      await waiter.evaluate(async (storage) => {
        const db = await window.mangrove.open('shared', { storage });
        await db.close();
        return db.status;
      }, storage),
    ).toBe('closed');
  });
}

test('an open is aborted and times out although Chromium has not registered the request for its lock', async ({
  profile,
}) => {
  const context = await profile.launch();
  const holder = await context.newPage();
  await holder.goto(HARNESS_URL);
  await holder.evaluate(async () => {
    const held = await window.mangrove.open('shared', { storage: 'indexeddb', thread: 'same' });
    Object.assign(window, { held });
  });
  const waiter = await context.newPage();
  for (const isTimeout of [false, true]) {
    // A page's first request takes a moment, in which Chromium forgets an abort.
    await waiter.goto(HARNESS_URL);
    const outcome = await waiter.evaluate((isTimeout) => {
      const controller = new AbortController();
      const { request } = LockManager.prototype;
      const { setTimeout } = window;
      let expire = (): unknown => undefined;
      LockManager.prototype.request = function (this: LockManager, ...args: Parameters<typeof request>) {
        const lock = request.apply(this, args);
        if (isTimeout) expire();
        else controller.abort(new Error('enough'));
        return lock;
      } as typeof request;
      if (isTimeout) {
        window.setTimeout = ((call: () => unknown, ms?: number) => {
          if (ms === 12_345) expire = call;
          return setTimeout(call, ms);
        }) as typeof window.setTimeout;
      }
      const opening = window.mangrove.open('shared', {
        storage: 'indexeddb',
        thread: 'same',
        lockTimeout: 12_345,
        signal: controller.signal,
      });
      return opening.then(
        () => 'opened',
        ({ code, message }: { code?: string; message: string }) => code ?? message,
      );
    }, isTimeout);
    expect(outcome).toBe(isTimeout ? 'KV_LOCKED' : 'enough');
  }
  // The request that was given up takes no lock.
  await holder.evaluate(() => (window as unknown as { held: { close(): Promise<void> } }).held.close());
  await waiter.evaluate(async () =>
    (await window.mangrove.open('shared', { storage: 'indexeddb', thread: 'same' })).close(),
  );
});

test('the end of a worker fires an error event, and another worker takes its place', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const seen = await page.evaluate(async () => {
    const seen: string[] = [];
    const workers: Worker[] = [];
    const { Worker } = window;
    window.Worker = class extends Worker {
      constructor(...args: ConstructorParameters<typeof Worker>) {
        super(...args);
        workers.push(this);
      }
    };
    const db = await window.mangrove.open('events');
    db.addEventListener('error', ({ error }) => seen.push(`error ${error.code}`));
    db.addEventListener('close', ({ reason, target }) =>
      seen.push(`close ${(reason as { code: string }).code} ${target === db}`),
    );
    await db.set('a', 1);
    workers[0]?.dispatchEvent(new ErrorEvent('error', { message: 'it died' }));
    seen.push(`${workers.length} workers, ${db.status}, ${await db.get('a')}`);
    // A replacement that ends at once is not replaced again.
    workers[1]?.dispatchEvent(new ErrorEvent('error', { message: 'it died' }));
    return seen;
  });
  expect(seen).toEqual(['error KV_IO', '2 workers, open, 1', 'error KV_IO', 'close KV_IO true']);
});
