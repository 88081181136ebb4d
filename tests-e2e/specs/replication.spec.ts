// Tabs of one database, and databases of several devices, over a real server.
import process from 'node:process';
import type { BrowserContext, Page } from '@playwright/test';
import { Cluster } from '../../bindings-js/replication/test-servers/support/nats.ts';
import { test as base, expect } from '../persistent.ts';
import { emptyTab, setFrozen } from '../tabs-page.ts';

const test = base.extend<{ context: BrowserContext; cluster: Cluster }>({
  context: async ({ profile }, use) => use(await profile.launch()),
  cluster: async ({ context }, use) => {
    const cluster = await Cluster.start();
    const page = await emptyTab(context);
    await page.evaluate((servers) => window.createStreams(servers), cluster.servers);
    await page.close();
    await use(cluster);
    await cluster.stop();
  },
});

test.skip(process.env['NATS_SERVER'] === undefined, 'needs nats-server: node .ci/setup.mjs --replication');

async function start(page: Page, { servers }: Cluster, device: string, isInWorker = false): Promise<Page> {
  await page.evaluate(([name, addresses, withWorker]) => window.startSync(name, addresses, withWorker), [
    device,
    servers,
    isInWorker,
  ] as const);
  return page;
}

const open = async (context: BrowserContext, cluster: Cluster, device = 'a', isInWorker = false): Promise<Page> =>
  start(await emptyTab(context), cluster, device, isInWorker);

const note = (page: Page, key: string, value: unknown = true): Promise<void> =>
  page.evaluate(([at, what]) => window.replicated.db.collection('notes').set(at as string, what), [
    key,
    value,
  ] as const);

const noted = (page: Page): Promise<unknown> =>
  page.evaluate(() => window.replicated.db.collection('notes').keys().toArray());

/** Adds to a counter that all devices share. */
const bump = (page: Page): Promise<unknown> =>
  page.evaluate(() =>
    window.replicated.replication.transaction((tx) =>
      tx.collection<string, number>('accounts').update('n', (old = 0) => old + 1),
    ),
  );

const flush = (page: Page): Promise<void> => page.evaluate(() => window.replicated.replication.flush());
const contents = (page: Page): Promise<unknown> =>
  page.evaluate(async () =>
    JSON.stringify(
      await Promise.all(['notes', 'accounts'].map((name) => window.replicated.db.collection(name).entries().toArray())),
    ),
  );
const appends = (page: Page): Promise<number> => page.evaluate(() => window.replicated.appends);
const state = (page: Page): Promise<string> => page.evaluate(() => JSON.stringify(window.replicated.replication.state));
const shows = (page: Page, text: string | RegExp): Promise<void> =>
  expect(page.locator('#replication')).toHaveText(text, { timeout: 30_000 });

/** Waits until two pages have the same entries, and nothing to send. */
async function meet(one: Page, other: Page): Promise<void> {
  await Promise.all([flush(one), flush(other)]);
  await expect.poll(async () => (await contents(one)) === (await contents(other)), { timeout: 30_000 }).toBe(true);
}

test('all tabs see state, errors and conflicts of the one that replicates', async ({ context, cluster }) => {
  test.setTimeout(120_000);
  const tabs = [await open(context, cluster), await open(context, cluster), await open(context, cluster)] as const;
  const other = await open(context, cluster, 'b');
  for (const page of [...tabs, other]) await shows(page, 'live, 0 pending, no error');
  await note(tabs[2], 'k', 'old');
  await meet(tabs[1], other);
  await expect.poll(async () => new Set(await Promise.all(tabs.map(state))).size).toBe(1);

  await cluster.nodes[0]?.kill();
  await note(tabs[1], 'k', 'mine');
  for (const page of tabs) await shows(page, 'offline, 1 pending, KV_LOG_UNAVAILABLE');
  // A tab that comes later is told.
  const late = await open(context, cluster);
  await shows(late, 'offline, 1 pending, KV_LOG_UNAVAILABLE');
  await note(other, 'k', 'theirs');
  await shows(other, /^offline, 1 pending/);
  await cluster.nodes[0]?.start();
  for (const page of [...tabs, late, other]) await shows(page, 'live, 0 pending, no error');
  await meet(tabs[0], other);
  const conflict = { collection: 'notes', key: 'k', mine: 'mine', theirs: 'theirs' };
  for (const page of [...tabs, late])
    await expect.poll(() => page.evaluate(() => window.replicated.conflicts)).toEqual([conflict]);
  const resolved = await Promise.all([...tabs, late].map((page) => page.evaluate(() => window.replicated.resolved)));
  expect(resolved.flat()).toEqual([conflict]);
  const { position } = JSON.parse(await state(tabs[2]));
  expect(await tabs[1].evaluate(() => window.replicated.replication.compact())).toEqual({ position: position + 1 });
  // One tab has sent everything.
  expect((await Promise.all([...tabs, late].map(appends))).filter((count) => count > 0)).toHaveLength(1);
});

