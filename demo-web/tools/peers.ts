// The benchmark of the browser's stores, if it is there to be built in.
import type { Plugin } from 'vite';

const NAME = 'virtual:peers';
const PAGE = 'mangrove-bench-browser/page';

export function peers(): Plugin {
  return {
    name: 'peers',
    resolveId: (id) => (id === NAME ? `\0${NAME}` : undefined),
    async load(id) {
      if (id !== `\0${NAME}`) return undefined;
      const page = await this.resolve(PAGE).catch(() => null);
      return page === null ? 'export const mountBench = undefined;' : `export { mountBench } from ${JSON.stringify(PAGE)};`;
    },
  };
}
