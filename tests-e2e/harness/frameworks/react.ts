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

export const mountReact: Mount = (target, asked) => {
  const root = createRoot(target);
  const show = (next: Asked): void => root.render(createElement(StrictMode, null, createElement(List, next)));
  show(asked);
  return { show, unmount: () => root.unmount() };
};
