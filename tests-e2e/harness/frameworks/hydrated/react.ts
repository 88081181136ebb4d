import { useLiveQuery } from '@mangrove-kv/react';
import { StrictMode, Suspense, createElement } from 'react';
import type { ReactNode } from 'react';
import { RANGE, textOf } from './page.ts';
import type { Properties } from './page.ts';

function List({ source, initial, suspense }: Properties & { readonly suspense: boolean }): ReactNode {
  return createElement('p', null, textOf(useLiveQuery(source, RANGE, { initial, suspense })));
}

/** The page, or with `suspense` one whose list may wait. */
export function pageOf(properties: Properties, suspense = false): ReactNode {
  const list = createElement(List, { ...properties, suspense });
  const waiting = createElement('em', null, 'waiting');
  // Outside of any element React waits, as what is awaited might be the document's head.
  const page = createElement('div', null, suspense ? createElement(Suspense, { fallback: waiting }, list) : list);
  return createElement(StrictMode, null, page);
}
