// Workloads of several tabs, told what to do by somebody outside: the program that drives a browser, or a page with workers.
import type { Figure } from '../meter.ts';
import type { TabMethods } from './tab.ts';

export interface Tab {
  call<M extends keyof TabMethods>(
    method: M,
    ...values: Parameters<TabMethods[M]>
  ): Promise<Awaited<ReturnType<TabMethods[M]>>>;
  close(): Promise<void>;
  /** Ends it without a chance to clean up. */
  crash?(): Promise<void>;
}

export interface TabOptions {
  readonly peer: string;
  readonly name: string;
  readonly writing: number;
  newTab(): Promise<Tab>;
  /** Whether the tabs open the store with indexes. */
  readonly isIndexed?: boolean;
}

const TABS = 4;
/** A store that does not answer for so long is taken to hang. */
const PATIENCE = 12_000;
/** Some take seconds to open, and a busy machine makes them more. */
const OPENING_PATIENCE = 30_000;

export function within<T>(milliseconds: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new Error(`${what}: no answer for ${milliseconds / 1000} s`));
    }, milliseconds);
  });
  return Promise.race([promise, late]).finally(() => {
    clearTimeout(timer);
  });
}

/** Tabs with the store open in each; fails with the reason of the first that could not open it. */
export async function withTabs<T>(
  { peer, name, newTab, isIndexed = false }: TabOptions,
  count: number,
  use: (tabs: Tab[]) => Promise<T>,
): Promise<T> {
  const tabs: Tab[] = [];
  try {
    for (let number = 1; number <= count; number++) {
      const tab = await newTab();
      tabs.push(tab);
      const error = await within(
        OPENING_PATIENCE,
        `open in tab ${number}`,
        tab.call(isIndexed ? 'openIndexed' : 'open', peer, name),
      );
      if (error !== undefined) throw new Error(`tab ${number}: ${error}`);
    }
    return await use(tabs);
  } finally {
    for (const tab of tabs) {
      await within(2000, 'close', tab.call(isIndexed ? 'closeIndexed' : 'close')).catch(() => undefined);
      await tab.close().catch(() => undefined);
    }
  }
}

async function measured(name: string, unit: Figure['unit'], measure: () => Promise<number>): Promise<Figure> {
  try {
    return { name, unit, value: await measure() };
  } catch (error) {
    return { name, unit, error: (error as Error).message.split('\n')[0] as string };
  }
}

export function manyTabs(options: TabOptions): Promise<Figure> {
  return measured(`durable puts in ${TABS} tabs at once, all together`, '/s', () =>
    withTabs(options, TABS, async (tabs) => {
      const { writing } = options;
      const written = await Promise.all(
        tabs.map((tab, number) =>
          within(writing + PATIENCE, `writing in tab ${number + 1}`, tab.call('write', number, writing)),
        ),
      );
      for (const [number, { count, error }] of written.entries()) {
        if (error !== undefined) throw new Error(`tab ${number + 1}, after ${count} puts: ${error}`);
        const reader = tabs[(number + 1) % TABS] as Tab;
        const missing = await within(PATIENCE, 'reading', reader.call('missing', number, count));
        if (missing > 0) throw new Error(`another tab misses ${missing} of the ${count} rows of tab ${number + 1}`);
      }
      const times = written.flatMap((each) => each.times);
      return times.length / ((Math.max(...times) - Math.min(...times)) / 1000);
    }),
  );
}

/** The longest time between two commits of one tab, while another that was the first to open the store ends. */
export function takeOver(options: TabOptions, way: 'close' | 'crash'): Promise<Figure> {
  const name = `longest wait for a commit while the leader ${way === 'close' ? 'is closed' : 'crashes'}`;
  return measured(name, 'ms', () =>
    withTabs(options, 2, async ([leader, other]) => {
      if (leader === undefined || other === undefined) throw new Error('no tabs');
      if (way === 'crash' && leader.crash === undefined) throw new Error('only a driven browser can do this');
      if ((await leader.call('leads')) === false) throw new Error('the first tab does not lead');
      const warm = await within(PATIENCE, 'the first writes', other.call('write', 1, 300));
      if (warm.error !== undefined) throw new Error(`with both tabs: ${warm.error}`);
      const writing = other.call('write', 2, options.writing * 2);
      // The leader is at work itself.
      leader.call('write', 0, options.writing * 2).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, options.writing / 3));
      const died = Date.now();
      await (way === 'close' ? leader.close() : leader.crash?.());
      const { times, error } = await within(options.writing * 2 + PATIENCE, 'after the end of the leader', writing);
      if (error !== undefined) throw new Error(`the other tab's commit failed: ${error}`);
      const gaps = times
        .slice(1)
        .map((time, at) => ({ time, gap: time - (times[at] as number) }))
        .filter(({ time }) => time >= died);
      if (gaps.length === 0) throw new Error('no commit followed');
      return Math.max(...gaps.map(({ gap }) => gap));
    }),
  );
}
