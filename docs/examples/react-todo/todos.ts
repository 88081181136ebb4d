// The data. Keys sort in display order, open todos first.
import { DELETE, KEEP, keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';

export type TodoKey = readonly [isDone: boolean, added: number, id: string];
export interface Todo {
  readonly text: string;
}
export type Todos = Database<TodoKey, Todo>;

export function openTodos(): Promise<Todos> {
  // Long enough for the page before a reload to release the database.
  return open('todo', { key: keyCodecs.tuple<TodoKey>(), value: valueCodecs.json<Todo>(), lockTimeout: 2_000 });
}

export async function add(todos: Todos, text: string): Promise<void> {
  await todos.set([false, Date.now(), crypto.randomUUID()], { text });
}

/** The key determines the position, so this moves the todo in one transaction. */
export async function toggle(todos: Todos, key: TodoKey): Promise<void> {
  const [isDone, added, id] = key;
  await todos.transaction(async (tx) => {
    const todo = await tx.get(key);
    if (todo === undefined) return;
    await tx.delete(key);
    await tx.set([!isDone, added, id], todo);
  });
}

/** An empty text removes the todo. */
export async function rename(todos: Todos, key: TodoKey, text: string): Promise<void> {
  await todos.update(key, (todo) => {
    if (todo === undefined) return KEEP;
    return text === '' ? DELETE : { ...todo, text };
  });
}

export async function removeDone(todos: Todos): Promise<void> {
  await todos.clear({ prefix: [true] });
}
