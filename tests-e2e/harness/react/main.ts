// A small React page on live queries that counts its renders, torn renders and open watches.
import type { Collection } from 'mangrove-kv';
import { open } from 'mangrove-kv';
import { liveQuery } from 'mangrove-kv/live';
import type { LiveQuery, LiveSource } from 'mangrove-kv/live';
import {
  Profiler,
  StrictMode,
  createElement,
  startTransition,
  useLayoutEffect,
  useState,
  useSyncExternalStore,
} from 'react';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';

type Query = LiveQuery<string, number>;

/** Number of open watches: begun and not yet ended. */
let watches = 0;

function counted(source: Collection<string, number>): LiveSource<string, number> {
  return {
    entries: (range) => source.entries(range),
    watch: (options) => {
      watches++;
      options?.signal?.addEventListener(
        'abort',
        () => {
          watches--;
        },
        { once: true },
      );
      return source.watch(options);
    },
  };
}

function List({ name, live }: { name: string; live: Query }): ReactNode {
  const { status, entries, error } = useSyncExternalStore(live.subscribe, live.getSnapshot);
  const text =
    status === 'failed' ? (error as { code: string }).code : entries.map(([key, value]) => `${key}=${value}`).join(' ');
  return createElement('p', { id: name }, `${status}: ${text}`);
}

/** Renders slowly, so that writes interrupt a transition. */
function Slow({ round }: { round: number }): ReactNode {
  const until = performance.now() + 3;
  while (performance.now() < until);
  return createElement('i', null, round);
}

const text = (id: string): string | null | undefined => document.getElementById(id)?.textContent;

export async function mountReact(isStrict: boolean): Promise<typeof window.react> {
  const db = await open('react', { storage: 'memory' });
  const numbers = db.collection<string, number>('numbers');
  const live = liveQuery(counted(numbers), {});
  let renders = 0;
  let torn = 0;
  let setRound: (round: number) => void = () => undefined;
  function Page(): ReactNode {
    const [round, set] = useState(0);
    setRound = set;
    useLayoutEffect(() => {
      if (text('first') !== text('second')) torn++;
    });
    return [
      createElement(
        Profiler,
        {
          key: 'first',
          id: 'first',
          onRender: () => {
            renders++;
          },
        },
        createElement(List, { name: 'first', live }),
      ),
      ...Array.from({ length: 10 }, (_, index) => createElement(Slow, { key: index, round })),
      createElement(List, { key: 'second', name: 'second', live }),
    ];
  }
  const root = createRoot(document.body.appendChild(document.createElement('main')));
  const page = createElement(Page);
  root.render(isStrict ? createElement(StrictMode, null, page) : page);
  // Checks after each change of the page, whatever caused it.
  new MutationObserver(() => {
    if (text('first') !== text('second')) torn++;
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
  return {
    set: async (key, value) => void (await numbers.set(key, value)),
    transition: (round) => startTransition(() => setRound(round)),
    counts: () => ({ renders, torn, watches, text: text('first') ?? null }),
    // Replaces the collection with one of the same name whose codecs do not match the query's.
    fail: async () => {
      await db.dropCollection('numbers');
      const { valueCodecs } = await import('mangrove-kv');
      await db.collection('numbers', { value: valueCodecs.bytes }).set('a', new Uint8Array(1));
    },
    unmount: () => root.unmount(),
    close: () => db.close(),
  };
}