test('tabs close, reload and freeze: another one takes over, nothing is lost and nothing happens twice', async ({
  context,
  cluster,
}) => {
  test.setTimeout(180_000);
  const other = await open(context, cluster, 'b');
  const first = await open(context, cluster);
  await shows(first, /^live/);
  const tabs = [await open(context, cluster), await open(context, cluster), await open(context, cluster)] as const;
  const keys: string[] = [];
  let bumps = 0;
  const work = async (pages: readonly Page[], round: string): Promise<void> => {
    await Promise.all(
      pages.map(async (page, at) => {
        for (let nth = 0; nth < 5; nth++) {
          const key = `${round} ${at} ${nth}`;
          await note(page, key);
          keys.push(key);
          await bump(page);
          bumps++;
        }
      }),
    );
  };
  await work([first, ...tabs, other], 'at first');
  const [closing] = await Promise.all([first.close(), work(tabs, 'while the leader closes')]);
  expect(closing).toBeUndefined();
  const leading = async (): Promise<Page> => {
    const before = await Promise.all(tabs.map(appends));
    await note(tabs[0], 'probe', Math.random());
    await flush(tabs[0]);
    const now = await Promise.all(tabs.map(appends));
    return tabs[now.findIndex((count, at) => count > (before[at] as number))] as Page;
  };
  const second = await leading();
  const rest = tabs.filter((page) => page !== second);
  await Promise.all([
    second
      .reload()
      .then(() => second.waitForFunction(() => document.title === 'ready'))
      .then(() => start(second, cluster, 'a')),
    work(rest, 'while the leader reloads'),
  ]);
  await shows(second, /^live/);
  const third = await leading();
  expect(third === second).toBe(false);
  await setFrozen(third, true);
  await work(
    tabs.filter((page) => page !== third),
    'while a tab is frozen',
  );
  expect((await leading()) === third).toBe(false);
  await setFrozen(third, false);
  await shows(third, /^live/);
  await work(tabs, 'at last');

  await meet(tabs[0], other);
  expect(await other.evaluate(() => window.replicated.db.collection('accounts').get('n'))).toBe(bumps);
  const seen = await other.evaluate(() => window.replicated.seen.filter((key) => key !== 'probe'));
  expect(seen.sort()).toEqual(keys.sort());
  expect(await Promise.all([...tabs, other].map((page) => page.evaluate(() => window.replicated.errors)))).toEqual([
    [],
    [],
    [],
    [],
  ]);
});

test('a strict transaction runs again if the tab that kept its reads is gone', async ({ context, cluster }) => {
  test.setTimeout(120_000);
  // The first tab has the database's files, and replicates.
  const leader = await open(context, cluster);
  const tab = await open(context, cluster);
  await shows(leader, /^live/);
  const runs = tab.evaluate(async () => {
    let count = 0;
    await window.replicated.replication.transaction(async (tx) => {
      const accounts = tx.collection<string, number>('accounts');
      const old = (await accounts.get('n')) ?? 0;
      if (++count === 1)
        await new Promise((resolve) => {
          Object.assign(window, { go: resolve });
        });
      await accounts.set('n', old + 1);
    });
    return count;
  });
  await tab.waitForFunction(() => 'go' in window);
  await leader.close();
  await tab.evaluate(() => (window as unknown as { go(): void }).go());
  expect(await runs).toBeGreaterThan(1);
  await shows(tab, /^live/);
  expect(await tab.evaluate(() => window.replicated.db.collection('accounts').get('n'))).toBe(1);
});

test('offline, tabs go on, and a strict transaction of a waiting tab takes effect once the log answers', async ({
  context,
  cluster,
}) => {
  test.setTimeout(120_000);
  const tabs = [await open(context, cluster), await open(context, cluster)] as const;
  const other = await open(context, cluster, 'b');
  for (const page of [...tabs, other]) await shows(page, /^live/);
  await bump(tabs[1]);
  await cluster.nodes[0]?.kill();
  await note(tabs[1], 'offline 1');
  await shows(tabs[1], 'offline, 1 pending, KV_LOG_UNAVAILABLE');
  const lost = bump(tabs[0]).catch(() => undefined);
  const bumps = Promise.all([bump(tabs[1]), bump(other)]);
  await note(tabs[0], 'offline 0');
  // The tab that replicates goes while it is offline.
  await tabs[0].close();
  await lost;
  await cluster.nodes[0]?.start();
  await bumps;
  await meet(tabs[1], other);
  const total = await tabs[1].evaluate(() => window.replicated.db.collection('accounts').get('n'));
  // The closed tab cannot tell whether its own had an effect.
  expect([3, 4]).toContain(total);
  expect(await noted(other)).toEqual(['offline 0', 'offline 1']);
});

