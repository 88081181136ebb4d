// Preloads what opening a database fetches, so that none of it waits for a script that asks for it.
import type { HtmlTagDescriptor, Plugin } from 'vite';

const link = (attrs: Record<string, string>): HtmlTagDescriptor => ({ tag: 'link', attrs, injectTo: 'head' });

export function preloadDatabase(applies: (page: string) => boolean): Plugin {
  return {
    name: 'preload-database',
    transformIndexHtml: {
      order: 'post',
      handler: (_html, { bundle, path }) =>
        !applies(path)
          ? []
          : Object.keys(bundle ?? {}).flatMap((file) => {
              if (/mangrove_core_bg.*\.wasm$/.test(file))
                return link({ rel: 'preload', as: 'fetch', crossorigin: '', href: `/${file}` });
              return /\bworker-(?!indexeddb|maintenance)[^/]*\.js$/.test(file)
                ? link({ rel: 'modulepreload', href: `/${file}` })
                : [];
            }),
    },
  };
}
