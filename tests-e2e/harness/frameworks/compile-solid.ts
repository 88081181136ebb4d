// Solid's compiler, for pages and for servers.
import { transformAsync } from '@babel/core';

/** Compiles a module with JSX so that a page can take over what a server has rendered. */
export async function compileSolid(code: string, generate: 'dom' | 'ssr'): Promise<string> {
  const compiled = await transformAsync(code, {
    presets: [['babel-preset-solid', { generate, hydratable: true }]],
    babelrc: false,
    configFile: false,
    compact: false,
  });
  return compiled?.code ?? '';
}
