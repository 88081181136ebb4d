import { useLiveQuery } from '@mangrove-kv/react';
import { useRef, useState } from 'react';
import type { FormEvent } from 'react';
import { add, explain, remove, removeDone, setDone } from './todos.ts';
import type { Todos } from './todos.ts';

export function App({ todos }: { todos: Todos }) {
  const { status, entries, error: readError } = useLiveQuery(todos);
  const [writeError, setWriteError] = useState<unknown>();
  const [text, setText] = useState('');
  const input = useRef<HTMLInputElement>(null);
  const done = entries.filter(([, { isDone }]) => isDone).length;
  const error = writeError ?? (status === 'failed' ? readError : undefined);

  /** Waits for a change, and tells the user if it fails. */
  async function attempt(change: Promise<void>): Promise<boolean> {
    try {
      await change;
      setWriteError(undefined);
      return true;
    } catch (reason) {
      setWriteError(reason);
      return false;
    }
  }

  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    const typed = text.trim();
    if (typed === '') return;
    const isAdded = await attempt(add(todos, typed));
    // What was typed stays until it is stored, and so does what was typed meanwhile.
    if (isAdded) setText((now) => (now.trim() === typed ? '' : now));
  }

  /** A button that goes takes the focus with it. */
  async function attemptAndFocus(change: Promise<void>): Promise<void> {
    if (await attempt(change)) input.current?.focus();
  }

  return (
    <>
      <h1>To do</h1>
      <form onSubmit={(event) => void submit(event)}>
        <input
          ref={input}
          type="text"
          aria-label="New to-do"
          placeholder="What is to be done?"
          autoComplete="off"
          required
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <button type="submit">Add</button>
      </form>
      {error !== undefined && <p role="alert">{explain(error)}</p>}
      <ul>
        {entries.map(([key, todo]) => (
          <li key={key.join()}>
            <label>
              <input
                type="checkbox"
                checked={todo.isDone}
                onChange={(event) => void attempt(setDone(todos, key, event.target.checked))}
              />
              <span>{todo.text}</span>
            </label>
            <button
              type="button"
              aria-label={`Delete ${todo.text}`}
              onClick={() => void attemptAndFocus(remove(todos, key))}
            >
              Delete
            </button>
          </li>
        ))}
      </ul>
      <footer>
        <span role="status">{status === 'loading' ? 'Opening' : `${entries.length - done} to do`}</span>
        {done > 0 && (
          <button type="button" onClick={() => void attemptAndFocus(removeDone(todos))}>
            Remove done
          </button>
        )}
      </footer>
    </>
  );
}
