// One visit to the example in a browser of its own: two tabs that show the views, edits, and what the browser takes.
import { chromium } from '@playwright/test';
import type { BrowserContext, Page } from '@playwright/test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ARGS, CHROMIUM } from '../driver/browser.ts';
import { browserMemory, peakOfLargestProcess } from '../driver/processes.ts';
import { median } from '../src/report/numbers.ts';
import type { Expected } from './expected.ts';

/** Milliseconds after which a storage is given up. */
const PATIENCE = 3_600_000;
/** Edits of a visit, and the milliseconds after which one that another tab does not show is given up, and all after it. */
const EDITS = 6;
const EDITING = 60_000;
/** Milliseconds for a browser to come to rest. */
const REST = 3000;

export interface VisitFigures {
  /** Milliseconds from the start of the page until a view is complete on the screen. */
  readonly newestMs: number;
  readonly countriesMs: number;
  /** The later of both in a second tab. */
  readonly secondTabMs: number;
  /** Milliseconds from the click until the next page of the order is complete. */
  readonly nextPageMs: number;
  /**
   * Milliseconds from the click until both views show an edit, in the tab itself and in the other: the first one, later
   * ones. Not a number if the other tab does not show it in time.
   */
  readonly editMs: number;
  readonly firstEditElsewhereMs: number;
  readonly editElsewhereMs: number;
  /** MiB that all processes of the browser take: with an empty page, with the example in one tab, in two, and after the edits. */
  readonly emptyMib: number;
  readonly tabMib: number;
  readonly twoTabsMib: number;
  readonly editedMib: number;
  /** The most MiB that one process has taken. */
  readonly peakMib: number;
  /** MiB of the JavaScript heap of the page's own thread, after a collection. */
  readonly heapMib: number;
}

export interface Place {
  readonly profile: string;
  readonly url: string;
  readonly storage: string;
  readonly rows: number;
}

const addressOf = ({ url, storage, rows }: Place): string => `${url}?storage=${storage}&rows=${rows}`;

async function inBrowser<T>({ profile }: Place, use: (context: BrowserContext) => Promise<T>): Promise<T> {
  const context = await chromium.launchPersistentContext(profile, { executablePath: CHROMIUM, args: ARGS });
  context.setDefaultTimeout(PATIENCE);
  // What runs in a page here was compiled by tsx, which names functions with it.
  await context.addInitScript('globalThis.__name = (it) => it');
  try {
    return await use(context);
  } finally {
    await context.close();
  }
}

/** Stores the rows unless a visit before has; returns the milliseconds that it took. */
export function fill(place: Place): Promise<number> {
  return inBrowser(place, async (context) => {
    const page = await context.newPage();
    await page.goto(addressOf(place));
    await page.waitForSelector('#fill:not([hidden]), main:not([hidden])');
    if (await page.isVisible('#fill')) await page.click('#fill');
    const status = page.locator('#status', { hasText: 'cannot be stored' });
    await page.locator('main:not([hidden])').or(status).waitFor();
    if (await status.isVisible()) throw new Error(`${place.storage}: ${await status.textContent()}`);
    const noted = await page.evaluate((key) => localStorage.getItem(key), `tanstack-example:${place.storage}`);
    const { rows, milliseconds } = JSON.parse(noted!) as { rows: number; milliseconds: number };
    if (rows !== place.rows) throw new Error(`the profile has ${rows} rows, not ${place.rows}`);
    return milliseconds;
  });
}

async function openTab(context: BrowserContext, place: Place, expected: Expected): Promise<[Page, number, number]> {
  const page = await context.newPage();
  await page.goto(addressOf(place));
  const [newestMs, countriesMs] = await Promise.all(
    ['newest', 'countries'].map(async (view) =>
      Number(await (await page.waitForSelector(`#${view}[data-shown-ms]`)).getAttribute('data-shown-ms')),
    ),
  );
  await check(page, expected);
  return [page, newestMs!, countriesMs!];
}

/** Fails unless a page shows what it has to: measurements of wrong results tell nothing. */
async function check(page: Page, { newest, countries }: Expected): Promise<void> {
  const shown = await page.evaluate(() => {
    const texts = (row: Element, columns: number[]): string =>
      columns.map((column) => row.children[column]!.textContent).join(' ');
    return {
      newest: [...document.querySelectorAll('#newest tr')].map((row) => texts(row, [0, 1, 2, 3])),
      countries: [...document.querySelectorAll('#countries tr')].map((row) => texts(row, [0, 1])),
    };
  });
  if (JSON.stringify(shown) !== JSON.stringify({ newest, countries }))
    throw new Error(`a view is wrong: ${JSON.stringify(shown)}`);
}

