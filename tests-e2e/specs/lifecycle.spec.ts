// A database while pages come and go, workers end and engines trap. Nothing hangs, and every call
// that gets no answer gets a typed error.
import { readFileSync } from 'node:fs';
import type { Page } from '@playwright/test';
import { BASE_URL, HARNESS_URL, keepsPages, launchProfile } from '../browser.ts';
import { expect, test } from '../persistent.ts';
import { processesOf } from '../processes.ts';
import { emptyTab, get, leads, openIn, openTab, set, setFrozen, setVisible } from '../tabs-page.ts';

const code = (page: Page, run: string): Promise<string> =>
  page.evaluate(
    (text) =>
      (0, eval)(text).then(
        () => 'none',
        (error: { code?: string }) => error.code ?? String(error),
      ),
    run,
  );

test('a reloaded leader loses no writes and rejoins', async ({ profile }) => {
  const context = await profile.launch();
  const leader = await openTab(context);
  const other = await openTab(context);
  await set(leader, 'before', 1);
  // This call is made while no tab leads.
  await Promise.all([leader.reload(), set(other, 'meanwhile', 2)]);
  await openIn(leader);
  expect(await Promise.all([get(leader, 'before'), get(leader, 'meanwhile'), get(other, 'before')])).toEqual([1, 2, 1]);
  expect(await leads(other)).toBe(true);
});

test('reloading the only tab discards its open transactions', async ({ profile }) => {
  const page = await openTab(await profile.launch());
  await set(page, 'committed', 1);
  await page.evaluate(() => {
    const tx = window.db.begin();
    void tx.set('open', 1);
    void window.db.transaction(async (inner) => {
      await inner.set('waiting', 1);
      await new Promise(() => {});
    });
    return tx.get('open');
  });
  await page.reload();
  await openIn(page);
  expect(await page.evaluate(() => window.db.keys().toArray())).toEqual(['committed']);
  expect(await page.evaluate(async () => (await window.db.verify()).ok)).toBe(true);
});

test('relaxed commits survive leaving the page and closing the browser', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openTab(context, 'shared', { durability: 'relaxed' });
  await page.evaluate(async () => {
    for (let index = 0; index < 50; index++) await window.db.set(index, index);
  });
  await page.goto('about:blank');
  await page.goto(HARNESS_URL);
  await openIn(page, 'shared', { durability: 'relaxed' });
  const found = await page.evaluate(async () => {
    const { version, durableVersion } = await window.db.stats();
    return { count: await window.db.count(), isDurable: version === durableVersion };
  });
  // Relaxed commits were flushed when the page was left.
  expect(found).toEqual({ count: 50, isDurable: true });
  await set(page, 'last', 1);
  await context.close();
  const again = await openTab(await profile.launch());
  expect(await again.evaluate(() => window.db.count())).toBe(51);
});

