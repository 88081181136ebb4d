// Schema versions among tabs: an upgrade runs once, and tabs with older code stop at once.
import type { Page } from '@playwright/test';
import { expect, test } from '../persistent.ts';
import { killBrowser } from '../processes.ts';
import { emptyTab, openTab } from '../tabs-page.ts';

const ENTRIES = 4000;
/** In the middle of a slice, some slices after the first. */
const HELD_AT = 2345;

interface Outcome {
  /** How often an upgrade began here. */
  began: number;
  /** Progress of an upgrade in another tab was reported. */
  waited: boolean;
  code?: string;
}

declare global {
  interface Window {
    outcome: Outcome;
    upgraded: Promise<Outcome>;
    /** Entries changed so far by the upgrade here. */
    changed: number;
    /** Lets the upgrade here go on. */
    release(): void;
  }
}

/** Opens the database at version 2, as `window.db`; its upgrade adds 1 to each entry, and stops at `holdAt` until it is released. */
function openNew(page: Page, holdAt = -1): Promise<void> {
  return page.evaluate(async (holdAt) => {
    const { migrations, updateEntries } = await window.loadMigrations();
    const outcome: Outcome = { began: 0, waited: false };
    window.outcome = outcome;
    window.changed = 0;
    const held = new Promise<void>((resolve) => {
      window.release = resolve;
    });
    const upgrade = migrations({
      2: [
        updateEntries<number, number>('n', async (value, key) => {
          window.changed++;
          if (key === holdAt) await held;
          return value + 1;
        }),
      ],
    });
    window.upgraded = window.mangrove
      .open('versions', {
        version: 2,
        upgrade,
        onUpgrade: ({ isHere, step }) => {
          if (!isHere) outcome.waited = true;
          else if (step === undefined) outcome.began++;
        },
      })
      .then(
        (db) => {
          window.db = db;
          return outcome;
        },
        ({ code }: { code: string }) => ({ ...outcome, code }),
      );
  }, holdAt);
}

const release = (page: Page): Promise<void> => page.evaluate(() => window.release());

const upgraded = (page: Page): Promise<Outcome> => page.evaluate(() => window.upgraded);

/** Waits until the upgrade is held at entry `at`: the slices before that one are committed. */
const isHeld = (page: Page, at: number): Promise<unknown> =>
  page.waitForFunction((count) => window.changed > count, at);

const waits = (page: Page): Promise<unknown> => page.waitForFunction(() => window.outcome.waited);

const fill = (page: Page): Promise<void> =>
  page.evaluate(async (count) => {
    await window.db.collection<number, number>('n').setMany(Array.from({ length: count }, (_, key) => [key, key]));
  }, ENTRIES);

/** Whether each entry was changed once, and the database is intact. */
const isRight = (page: Page): Promise<unknown> =>
  page.evaluate(async (count) => {
    const entries = await window.db.collection<number, number>('n').entries().toArray();
    const { problems } = await window.db.verify();
    return entries.length === count && entries.every(([key, value]) => value === key + 1) && problems.length === 0;
  }, ENTRIES);

test('a newer tab upgrades beside an older one, which learns of it and is refused', async ({ profile }) => {
  const context = await profile.launch();
  const old = await openTab(context, 'versions', { version: 1 });
  await fill(old);
  await old.evaluate(() => {
    window.seen = [];
    window.db.addEventListener('versionchange', ({ version }) => window.seen.push(version));
  });
  const unversioned = await openTab(context, 'versions');
  const page = await emptyTab(context);
  await openNew(page, HELD_AT);
  await isHeld(page, HELD_AT);
  const codes = (target: Page): Promise<unknown> =>
    target.evaluate(async () => {
      const codeOf = ({ code }: { code: string }): string => code;
      return [
        await window.db.get('a').then(() => 'read', codeOf),
        await window.db.set('a', 1).then(() => 'written', codeOf),
      ];
    });
  expect(await codes(unversioned)).toEqual(['read', 'KV_VERSION_CHANGED']);
  await expect.poll(() => old.evaluate(() => window.seen)).toEqual([2]);
  expect(await codes(old)).toEqual(['KV_VERSION_CHANGED', 'KV_VERSION_CHANGED']);
  await release(page);
  expect(await upgraded(page)).toEqual({ began: 1, waited: false });
  expect(await isRight(page)).toBe(true);
  expect(await codes(unversioned)).toEqual(['read', 'written']);
  expect(await codes(old)).toEqual(['KV_VERSION_CHANGED', 'KV_VERSION_CHANGED']);
  const refused = await old.evaluate(() =>
    window.mangrove.open('versions', { version: 1 }).then(
      () => 'opened',
      ({ code }: { code: string }) => code,
    ),
  );
  expect(refused).toBe('KV_VERSION_TOO_NEW');
  // Its worker leads all the while.
  await old.evaluate(() => window.db.close());
  expect(await isRight(page)).toBe(true);
});

test('two tabs that open at once upgrade once', async ({ profile }) => {
  const context = await profile.launch();
  const first = await openTab(context, 'versions', { version: 1 });
  await fill(first);
  await first.evaluate(() => window.db.close());
  const tabs = [await emptyTab(context), await emptyTab(context)];
  await Promise.all(tabs.map((tab) => openNew(tab, HELD_AT)));
  await Promise.race(tabs.map((tab) => isHeld(tab, HELD_AT)));
  await Promise.race(tabs.map(waits));
  await Promise.all(tabs.map(release));
  const outcomes = await Promise.all(tabs.map(upgraded));
  expect(outcomes.map(({ code }) => code)).toEqual([undefined, undefined]);
  expect(outcomes.map(({ began }) => began).sort()).toEqual([0, 1]);
  expect(outcomes.map(({ waited }) => waited).sort()).toEqual([false, true]);
  for (const tab of tabs) expect(await isRight(tab)).toBe(true);
});

test('a tab that is closed in the middle of its upgrade is succeeded by one that waits', async ({ profile }) => {
  const context = await profile.launch();
  const first = await openTab(context, 'versions', { version: 1 });
  await fill(first);
  await first.evaluate(() => window.db.close());
  const [dying, next] = [await emptyTab(context), await emptyTab(context)];
  await openNew(dying, HELD_AT);
  await isHeld(dying, HELD_AT);
  await openNew(next);
  await waits(next);
  await dying.close();
  expect(await upgraded(next)).toMatchObject({ began: 1 });
  expect(await isRight(next)).toBe(true);
});

test('an upgrade goes on when the tab that leads is closed', async ({ profile }) => {
  const context = await profile.launch();
  const old = await openTab(context, 'versions', { version: 1 });
  await fill(old);
  const page = await emptyTab(context);
  await openNew(page, HELD_AT);
  await isHeld(page, HELD_AT);
  await old.close();
  await release(page);
  expect((await upgraded(page)).code).toBe(undefined);
  expect(await isRight(page)).toBe(true);
});

test('killing the browser in the middle of an upgrade loses and repeats nothing', async ({ profile }) => {
  const context = await profile.launch();
  const first = await openTab(context, 'versions', { version: 1 });
  await fill(first);
  await first.evaluate(() => window.db.close());
  await openNew(first, HELD_AT);
  await isHeld(first, HELD_AT);
  expect(killBrowser(profile.directory)).toBeGreaterThan(1);
  await context.close().catch(() => undefined);
  const page = await emptyTab(await profile.launch());
  await openNew(page);
  expect((await upgraded(page)).code).toBe(undefined);
  expect(await isRight(page)).toBe(true);
});
