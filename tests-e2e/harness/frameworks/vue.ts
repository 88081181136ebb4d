import { useLiveQuery } from '@mangrove-kv/vue';
import { createApp, defineComponent, h, shallowRef } from 'vue';
import { textOf } from './main.ts';
import type { Asked, Mount } from './main.ts';

const List = defineComponent({
  props: { asked: { type: Object, required: true } },
  setup(props) {
    const { result } = useLiveQuery(
      () => (props.asked as Asked).source,
      () => (props.asked as Asked).range,
    );
    return () => h('p', textOf(result.value));
  },
});

export const mountVue: Mount = (target, first) => {
  const lists = shallowRef(first);
  const app = createApp({ setup: () => () => lists.value.map((asked) => h(List, { asked })) });
  app.mount(target);
  return {
    show: (next) => {
      lists.value = next;
    },
    unmount: () => app.unmount(),
  };
};