test.describe('in the back/forward cache', () => {
  test.skip(
    ({ browserName }) => browserName !== 'chromium',
    'WebDriver BiDi loses a page that returns from this cache',
  );

  /**
   * A page of another site, so of another process: Chromium may crash the process of a page that it
   * drops (docs/BROWSERS.md), but not the pages that the user sees.
   */
  const ELSEWHERE = BASE_URL.replace('localhost', '127.0.0.1');

  interface Kept {
    isPersisted: boolean[];
    snapshot: ReturnType<typeof window.db.snapshot>;
  }

  /** Opens a page that the browser keeps when the tab navigates elsewhere. */
  async function openKept(
    directory: string,
  ): Promise<{ page: Page; other: () => Promise<Page>; close: () => Promise<void> }> {
    const context = await launchProfile('chromium', directory, keepsPages);
    const page = await openTab(context);
    await page.evaluate(async () => {
      const kept = window as unknown as Kept;
      kept.isPersisted = [];
      addEventListener('pageshow', (event) => kept.isPersisted.push(event.persisted));
      await window.db.set('a', 1);
      kept.snapshot = window.db.snapshot();
      await kept.snapshot.get('a');
    });
    return { page, other: () => openTab(context), close: () => context.close() };
  }

  /**
   * Goes back; returns whether the browser kept the page. It drops a page whose worker had no time
   * to release its locks.
   */
  async function goBack(page: Page): Promise<boolean> {
    await page.evaluate(() => history.back()).catch(() => undefined);
    const kept = (): Promise<boolean | undefined> =>
      page
        .evaluate(() =>
          location.port !== '' && document.title === 'ready'
            ? ((window as unknown as Partial<Kept>).isPersisted?.[0] ?? ('db' in window ? undefined : false))
            : undefined,
        )
        .catch(() => undefined);
    await page.waitForURL(`${HARNESS_URL}/`, { waitUntil: 'commit' });
    await expect.poll(kept, { timeout: 20_000 }).toBeDefined();
    return (await kept()) ?? false;
  }

  const readKept = (page: Page): Promise<unknown> =>
    page.evaluate(async () => {
      const { snapshot } = window as unknown as Kept;
      return snapshot.get('a').catch((error: { code?: string }) => error.code);
    });

  test('a restored page continues, with its snapshots if nothing was committed', async ({ profile }) => {
    const { page, close } = await openKept(profile.directory);
    await page.goto(ELSEWHERE);
    if (await goBack(page)) {
      expect(await readKept(page)).toBe(1);
      await set(page, 'a', 2);
      expect(await Promise.all([readKept(page), get(page, 'a')])).toEqual([1, 2]);
      expect(await page.evaluate(() => window.events)).toEqual([]);
    } else {
      await openIn(page);
      expect(await get(page, 'a')).toBe(1);
    }
    await close();
  });

  test('others go on while a page is kept; its snapshot is lost if the state is gone', async ({ profile }) => {
    const { page, other, close } = await openKept(profile.directory);
    await page.goto(ELSEWHERE);
    const second = await other();
    await set(second, 'a', 2);
    expect(await leads(second)).toBe(true);
    // The next leader no longer has the earlier state.
    await second.evaluate(() => window.db.close());
    await openIn(second);
    if (await goBack(page)) expect(await readKept(page)).toBe('KV_SNAPSHOT_LOST');
    else await openIn(page);
    expect(await get(page, 'a')).toBe(2);
    await set(page, 'a', 3);
    expect(await get(second, 'a')).toBe(3);
    await close();
  });

  test('calls made as a page is left are answered when it is restored', async ({ profile }) => {
    const { page, other, close } = await openKept(profile.directory);
    const second = await other();
    await page.evaluate(() => {
      addEventListener('pagehide', () => {
        window.seen = [];
        for (let index = 0; index < 20; index++)
          void window.db
            .update('n', (old) => ((old as number | undefined) ?? 0) + 1)
            .then(
              (n) => window.seen.push(n),
              (error: unknown) => window.seen.push(String(error)),
            );
      });
    });
    await page.goto(ELSEWHERE);
    await set(second, 'b', 1);
    if (await goBack(page)) {
      await expect
        .poll(() => page.evaluate(() => window.seen))
        .toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
      expect(await get(second, 'n')).toBe(20);
    } else {
      // The message with all calls was executed as a whole or not at all.
      expect([20, undefined]).toContain(await get(second, 'n'));
    }
    await close();
  });

  test('a page left in the middle of a commit gives way to others and does not crash the next page', async ({
    profile,
  }) => {
    const HALT_MS = 1500;
    const { page, other, close } = await openKept(profile.directory);
    const second = await other();
    let isCrashed = false;
    page.on('crash', () => {
      isCrashed = true;
    });
    await page.evaluate(
      (ms) =>
        new Promise((resolve) => {
          // When the worker continues, its page is gone and it has more to write.
          const worker = window.workers.at(-1)!;
          worker.addEventListener('message', ({ data }: MessageEvent<object>) => {
            if ('fault' in data) resolve(undefined);
          });
          worker.postMessage({ fault: 'halt', at: 'write', isAfter: true, ms });
          void window.db.setMany(
            Array.from({ length: 100 }, (_, index) => [index, crypto.getRandomValues(new Uint8Array(50_000))]),
          );
        }),
      HALT_MS,
    );
    // A page of the same site shares the process.
    await page.goto(BASE_URL);
    // A hidden tab steals no locks, so the browser has to drop the page.
    await setVisible(second, false);
    await set(second, 'b', 1);
    await page.waitForTimeout(2 * HALT_MS);
    expect(isCrashed).toBe(false);
    expect(await page.title()).toContain('Mangrove');
    expect(await second.evaluate(async () => [await window.db.get('b'), (await window.db.verify()).ok])).toEqual([
      1,
      true,
    ]);
    await close();
  });
});

test('a leader about to be frozen hands over, and follows when it is resumed', async ({ profile }) => {
  const context = await profile.launch();
  const leader = await openTab(context);
  const other = await openTab(context);
  await set(leader, 'a', 1);
  await setFrozen(leader, true);
  await set(other, 'a', 2);
  await expect.poll(() => leads(other)).toBe(true);
  await setFrozen(leader, false);
  expect(await get(leader, 'a')).toBe(2);
  await set(leader, 'a', 3);
  expect(await get(other, 'a')).toBe(3);
  expect(await leader.evaluate(() => window.events)).toEqual([]);
});

