import { useLiveQuery } from '@mangrove-kv/vue';
import { createSSRApp, h } from 'vue';
import type { App } from 'vue';
import { RANGE, textOf } from './page.ts';
import type { Properties } from './page.ts';

export function appOf({ source, initial }: Properties): App {
  return createSSRApp({
    setup() {
      const { result } = useLiveQuery(source, RANGE, { initial });
      return () => h('p', textOf(result.value));
    },
  });
}
