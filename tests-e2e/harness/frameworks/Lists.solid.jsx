import { createLiveQuery } from '@mangrove-kv/solid';
import { Index } from 'solid-js';
import { textOf } from './main.ts';

function List(props) {
  const { result } = createLiveQuery(
    () => props.source,
    () => props.range,
  );
  return <p>{textOf(result())}</p>;
}

export default function Lists(props) {
  return <Index each={props.lists}>{(asked) => <List source={asked().source} range={asked().range} />}</Index>;
}
