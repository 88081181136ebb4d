// Small pages on live queries in each framework: one that counts what is read and watched, and pages that record all
// that is drawn of what is mirrored.
import type { Collection } from 'mangrove-kv';
import { open } from 'mangrove-kv';
import type { LiveIndexed } from '@mangrove-kv/react';
import { liveQuery, mirror, preload } from 'mangrove-kv/live';
import type { LiveResult, LiveSource } from 'mangrove-kv/live';

interface Note {
  readonly tag: string;
}

/** What a list shows. */
export interface Asked {
  readonly source: (LiveSource<string, Note> & LiveIndexed<string, Note>) | undefined;
  readonly range: { readonly index: string };
}

export interface Mounted {
  /** Changes what the lists show, of which there are as many as before. */
  show(lists: readonly Asked[]): void;
  unmount(): void;
}

/** Mounts a page with a component for each list. */
export type Mount = (target: HTMLElement, lists: readonly Asked[]) => Mounted | Promise<Mounted>;

const MOUNTS = {
  angular: async () => {
    await import('@angular/compiler');
    return (await import('./angular.ts')).mountAngular;
  },
  preact: async () => (await import('./preact.ts')).mountPreact,
  react: async () => (await import('./react.ts')).mountReact,
  solid: async () => (await import('./solid.ts')).mountSolid,
  svelte: async () => (await import('./svelte.ts')).mountSvelte,
  vue: async () => (await import('./vue.ts')).mountVue,
} satisfies Record<string, () => Promise<Mount>>;

export type Framework = keyof typeof MOUNTS;

/** All texts that components were drawn with. */
const rendered: string[] = [];

/** Whether texts have the values of the entries. */
let hasValues = false;

export function textOf({
  status,
  entries,
  error,
}: Pick<LiveResult<string, Note>, 'status' | 'entries' | 'error'>): string {
  const rows = entries.map(([key, { tag }]) => (hasValues ? `${key}=${tag}` : key));
  const text = `${status}: ${error === undefined ? rows.join(' ') : (error as { code: string }).code}`;
  rendered.push(text);
  return text;
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

async function mount(name: Framework, lists: readonly Asked[]): Promise<Mounted> {
  const mountIn = await MOUNTS[name]();
  return mountIn(document.body.appendChild(document.createElement('main')), lists);
}

export async function mountFramework(name: Framework): Promise<typeof window.framework> {
  const db = await open(name, { storage: 'memory' });
  const notes = db.collection<string, Note>('notes', { indexes: { byTag: { key: ({ tag }) => tag } } });
  const source = countedWithIndexes(notes);
  // As while the database is being opened.
  const mounted = await mount(name, [{ source: undefined, range: {} as never }]);
  return {
    show: (range) => mounted.show([{ source, range: range as never }]),
    set: (key, tag) => notes.set(key, { tag }),
    counts: () => ({ ...counts }),
    unmount: () => mounted.unmount(),
    close: () => db.close(),
  };
}

const texts = (): string[] => Array.from(document.querySelectorAll('main p, main b'), (each) => each.textContent ?? '');

const frame = (): Promise<unknown> => new Promise((resolve) => requestAnimationFrame(resolve));

/** Records what the page shows after each step that changes it, and in each frame. */
function record(): string[] {
  const drawn: string[] = [];
  const look = (): void => {
    const shown = texts().join('|');
    if (shown !== '' && shown !== drawn.at(-1)) drawn.push(shown);
  };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
  const lookAgain = (): void => {
    look();
    requestAnimationFrame(lookAgain);
  };
  lookAgain();
  return drawn;
}

/** Draws a range for the first time that is mirrored, was preloaded, or has to be read; then changes it. */
export async function drawFirst(
  name: Framework,
  how: 'mirrored' | 'preloaded' | 'read',
): ReturnType<typeof window.drawFirst> {
  const db = await open(`${name} ${how}`, { storage: 'memory' });
  const notes = db.collection<string, Note>('notes', { indexes: { byTag: { key: ({ tag }) => tag } } });
  await notes.setMany([
    ['a1', { tag: 'x' }],
    ['a2', { tag: 'x' }],
    ['b', { tag: 'x' }],
  ]);
  const range = { prefix: 'a' };
  if (how === 'mirrored') await mirror(notes, range).ready;
  // As in a router, before it shows the page.
  if (how === 'preloaded') await preload(liveQuery(notes, range));
  const drawn = record();
  rendered.length = 0;
  const mounted = await mount(name, [{ source: notes, range: range as never }]);
  while (!drawn.some((text) => text.includes('ready: a1 a2'))) await frame();
  await notes.set('a3', { tag: 'x' });
  while (!drawn.at(-1)?.endsWith('ready: a1 a2 a3')) await frame();
  const first = { drawn: [...drawn], rendered: [...rendered] };
  rendered.length = 0;
  mounted.show([{ source: notes, range: { prefix: 'b' } as never }]);
  while (!drawn.at(-1)?.endsWith('ready: b')) await frame();
  mounted.unmount();
  await db.close();
  return { ...first, turned: [...rendered] };
}

/** Shows two mirrors, and writes to both in one transaction each time. */
export async function drawTwo(name: Framework, rounds: number): ReturnType<typeof window.drawTwo> {
  hasValues = true;
  const db = await open(`${name} two`, { storage: 'memory' });
  const [left, right] = [db.collection<string, Note>('left'), db.collection<string, Note>('right')];
  const write = (round: number): Promise<unknown> =>
    db.transaction((tx) => {
      tx.collection<string, Note>('left').set('n', { tag: String(round) });
      tx.collection<string, Note>('right').set('n', { tag: String(round) });
    });
  await write(0);
  await Promise.all([mirror(left).ready, mirror(right).ready]);
  const drawn = record();
  const mounted = await mount(
    name,
    [left, right].map((source) => ({ source: source as never, range: {} as never })),
  );
  for (let round = 1; round <= rounds; round++) {
    await write(round);
    if (round % 3 === 0) await frame();
  }
  while (!texts().every((text) => text === `ready: n=${rounds}`)) await frame();
  mounted.unmount();
  await db.close();
  return drawn;
}