test('after a logout nothing is sent, and what was written is sent once after the next login', async ({
  context,
  cluster,
}) => {
  test.setTimeout(120_000);
  const tabs = [await open(context, cluster), await open(context, cluster)] as const;
  const other = await open(context, cluster, 'b');
  for (const page of [...tabs, other]) await shows(page, /^live/);
  await note(tabs[0], 'before');
  await meet(tabs[1], other);
  // What is pending when the user leaves was written offline.
  await cluster.nodes[0]?.kill();
  await note(tabs[1], 'pending');
  await shows(tabs[0], /^offline, 1 pending/);
  await Promise.all(tabs.map((page) => page.evaluate(() => window.replicated.replication.close())));
  await cluster.nodes[0]?.start();
  await shows(other, /^live/);
  await note(tabs[0], 'logged out');
  await note(other, 'meanwhile');
  await flush(other);
  for (const page of tabs) await shows(page, /^stopped/);
  expect(await noted(other)).toEqual(['before', 'meanwhile']);
  expect(await noted(tabs[1])).toEqual(['before', 'logged out', 'pending']);

  for (const page of tabs) await page.close();
  const again = await open(context, cluster);
  await meet(again, other);
  expect(await noted(other)).toEqual(['before', 'logged out', 'meanwhile', 'pending']);
  expect((await other.evaluate(() => window.replicated.seen)).sort()).toEqual([
    'before',
    'logged out',
    'meanwhile',
    'pending',
  ]);
});

test('while the tab that replicates hangs, others show that, and go on', async ({ context, cluster, browserName }) => {
  test.skip(browserName === 'firefox', 'Firefox delivers messages to a page while it shows an alert');
  test.setTimeout(120_000);
  const hanging = await open(context, cluster);
  await shows(hanging, /^live/);
  const page = await open(context, cluster);
  const other = await open(context, cluster, 'b');
  await shows(page, /^live/);
  const dialog = hanging.waitForEvent('dialog');
  const alerted = hanging.evaluate(() => window.alert('This page does nothing until it is closed.'));
  const held = await dialog;
  await shows(page, /^waiting/);
  await note(page, 'k');
  const bumped = bump(page);
  await held.accept();
  await alerted;
  await bumped;
  await shows(page, 'live, 0 pending, no error');
  await meet(page, other);
  expect(await other.evaluate(() => window.replicated.db.collection('accounts').get('n'))).toBe(1);
});

test('a worker replicates for its page and for other tabs, and another one takes over', async ({
  context,
  cluster,
}) => {
  test.setTimeout(120_000);
  const tabs = [
    await open(context, cluster, 'a', true),
    await open(context, cluster, 'a', true),
    await open(context, cluster, 'a', true),
  ] as const;
  const other = await open(context, cluster, 'b');
  for (const page of [...tabs, other]) await shows(page, 'live, 0 pending, no error');
  await note(tabs[1], 'k', 'old');
  await Promise.all([...tabs, other].map(bump));
  await meet(tabs[2], other);
  const counts = await Promise.all(tabs.map(appends));
  expect(counts.filter((count) => count > 0)).toHaveLength(1);
  const leading = tabs[counts.findIndex((count) => count > 0)] as Page;
  const rest = tabs.filter((page) => page !== leading);
  // Its worker goes on, or another one takes over.
  await setFrozen(leading, true);
  await Promise.all(rest.map(bump));
  await setFrozen(leading, false);
  await shows(leading, /^live/);
  // Another page in the same tab: the worker is gone, or kept without the lock.
  await leading.goto('about:blank');
  await Promise.all(rest.map(bump));
  await note(rest[0] as Page, 'k', 'new');
  await meet(rest[1] as Page, other);
  await leading.goBack();
  await leading.waitForFunction(() => document.title === 'ready');
  if (await leading.evaluate(() => window.replicated === undefined)) await start(leading, cluster, 'a', true);
  await shows(leading, 'live, 0 pending, no error');

  await cluster.nodes[0]?.kill();
  await note(leading, 'k', 'mine');
  for (const page of tabs) await shows(page, 'offline, 1 pending, KV_LOG_UNAVAILABLE');
  await note(other, 'k', 'theirs');
  await shows(other, /^offline, 1 pending/);
  await cluster.nodes[0]?.start();
  for (const page of [...tabs, other]) await shows(page, 'live, 0 pending, no error');
  await meet(leading, other);
  const conflict = { collection: 'notes', key: 'k', mine: 'mine', theirs: 'theirs' };
  await expect
    .poll(async () => (await Promise.all(tabs.map((page) => page.evaluate(() => window.replicated.resolved)))).flat())
    .toEqual([conflict]);
  for (const page of tabs) expect(await page.evaluate(() => window.replicated.conflicts)).toEqual([conflict]);
  const { position } = JSON.parse(await state(leading));
  expect(await leading.evaluate(() => window.replicated.replication.compact())).toEqual({ position: position + 1 });
  expect(await other.evaluate(() => window.replicated.db.collection('accounts').get('n'))).toBe(8);
  expect(
    (await Promise.all([...tabs, other].map((page) => page.evaluate(() => window.replicated.errors)))).flat(),
  ).toEqual([]);
});
