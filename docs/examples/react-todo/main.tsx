import { Suspense, use, useState } from 'react';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { useLiveQuery } from '@mangrove-kv/react';
import { add, openTodos, removeDone, rename, toggle } from './todos.ts';
import type { Todo, TodoKey, Todos } from './todos.ts';

// Once per page, not per render.
const opening = openTodos().then(
  (todos) => ({ todos }),
  (error: unknown) => ({ error: error as { code?: string } }),
);

function useRange(todos: Todos, isDone: boolean): readonly (readonly [TodoKey, Todo])[] {
  const { status, entries, error } = useLiveQuery(todos, { prefix: [isDone] });
  if (status === 'failed') throw error;
  return entries;
}

function Item({ todos, entry: [key, { text }] }: { todos: Todos; entry: readonly [TodoKey, Todo] }): ReactNode {
  const [isDone] = key;
  return (
    <li>
      <input type="checkbox" aria-label={`done: ${text}`} checked={isDone} onChange={() => void toggle(todos, key)} />
      <input
        aria-label="text"
        defaultValue={text}
        onBlur={({ target }) => void rename(todos, key, target.value.trim())}
      />
    </li>
  );
}

function List({ todos }: { todos: Todos }): ReactNode {
  const [waiting, done] = [useRange(todos, false), useRange(todos, true)];
  const [text, setText] = useState('');
  const submit = (): void => {
    if (text.trim() === '') return;
    setText('');
    void add(todos, text.trim());
  };
  return (
    <>
      <h1>{waiting.length} to do</h1>
      <form action={submit}>
        <input
          aria-label="new"
          value={text}
          onChange={({ target }) => setText(target.value)}
          placeholder="What is to be done?"
        />
      </form>
      <ul>
        {[...waiting, ...done].map((entry) => (
          <Item key={`${entry[0][2]} ${entry[1].text}`} todos={todos} entry={entry} />
        ))}
      </ul>
      {done.length > 0 && (
        <button type="button" onClick={() => void removeDone(todos)}>
          Remove {done.length} done
        </button>
      )}
    </>
  );
}

function Page(): ReactNode {
  const opened = use(opening);
  if ('todos' in opened) return <List todos={opened.todos} />;
  return (
    <p role="alert">
      {opened.error.code === 'KV_LOCKED'
        ? 'A tab with another version of this page has the list: reload or close it.'
        : String(opened.error)}
    </p>
  );
}

createRoot(document.getElementById('root') as HTMLElement).render(
  <Suspense fallback="Opening">
    <Page />
  </Suspense>,
);
