import { createLiveQuery } from '@mangrove-kv/solid';
import { For } from 'solid-js';
import { RANGE, textOf } from './page.ts';

export default function Page(props) {
  const { result, entries } = createLiveQuery(() => props.source, RANGE, { initial: props.initial });
  return (
    <div>
      <p>{textOf(result())}</p>
      <ul>
        <For each={entries()}>
          {([key, value]) => (
            <li>
              {key}={value}
            </li>
          )}
        </For>
      </ul>
    </div>
  );
}
