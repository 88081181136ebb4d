// Takes over, in the page, what a server has rendered of another copy of the database.
import { open } from 'mangrove-kv';
import { mirror } from 'mangrove-kv/live';
import type { Framework } from '../main.ts';
import { RANGE, rendered } from './page.ts';
import type { Properties } from './page.ts';

type Hydrate = (target: HTMLElement, properties: Properties) => unknown;

const HYDRATIONS: Record<Framework | 'react-suspense', () => Promise<Hydrate>> = {
  angular: async () => {
    // Before all else of Angular, in which it compiles.
    await import('@angular/compiler');
    const { PageComponent, configOf } = await import('./angular.ts');
    const { bootstrapApplication } = await import('@angular/platform-browser');
    return (_, properties) => bootstrapApplication(PageComponent, configOf(properties));
  },
  preact: async () => {
    const [{ createElement, hydrate }, { Page }] = await Promise.all([import('preact'), import('./preact.ts')]);
    return (target, properties) => hydrate(createElement(Page, properties), target);
  },
  react: async () => {
    const [{ hydrateRoot }, { pageOf }] = await Promise.all([import('react-dom/client'), import('./react.ts')]);
    return (target, properties) => hydrateRoot(target, pageOf(properties));
  },
  'react-suspense': async () => {
    const [{ hydrateRoot }, { pageOf }] = await Promise.all([import('react-dom/client'), import('./react.ts')]);
    return (target, properties) => hydrateRoot(target, pageOf(properties, true));
  },
  solid: async () => {
    const [{ createComponent, hydrate }, { default: Page }] = await Promise.all([
      import('solid-js/web'),
      import('./Page.solid.jsx'),
    ]);
    return (target, properties) => hydrate(() => createComponent(Page as never, properties as never), target);
  },
  svelte: async () => {
    const [{ hydrate }, { default: Page }] = await Promise.all([import('svelte'), import('./Page.svelte')]);
    return (target, properties) => hydrate(Page as never, { target, props: properties as never });
  },
  vue: async () => {
    const { appOf } = await import('./vue.ts');
    return (target, properties) => appOf(properties).mount(target);
  },
};

/** The text of what is shown. */
const textIn = (target: HTMLElement): string =>
  Array.from(
    target.querySelectorAll('p, b, u, li'),
    ({ localName, textContent }) => `${localName} ${textContent}`,
  ).join();

const frame = (): Promise<unknown> => new Promise((resolve) => requestAnimationFrame(resolve));

export async function hydratePage({
  name,
  html,
  scripts,
  initial,
  entries,
  isMirrored,
}: Parameters<typeof window.hydratePage>[0]): ReturnType<typeof window.hydratePage> {
  const db = await open(`hydrated ${name}`, { storage: 'memory' });
  const source = db.collection<string, number>('notes');
  await source.setMany(entries);
  if (isMirrored) await mirror(source, RANGE).ready;
  const hydrate = await HYDRATIONS[name]();
  for (const text of scripts) document.head.appendChild(document.createElement('script')).text = text;
  // Angular's markup has to be right in the body.
  const target = name === 'angular' ? document.body : document.body.appendChild(document.createElement('main'));
  target.innerHTML = html;
  // Markup that is parsed this way does not run its scripts, as that of a stream has.
  for (const script of target.querySelectorAll('script:not([type])')) {
    const copy = document.createElement('script');
    copy.text = script.textContent ?? '';
    script.replaceWith(copy);
  }
  const served = textIn(target);
  const node = target.querySelector('p');
  const seen: string[] = [];
  new MutationObserver(() => {
    const text = textIn(target);
    if (text !== seen.at(-1)) seen.push(text);
  }).observe(target, { subtree: true, childList: true, characterData: true });
  await hydrate(target, { source, initial });
  const live = entries.filter(([key]) => key.startsWith('a')).map(([key, value]) => `${key}=${value}`);
  while (!target.querySelector('p')?.textContent?.endsWith(live.join(' '))) await frame();
  await source.set('a9', 9);
  while (!target.querySelector('p')?.textContent?.endsWith([...live, 'a9=9'].join(' '))) await frame();
  const isSame = node === target.querySelector('p');
  const shown = textIn(target);
  return { served, first: rendered[0] ?? '', seen, shown, isSame };
}
