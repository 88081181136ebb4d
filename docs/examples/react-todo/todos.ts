// The data: keys in the order in which the list shows them, open ones first.
import { DELETE, KEEP, keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';

export type TodoKey = readonly [isDone: boolean, added: number, id: string];
export interface Todo { readonly text: string }
export type Todos = Database<TodoKey, Todo>;

export function openTodos(): Promise<Todos> {
  // Long enough for the page before a reload to let go.
  return open('todo', { key: keyCodecs.tuple<TodoKey>(), value: valueCodecs.json<Todo>(), lockTimeout: 2_000 });
}

export async function add(todos: Todos, text: string): Promise<void> {
  await todos.set([false, Date.now(), crypto.randomUUID()], { text });
}

/** Its key says where it is, so it moves: both happen or none does. */
export async function toggle(todos: Todos, key: TodoKey): Promise<void> {
  const [isDone, added, id] = key;
  await todos.transaction(async (tx) => {
    const todo = await tx.get(key);
    if (todo === undefined) return;
    await tx.delete(key);
    await tx.set([!isDone, added, id], todo);
  });
}

/** An empty text removes it. */
export async function rename(todos: Todos, key: TodoKey, text: string): Promise<void> {
  await todos.update(key, (todo) => {
    if (todo === undefined) return KEEP;
    return text === '' ? DELETE : { ...todo, text };
  });
}

export async function removeDone(todos: Todos): Promise<void> {
  await todos.clear({ prefix: [true] });
}
