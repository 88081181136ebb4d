// Renders the page as a server does, in Node.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import type { Framework } from '../main.ts';
import { compileSolid } from '../compile-solid.ts';
import type { Properties } from './page.ts';

export interface Served {
  readonly html: string;
  readonly scripts: readonly string[];
}

const HERE = fileURLToPath(new URL('.', import.meta.url));

/** Compiles a component for a server, and loads it. */
async function compiled(name: string): Promise<{ readonly default: unknown }> {
  const { compile } = await import('svelte/compiler');
  // Beside the package, so that it finds what it imports.
  const directory = await mkdtemp(join(HERE, '../../../.compiled-'));
  try {
    const file = join(directory, 'page.mjs');
    const bundled = await build({
      entryPoints: [join(HERE, name)],
      bundle: true,
      write: false,
      format: 'esm',
      platform: 'node',
      packages: 'external',
      logLevel: 'silent',
      plugins: [
        {
          name: 'components',
          setup: ({ onLoad }) => {
            onLoad({ filter: /\.svelte$/ }, async ({ path }) => ({
              contents: compile(await readFile(path, 'utf8'), { filename: path, generate: 'server' }).js.code,
            }));
            onLoad({ filter: /\.solid\.jsx$/ }, async ({ path }) => ({
              contents: await compileSolid(await readFile(path, 'utf8'), 'ssr'),
            }));
          },
        },
      ],
    });
    await writeFile(file, bundled.outputFiles[0]?.text ?? '');
    return (await import(pathToFileURL(file).href)) as { default: unknown };
  } finally {
    await rm(directory, { recursive: true });
  }
}

/** What React streams to the browser, fallbacks and scripts included. */
async function streamed(properties: Properties, onShell?: () => void): Promise<Served> {
  const [{ renderToPipeableStream }, { pageOf }] = await Promise.all([
    import('react-dom/server'),
    import('./react.ts'),
  ]);
  let html = '';
  const sink = new Writable({
    write: (chunk, _, done) => {
      html += String(chunk);
      done();
    },
  });
  await new Promise<void>((resolve, reject) => {
    sink.on('finish', resolve);
    const { pipe } = renderToPipeableStream(pageOf(properties, true), {
      onShellReady: () => {
        pipe(sink);
        onShell?.();
      },
      onShellError: reject,
      onError: reject,
    });
  });
  return { html, scripts: [] };
}

type Server = (properties: Properties, onShell?: () => void) => Promise<Served>;

const SERVERS: Record<Framework | 'react-suspense', Server> = {
  angular: async (properties) => {
    await import('@angular/compiler');
    const { provideServerRendering, renderApplication } = await import('@angular/platform-server');
    // First, as this tells the other packages that they are on a server.
    const onServer = provideServerRendering();
    const { PageComponent, configOf } = await import('./angular.ts');
    const { bootstrapApplication } = await import('@angular/platform-browser');
    const { mergeApplicationConfig } = await import('@angular/core');
    const config = mergeApplicationConfig(configOf(properties), { providers: [onServer] });
    const page = await renderApplication((context) => bootstrapApplication(PageComponent, config, context), {
      document: '<html><head></head><body><live-page></live-page></body></html>',
    });
    return { html: /<body[^>]*>([^]*)<\/body>/.exec(page)?.[1] ?? '', scripts: [] };
  },
  preact: async (properties) => {
    const { createElement } = await import('preact');
    const { renderToString } = await import('preact-render-to-string');
    const { Page } = await import('./preact.ts');
    return { html: renderToString(createElement(Page, properties)), scripts: [] };
  },
  react: async (properties) => {
    const { renderToString } = await import('react-dom/server');
    const { pageOf } = await import('./react.ts');
    return { html: renderToString(pageOf(properties)), scripts: [] };
  },
  'react-suspense': streamed,
  solid: async (properties) => {
    const { createComponent, generateHydrationScript, renderToString } = await import('solid-js/web');
    const { default: Page } = await compiled('Page.solid.jsx');
    const html = renderToString(() => createComponent(Page as never, properties as never));
    return { html, scripts: [generateHydrationScript().replace(/<\/?script[^>]*>|<!--xs-->/g, '')] };
  },
  svelte: async (properties) => {
    const { render } = await import('svelte/server');
    const { default: Page } = await compiled('Page.svelte');
    return { html: render(Page as never, { props: properties as never }).body, scripts: [] };
  },
  vue: async (properties) => {
    const { renderToString } = await import('vue/server-renderer');
    const { appOf } = await import('./vue.ts');
    return { html: await renderToString(appOf(properties)), scripts: [] };
  },
};

/** `onShell` is called when a stream has begun with what need not be waited for. */
export function serve(
  name: Framework | 'react-suspense',
  properties: Properties,
  onShell?: () => void,
): Promise<Served> {
  return SERVERS[name](properties, onShell);
}