test('calls that a follower makes as it is frozen are answered', async ({ profile }) => {
  const context = await profile.launch();
  const leader = await openTab(context);
  const other = await openTab(context);
  await set(other, 'a', 1);
  await other.evaluate(() => {
    window.seen = [];
    document.addEventListener(
      'freeze',
      () =>
        void window.db.set('frozen', 1).then(
          () => window.seen.push('done'),
          (error: unknown) => window.seen.push(String(error)),
        ),
    );
  });
  await setFrozen(other, true);
  await set(leader, 'a', 2);
  await setFrozen(other, false);
  await expect.poll(() => other.evaluate(() => window.seen), { timeout: 20_000 }).toEqual(['done']);
  expect(await Promise.all([get(other, 'a'), get(leader, 'frozen')])).toEqual([2, 1]);
});

test('while the process of a leader is suspended calls fail in time, and work when it resumes', async ({
  profile,
  browserName,
}) => {
  test.skip(browserName !== 'chromium', 'in Firefox tabs share a process');
  test.setTimeout(120_000);
  const context = await profile.launch();
  const leader = await openTab(context);
  await set(leader, 'a', 1);
  // A page of another site never shares the leader's process.
  const before = processesOf(profile.directory);
  expect(before.length).toBeGreaterThan(1);
  const other = await openTab(context, 'shared', { lockTimeout: 4000 });
  await set(other, 'a', 2);
  const isStopped = async (pid: number): Promise<boolean> => {
    try {
      process.kill(pid, 'SIGSTOP');
    } catch {
      return false;
    }
    const answers = await Promise.all(
      [leader, other].map((page) =>
        Promise.race([
          page.evaluate(() => true),
          new Promise<boolean>((resolve) => {
            setTimeout(() => resolve(false), 2000);
          }),
        ]),
      ),
    );
    if (!answers[0] && answers[1]) return true;
    process.kill(pid, 'SIGCONT');
    return false;
  };
  let stopped: number | undefined;
  for (const pid of before.filter(isRenderer)) if (stopped === undefined && (await isStopped(pid))) stopped = pid;
  test.skip(stopped === undefined, 'both pages share a process');
  const outcome = await other.evaluate(() =>
    window.db.set('b', 1).then(
      () => 'done',
      (error: { code?: string }) => error.code,
    ),
  );
  expect(['KV_TIMEOUT', 'KV_LOCKED']).toContain(outcome);
  process.kill(stopped!, 'SIGCONT');
  await expect
    .poll(
      () =>
        other.evaluate(() =>
          window.db.set('c', 1).then(
            () => 'done',
            (error: { code?: string }) => error.code,
          ),
        ),
      { timeout: 40_000 },
    )
    .toBe('done');
  await expect
    .poll(() => leader.evaluate(() => window.db.get('c').catch((error: { code?: string }) => error.code)), {
      timeout: 40_000,
    })
    .toBe(1);
  await set(leader, 'd', 1);
  expect(await get(other, 'd')).toBe(1);
  expect(await other.evaluate(async () => (await window.db.verify()).ok)).toBe(true);
});

function isRenderer(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('--type=renderer');
  } catch {
    return false;
  }
}

/** Leaves a snapshot, a watch, an iterator and a transaction open, to observe their end. */
async function openMuch(page: Page): Promise<void> {
  await page.evaluate(async () => {
    const { db } = window;
    await db.set('a', 1);
    const snapshot = db.snapshot();
    await snapshot.get('a');
    const watch = db.watch();
    const first = watch.next();
    await db.set('a', 2);
    await first;
    const iterator = db.entries();
    const lasting = { runs: 0, go: (): void => {}, began: (): void => {} };
    const began = new Promise<void>((resolve) => {
      lasting.began = resolve;
    });
    const transaction = db.transaction(async (tx) => {
      lasting.runs++;
      const value = await tx.get('a');
      lasting.began();
      if (lasting.runs === 1)
        await new Promise<void>((resolve) => {
          lasting.go = resolve;
        });
      await tx.set('transaction', value);
      return value;
    });
    transaction.catch(() => undefined);
    await began;
    Object.assign(window, { snapshot, watch, iterator, lasting, transaction });
  });
}

interface Open {
  snapshot: ReturnType<typeof window.db.snapshot>;
  watch: ReturnType<typeof window.db.watch>;
  lasting: { runs: number; go(): void };
  transaction: Promise<unknown>;
}

