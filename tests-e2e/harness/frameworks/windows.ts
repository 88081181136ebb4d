// A page with a window of a list, whose source and range are signals of the framework.
import { open } from 'mangrove-kv';
import type { LiveResult, LiveSource } from 'mangrove-kv/live';

type Source = LiveSource<number, number>;
interface Range {
  readonly limit: number;
  readonly reverse?: boolean;
}

interface Mounted {
  setSource(source: Source): void;
  setRange(range: Range): void;
  move(offset: number, limit: number): void;
  unmount(): void;
}

const textOf = ({ status, entries, isStale }: LiveResult<number, number>): string =>
  `${status}: ${entries.map(([key]) => key).join(' ')}${isStale ? ' stale' : ''}`;

const MOUNTS = {
  angular: async (target: HTMLElement): Promise<Mounted> => {
    await import('@angular/compiler');
    const { Component, EnvironmentInjector, createComponent, provideZonelessChangeDetection, signal } = await import(
      '@angular/core'
    );
    const { createApplication } = await import('@angular/platform-browser');
    const { injectLiveWindow } = await import('@mangrove-kv/angular');
    const source = signal<Source | undefined>(undefined);
    const range = signal<Range>({ limit: 2 });
    const app = await createApplication({ providers: [provideZonelessChangeDetection()] });
    // Outside of any component, which only shows it.
    const { result, move } = injectLiveWindow(source, range, { injector: app.injector.get(EnvironmentInjector) });
    class PageComponent {
      get text(): string {
        return textOf(result());
      }
    }
    Component({ selector: 'live-window', template: '<p>{{ text }}</p>' })(PageComponent);
    const page = createComponent(PageComponent, { environmentInjector: app.injector, hostElement: target });
    app.attachView(page.hostView);
    return {
      setSource: (next) => source.set(next),
      setRange: (next) => range.set(next),
      move,
      unmount: () => app.destroy(),
    };
  },
  preact: async (target: HTMLElement): Promise<Mounted> => {
    const { createElement, render } = await import('preact');
    const { signal } = await import('@preact/signals');
    const { useLiveWindow } = await import('@mangrove-kv/preact');
    const source = signal<Source | undefined>(undefined);
    const range = signal<Range>({ limit: 2 });
    const moves = new Set<(offset: number, limit: number) => void>();
    const Page = () => {
      const { result, move } = useLiveWindow(source, () => range.value);
      moves.add(move);
      return createElement('p', null, textOf(result.value));
    };
    render(createElement(Page, null), target);
    return {
      setSource: (next) => {
        source.value = next;
      },
      setRange: (next) => {
        range.value = next;
      },
      move: (offset, limit) => {
        if (moves.size !== 1) throw new Error('another function for each drawing');
        for (const move of moves) move(offset, limit);
      },
      unmount: () => render(null, target),
    };
  },
  solid: async (target: HTMLElement): Promise<Mounted> => {
    const { createSignal } = await import('solid-js');
    const { insert, render } = await import('solid-js/web');
    const { createLiveWindow } = await import('@mangrove-kv/solid');
    const [source, setSource] = createSignal<Source>();
    const [range, setRange] = createSignal<Range>({ limit: 2 });
    let move: Mounted['move'] | undefined;
    const unmount = render(() => {
      const live = createLiveWindow(source, range);
      ({ move } = live);
      const element = document.createElement('p');
      insert(element, () => textOf(live.result()));
      return element;
    }, target);
    return { setSource, setRange, move: (offset, limit) => move!(offset, limit), unmount };
  },
};

export type FrameworkOfSignals = keyof typeof MOUNTS;

export async function mountWindow(
  name: FrameworkOfSignals,
): Promise<typeof window.framework & { readonly move: Mounted['move'] }> {
  const db = await open(`${name} window`, { storage: 'memory' });
  const rows = db.collection<number, number>('rows');
  await rows.setMany(Array.from({ length: 20 }, (_, key) => [key, key] as const));
  const counts = { reads: 0, watches: 0 };
  const source: Source = {
    entries: (range) => {
      counts.reads++;
      return rows.entries(range);
    },
    watch: (options) => {
      counts.watches++;
      options?.signal?.addEventListener('abort', () => counts.watches--, { once: true });
      return rows.watch(options);
    },
  };
  const mounted = await MOUNTS[name](document.body.appendChild(document.createElement('main')));
  return {
    show: (range) => {
      mounted.setSource(source);
      mounted.setRange(range as Range);
    },
    set: (key) => rows.set(Number(key), 0),
    move: mounted.move,
    counts: () => ({ ...counts }),
    unmount: mounted.unmount,
    close: () => db.close(),
  };
}
