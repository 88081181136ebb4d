import { useLiveQuery } from '@mangrove-kv/react';
import { StrictMode, createElement } from 'react';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { textOf } from './main.ts';
import type { Asked, Mount } from './main.ts';

function List({ source, range }: Asked): ReactNode {
  // A new object for each drawing.
  return createElement('p', null, textOf(useLiveQuery(source, { ...range })));
}

export const mountReact: Mount = (target, first) => {
  const root = createRoot(target);
  const show = (lists: readonly Asked[]): void =>
    root.render(createElement(StrictMode, null, ...lists.map((asked) => createElement(List, asked))));
  show(first);
  return { show, unmount: () => root.unmount() };
};