test('a worker that ends is replaced: pending calls get typed errors, what was open is lost, later calls work', async ({
  profile,
}) => {
  const page = await openTab(await profile.launch());
  await openMuch(page);
  const outcome = await page.evaluate(async () => {
    const { db, snapshot, watch, lasting, transaction } = window as unknown as Window & Open;
    const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
      promise.then(
        (value) => value,
        (error: { code?: string }) => error.code ?? String(error),
      );
    const unanswered = codeOf(db.set('b', 1));
    // Gives the message time to be sent.
    await Promise.resolve().then(() => undefined);
    window.workers.at(-1)!.terminate();
    const answers = [await unanswered, await codeOf(snapshot.get('a')), await codeOf(watch.next())];
    lasting.go();
    return {
      answers,
      transaction: await codeOf(transaction),
      runs: lasting.runs,
      a: await db.get('a'),
      set: await codeOf(db.set('c', 1)),
      workers: window.workers.length,
    };
  });
  expect(outcome).toEqual({
    answers: ['KV_IO', 'KV_SNAPSHOT_LOST', 'KV_TRUNCATED_FEED'],
    transaction: 2,
    runs: 2,
    a: 2,
    set: undefined,
    workers: 2,
  });
  expect(await page.evaluate(() => window.events)).toEqual(['error KV_IO']);
  expect(await page.evaluate(async () => (await window.db.verify()).ok)).toBe(true);
});

test('a trapped engine is replaced within its worker', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openTab(context);
  const other = await openTab(context);
  await openMuch(page);
  const outcome = await page.evaluate(async () => {
    const { db, lasting, transaction } = window as unknown as Window & Open;
    const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
      promise.then(
        (value) => value,
        (error: { code?: string }) => error.code ?? String(error),
      );
    window.workers.at(-1)!.postMessage({ fault: 'trap' });
    // The request that hit the trap is retried, so no caller notices.
    const answers = [await codeOf(db.set('b', 1)), await db.get('b')];
    lasting.go();
    return { answers, transaction: await codeOf(transaction), runs: lasting.runs, workers: window.workers.length };
  });
  expect(outcome).toEqual({ answers: [undefined, 1], transaction: 2, runs: 2, workers: 1 });
  expect(await page.evaluate(() => window.events)).toEqual(['error KV_IO']);
  await set(other, 'c', 1);
  expect(await Promise.all([get(page, 'c'), get(other, 'b')])).toEqual([1, 1]);
  expect(await page.evaluate(async () => (await window.db.verify()).ok)).toBe(true);
});

for (const isAfter of [false, true])
  for (const at of ['write', 'flush'] as const) {
    test(`terminating the worker ${isAfter ? 'after' : 'before'} the ${at} of a commit leaves all or none of it`, async ({
      profile,
    }) => {
      const context = await profile.launch();
      const page = await openTab(context);
      const other = await openTab(context);
      await set(page, 'a', 1);
      const outcome = await page.evaluate(
        async ([point, after]) => {
          const worker = window.workers.at(-1)!;
          worker.addEventListener('message', ({ data }: MessageEvent<object>) => {
            if ('fault' in data) worker.terminate();
          });
          worker.postMessage({ fault: 'halt', at: point, isAfter: after });
          return window.db
            .setMany([
              ['x', 1],
              ['y', 1],
            ])
            .then(
              () => 'done',
              (error: { code?: string }) => error.code,
            );
        },
        [at, isAfter] as const,
      );
      expect(outcome).toBe('KV_IO');
      const found = await other.evaluate(() => window.db.getMany(['x', 'y']));
      expect([
        [1, 1],
        [undefined, undefined],
      ]).toContainEqual(found);
      // A completed write to the file survives the worker.
      if (isAfter) expect(found).toEqual([1, 1]);
      await set(page, 'x', 2);
      expect(await get(other, 'x')).toBe(2);
      expect(await other.evaluate(async () => (await window.db.verify()).ok)).toBe(true);
    });

    test(`a follower's commit is executed once if the leader's worker is terminated ${isAfter ? 'after' : 'before'} the ${at}`, async ({
      profile,
    }) => {
      const context = await profile.launch();
      const leader = await openTab(context);
      const other = await openTab(context);
      await set(leader, 'n', 0);
      await leader.evaluate(
        ([point, after]) => {
          const worker = window.workers.at(-1)!;
          worker.addEventListener('message', ({ data }: MessageEvent<object>) => {
            if ('fault' in data) worker.terminate();
          });
          worker.postMessage({ fault: 'halt', at: point, isAfter: after });
        },
        [at, isAfter] as const,
      );
      // A removal executed twice would find nothing the second time.
      const outcome = await other.evaluate(() =>
        Promise.all([window.db.delete('n'), window.db.update('m', (old) => ((old as number | undefined) ?? 0) + 1)]),
      );
      expect(outcome).toEqual([true, 1]);
      expect(await Promise.all([get(leader, 'm'), get(other, 'n')])).toEqual([1, undefined]);
    });
  }

