import { mount, unmount } from 'svelte';
import type { Component } from 'svelte';
import Lists from './Lists.svelte';
import type { Asked, Mount } from './main.ts';

export const mountSvelte: Mount = (target, first) => {
  const page = mount(
    Lists as unknown as Component<{ first: readonly Asked[] }, { show(lists: readonly Asked[]): void }>,
    { target, props: { first } },
  );
  return { show: (lists) => page.show(lists), unmount: () => void unmount(page) };
};
