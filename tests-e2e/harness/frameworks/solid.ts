import type { Component } from 'solid-js';
import { createSignal } from 'solid-js';
import { createComponent, render } from 'solid-js/web';
import Lists from './Lists.solid.jsx';
import type { Asked, Mount } from './main.ts';

export const mountSolid: Mount = (target, first) => {
  const [lists, setLists] = createSignal(first);
  const unmount = render(
    () =>
      createComponent(Lists as Component<{ readonly lists: readonly Asked[] }>, {
        get lists() {
          return lists();
        },
      }),
    target,
  );
  return { show: setLists, unmount };
};
