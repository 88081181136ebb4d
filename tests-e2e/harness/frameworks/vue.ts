import { useLiveQuery } from '@mangrove-kv/vue';
import { createApp, h, shallowRef } from 'vue';
import { textOf } from './main.ts';
import type { Asked, Mount } from './main.ts';

export const mountVue: Mount = (target, first) => {
  const asked = shallowRef<Asked>(first);
  const app = createApp({
    setup() {
      const { result } = useLiveQuery(
        () => asked.value.source,
        () => asked.value.range,
      );
      return () => h('p', textOf(result.value));
    },
  });
  app.mount(target);
  return {
    show: (next) => {
      asked.value = next;
    },
    unmount: () => app.unmount(),
  };
};