test('a hidden leader hands over to a visible tab', async ({ profile }) => {
  const context = await profile.launch();
  const first = await openTab(context);
  const second = await openTab(context);
  await set(first, 'a', 1);
  await setVisible(second, false);
  await setVisible(first, false);
  await set(second, 'a', 2);
  // While all tabs are hidden, the leader stays.
  expect(await leads(first)).toBe(true);
  await setVisible(second, true);
  await expect.poll(() => leads(second)).toBe(true);
  await Promise.all([set(first, 'b', 1), set(second, 'c', 1)]);
  expect(await Promise.all([get(first, 'c'), get(second, 'b'), get(second, 'a')])).toEqual([1, 1, 2]);
  expect(await first.evaluate(() => window.events)).toEqual([]);
});

test('a page can close and reopen a database that another page has open', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openTab(context);
  const other = await openTab(context);
  await set(page, 'a', 1);
  await page.evaluate(() => window.db.close());
  await openIn(page);
  expect(await get(page, 'a')).toBe(1);
  // Reopens without waiting for the close.
  const found = await page.evaluate(async () => {
    const closing = window.db.close();
    const second = await window.mangrove.open('shared');
    await closing;
    const value = await second.get('a');
    await second.close();
    return value;
  });
  expect(found).toBe(1);
  expect(await get(other, 'a')).toBe(1);
});

test('two opens in one page share the database', async ({ profile }) => {
  const page = await emptyTab(await profile.launch());
  const found = await page.evaluate(async () => {
    const [a, b] = await Promise.all([window.mangrove.open('twice'), window.mangrove.open('twice')]);
    await a.set('k', 1);
    const read = await b.get('k');
    await a.close();
    await b.set('k', 2);
    return [read, await b.get('k'), a.status, b.status];
  });
  expect(found).toEqual([1, 2, 'closed', 'open']);
});

test('open times out with KV_LOCKED if a tab of another version leads', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  const other = await emptyTab(context);
  // Simulates a leader of a future version with a different protocol.
  await other.evaluate(() => {
    const channel = new BroadcastChannel('mangrove-kv:opfs:skew');
    const lead = (): void =>
      channel.postMessage({ type: 'lead', protocol: 99, term: Date.now(), client: 'new', version: 1 });
    channel.onmessage = lead;
    return new Promise<void>((resolve) => {
      void navigator.locks.request('mangrove-kv:opfs:skew:leader', () => {
        resolve();
        return new Promise(() => {});
      });
    });
  });
  expect(await code(page, "mangrove.open('skew', { lockTimeout: 1500 })")).toBe('KV_LOCKED');
  await other.close();
  await openIn(page, 'skew');
  await set(page, 'a', 1);
});

test('a leader gets a blocked event when a tab of another version waits for it', async ({ profile }) => {
  const context = await profile.launch();
  const page = await openTab(context, 'skew');
  const other = await emptyTab(context);
  await other.evaluate(() =>
    new BroadcastChannel('mangrove-kv:opfs:skew').postMessage({ type: 'who', protocol: 99, client: 'new' }),
  );
  await expect.poll(() => page.evaluate(() => window.events)).toEqual(['blocked']);
  await set(page, 'a', 1);
});

test('open waits for a silent leader no longer than lockTimeout, and can be aborted', async ({ profile }) => {
  const context = await profile.launch();
  const page = await emptyTab(context);
  const other = await emptyTab(context);
  await other.evaluate(
    () =>
      new Promise<void>((resolve) => {
        void navigator.locks.request('mangrove-kv:opfs:mute:leader', () => {
          resolve();
          return new Promise(() => {});
        });
      }),
  );
  expect(await code(page, "mangrove.open('mute', { lockTimeout: 1500 })")).toBe('KV_LOCKED');
  const aborted = await page.evaluate(() => {
    const controller = new AbortController();
    setTimeout(() => controller.abort('enough'), 100);
    return window.mangrove.open('mute', { signal: controller.signal }).catch((reason: unknown) => reason);
  });
  expect(aborted).toBe('enough');
});
