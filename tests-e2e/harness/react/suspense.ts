// A page whose lists wait for their rows within `Suspense`. It records what is visible after each step, and each drawing.
import { useLiveQuery } from '@mangrove-kv/react';
import { open } from 'mangrove-kv';
import type { Collection } from 'mangrove-kv';
import { liveQuery, mirror, preload } from 'mangrove-kv/live';
import type { LiveSource } from 'mangrove-kv/live';
import { Component, StrictMode, Suspense, createElement, useState, useTransition } from 'react';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';

type Source = Collection<string, number>;
interface Range {
  readonly prefix: string;
  readonly keepPrevious?: boolean;
}

/** A source that is not of the package, so that queries of it do not know each other; it counts its reads. */
function foreign(source: Source, counts: { reads: number }): Source {
  const wrapped: LiveSource<string, number> = {
    entries: (range) => {
      counts.reads++;
      return source.entries(range);
    },
    watch: (options) => source.watch(options),
  };
  return wrapped as Source;
}

/** Takes longer to be drawn than React draws without giving way to timers. */
function Slow(): ReactNode {
  const end = performance.now() + 8;
  while (performance.now() < end);
  return null;
}

class Boundary extends Component<
  { readonly children?: ReactNode; readonly isSlow: boolean },
  { readonly error: unknown }
> {
  override state = { error: undefined };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    const caught = createElement('p', null, `caught ${(error as unknown as { code: string }).code}`);
    const slow = [1, 2, 3].map((key) => createElement(Slow, { key }));
    return this.props.isSlow ? createElement('div', null, slow, caught) : caught;
  }
}

export async function mountSuspense({
  isStrict,
  isForeign,
  begin,
  lists,
  isSlow = false,
}: Parameters<typeof window.mountSuspense>[0]): Promise<typeof window.suspense> {
  const db = await open('suspense', { storage: 'memory' });
  const notes: Source = db.collection<string, number>('notes');
  await notes.setMany(['a1', 'a2', 'b1', 'c1'].map((key, at) => [key, at] as const));
  if (begin === 'mirrored') await mirror(notes).ready;
  if (begin === 'preloaded') await preload(liveQuery(notes, { prefix: 'a' }));
  const counts = { reads: 0 };
  const source = isForeign ? foreign(notes, counts) : notes;
  const drawings: string[] = [];
  let change: ((range: Range, isTransition: boolean) => void) | undefined;

  function List({ range }: { readonly range: Range }): ReactNode {
    drawings.push('begun');
    const { status, entries } = useLiveQuery<string, number>(source, { ...range }, { suspense: true });
    drawings.push(status);
    return createElement('p', null, `${status}: ${entries.map(([key]) => key).join(' ')}`);
  }

  function App(): ReactNode {
    const [{ range, attempt }, setAsked] = useState({ range: { prefix: 'a' } as Range, attempt: 0 });
    const [isPending, startTransition] = useTransition();
    change = (next, isTransition) => {
      const turn = (): void =>
        setAsked((before) => ({ range: next, attempt: before.attempt + (isTransition ? 0 : 1) }));
      if (isTransition) startTransition(turn);
      else turn();
    };
    const waiting = createElement('em', null, 'waiting');
    const shown = Array.from({ length: lists }, () => createElement(List, { range }));
    return createElement(
      'div',
      null,
      isPending ? createElement('i', null, 'pending') : null,
      createElement(Boundary, { key: attempt, isSlow }, createElement(Suspense, { fallback: waiting }, ...shown)),
    );
  }

  const target = document.body.appendChild(document.createElement('main'));
  const seen: string[] = [];
  new MutationObserver(() => {
    const visible = Array.from(target.querySelectorAll('p, em, i')).filter((each) => each.checkVisibility());
    const text = visible.map((each) => each.textContent).join('|');
    if (text !== '' && text !== seen.at(-1)) seen.push(text);
  }).observe(target, { subtree: true, childList: true, characterData: true, attributes: true });
  const root = createRoot(target, { onCaughtError: () => undefined });
  root.render(isStrict ? createElement(StrictMode, null, createElement(App)) : createElement(App));
  return {
    state: () => ({ seen: [...seen], drawings: [...drawings], reads: counts.reads }),
    show: (range, isTransition) => change!(range, isTransition),
    set: (key) => notes.set(key, 0),
    unmount: () => root.unmount(),
    close: () => db.close(),
  };
}
