import { useLiveQuery } from '@mangrove-kv/preact';
import { createElement, render } from 'preact';
import type { VNode } from 'preact';
import { textOf } from './main.ts';
import type { Asked, Mount } from './main.ts';

function List({ source, range }: Asked): VNode {
  // A new object for each drawing.
  const { result } = useLiveQuery(source, { ...range });
  return createElement('p', null, textOf(result.value));
}

export const mountPreact: Mount = (target, first) => {
  const show = (lists: readonly Asked[]): void =>
    render(
      lists.map((asked, at) => createElement(List, { ...asked, key: at })),
      target,
    );
  show(first);
  return { show, unmount: () => render(null, target) };
};
