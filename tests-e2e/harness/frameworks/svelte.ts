import { mount, unmount } from 'svelte';
import type { Component } from 'svelte';
import List from './List.svelte';
import type { Asked, Mount } from './main.ts';

export const mountSvelte: Mount = (target, first) => {
  const list = mount(List as unknown as Component<{ first: Asked }, { show(asked: Asked): void }>, {
    target,
    props: { first },
  });
  return { show: (asked) => list.show(asked), unmount: () => void unmount(list) };
};
