// A small page on live queries in each framework, which counts what is read and watched.
import type { Collection } from 'mangrove-kv';
import { open } from 'mangrove-kv';
import type { LiveIndexed } from '@mangrove-kv/react';
import type { LiveResult, LiveSource } from 'mangrove-kv/live';
import { mountReact } from './react.ts';
import { mountSvelte } from './svelte.ts';
import { mountVue } from './vue.ts';

interface Note {
  readonly tag: string;
}

/** What the page shows. */
export interface Asked {
  readonly source: (LiveSource<string, Note> & LiveIndexed<string, Note>) | undefined;
  readonly range: { readonly index: string };
}

export interface Mounted {
  show(asked: Asked): void;
  unmount(): void;
}

export type Mount = (target: HTMLElement, asked: Asked) => Mounted;

const MOUNTS = { react: mountReact, svelte: mountSvelte, vue: mountVue };

export function textOf({
  status,
  entries,
  error,
}: Pick<LiveResult<string, Note>, 'status' | 'entries' | 'error'>): string {
  return `${status}: ${error === undefined ? entries.map(([key]) => key).join(' ') : (error as { code: string }).code}`;
}

const counts = { reads: 0, watches: 0 };

function counted<T extends LiveSource<string, Note>>(source: T): LiveSource<string, Note> {
  return {
    entries: (range) => {
      counts.reads++;
      return source.entries(range);
    },
    watch: (options) => {
      counts.watches++;
      options?.signal?.addEventListener(
        'abort',
        () => {
          counts.watches--;
        },
        { once: true },
      );
      return source.watch(options);
    },
  };
}

function countedWithIndexes(source: Collection<string, Note>): NonNullable<Asked['source']> {
  return { ...counted(source), index: (name) => counted(source.index(name) as never) as never };
}

export async function mountFramework(name: keyof typeof MOUNTS): Promise<typeof window.framework> {
  const db = await open(name, { storage: 'memory' });
  const notes = db.collection<string, Note>('notes', { indexes: { byTag: { key: ({ tag }) => tag } } });
  const source = countedWithIndexes(notes);
  // As while the database is being opened.
  const mounted = MOUNTS[name](document.body.appendChild(document.createElement('main')), {
    source: undefined,
    range: {} as never,
  });
  return {
    show: (range) => mounted.show({ source, range: range as never }),
    set: (key, tag) => notes.set(key, { tag }),
    counts: () => ({ ...counts }),
    unmount: () => mounted.unmount(),
    close: () => db.close(),
  };
}
