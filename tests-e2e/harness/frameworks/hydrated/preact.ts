import { useLiveQuery } from '@mangrove-kv/preact';
import { createElement } from 'preact';
import type { VNode } from 'preact';
import { RANGE, textOf } from './page.ts';
import type { Properties } from './page.ts';

export function Page({ source, initial }: Properties): VNode {
  const { result } = useLiveQuery(source, RANGE, { initial });
  return createElement('p', null, textOf(result.value));
}