/** The first of the newest orders, and the country that its amount is part of. */
interface Edited {
  readonly id: string;
  readonly quantity: string;
  readonly country: string;
  /** Of the country, before the edit. */
  readonly amount: string;
}

/** Resolves with the time when a page shows an edit in both views; `isHere` makes the edit in it and returns the time before. */
function edit(page: Page, edited: Edited, isHere: boolean): Promise<{ start: number; end: number }> {
  return page.evaluate(
    async ([{ id, quantity, country, amount }, clicks]) => {
      const now = (): number => performance.timeOrigin + performance.now();
      const isShown = (): boolean => {
        const row = document.querySelector(`#newest tr[data-id="${id}"]`);
        const total = [...document.querySelectorAll('#countries tr')].find(
          (line) => line.children[0]!.textContent === country,
        )?.children[2]!.textContent;
        return row?.children[4]!.textContent === String(Number(quantity) + 1) && total != null && total !== amount;
      };
      let end = 0;
      const seen = new Promise<void>((resolve) => {
        const observer = new MutationObserver(() => {
          if (!isShown()) return;
          end = now();
          observer.disconnect();
          resolve();
        });
        observer.observe(document.querySelector('main')!, { childList: true, subtree: true });
      });
      const start = now();
      if (clicks) document.querySelector<HTMLButtonElement>(`#newest tr[data-id="${id}"] button`)!.click();
      else document.documentElement.dataset['waits'] = quantity;
      await seen;
      return { start, end };
    },
    [edited, isHere] as const,
  );
}

async function editOnce(here: Page, there: Page): Promise<[number, number]> {
  const edited = await here.evaluate(() => {
    const row = document.querySelector<HTMLElement>('#newest tr')!;
    const country = row.children[2]!.textContent;
    const line = [...document.querySelectorAll('#countries tr')].find(
      (each) => each.children[0]!.textContent === country,
    )!;
    return {
      id: row.dataset['id']!,
      quantity: row.children[4]!.textContent,
      country,
      amount: line.children[2]!.textContent,
    };
  });
  const elsewhere = edit(there, edited, false);
  await there.waitForSelector(`html[data-waits="${edited.quantity}"]`);
  // It is not asked any more after that: its thread may not answer.
  const late = sleep(EDITING, { start: 0, end: Number.NaN }, { ref: false });
  elsewhere.catch(() => undefined);
  const { start, end } = await edit(here, edited, true);
  return [end - start, (await Promise.race([elsewhere, late])).end - start];
}

/** Milliseconds until the page of the order beside the one that is shown is complete. */
function turnPage(page: Page, button: 'older' | 'newer'): Promise<number> {
  return page.evaluate(async (id) => {
    const before = performance.now();
    const turned = new Promise<void>((resolve) => {
      const observer = new MutationObserver(() => {
        observer.disconnect();
        resolve();
      });
      observer.observe(document.querySelector('#newest')!, { attributeFilter: ['data-page'] });
    });
    document.querySelector<HTMLButtonElement>(`#${id}`)!.click();
    await turned;
    return performance.now() - before;
  }, button);
}

export function visit(place: Place, expected: Expected): Promise<VisitFigures> {
  return inBrowser(place, async (context) => {
    const resting = async (): Promise<number> => {
      await sleep(REST);
      return browserMemory();
    };
    const emptyMib = await resting();
    const [first, newestMs, countriesMs] = await openTab(context, place, expected);
    const devTools = await context.newCDPSession(first);
    await devTools.send('HeapProfiler.collectGarbage');
    const heap = await devTools.send('Runtime.getHeapUsage');
    const tabMib = await resting();
    const nextPageMs = await turnPage(first, 'older');
    await turnPage(first, 'newer');
    const [second, ...secondMs] = await openTab(context, place, expected);
    const twoTabsMib = await resting();

    const edits: [number, number][] = [];
    while (edits.length < EDITS && !edits.some(([, there]) => Number.isNaN(there)))
      edits.push(await editOnce(first, second));

    const editedMib = await resting();

    return {
      newestMs,
      countriesMs,
      secondTabMs: Math.max(...secondMs),
      nextPageMs,
      editMs: median(edits.map(([here]) => here))!,
      firstEditElsewhereMs: edits[0]![1],
      editElsewhereMs: median(edits.slice(1).map(([, there]) => there)) ?? Number.NaN,
      emptyMib,
      tabMib,
      twoTabsMib,
      editedMib,
      peakMib: peakOfLargestProcess(),
      heapMib: heap.usedSize / 2 ** 20,
    };
  });
}
