// The data. Nothing else in this project knows how it is stored.
import { fileURLToPath } from 'node:url';
import { KEEP, keyCodecs, open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';

export interface Todo {
  readonly text: string;
  readonly isDone: boolean;
}
/** Entries are sorted by their keys, so this is the order of the list: oldest first. */
export type TodoKey = readonly [addedAt: number, id: string];
export type Todos = Database<TodoKey, Todo>;

const DIRECTORY = fileURLToPath(new URL('../data', import.meta.url));

/** Any number of processes open the same directory and share it. */
export function openTodos(): Promise<Todos> {
  return open(DIRECTORY, { key: keyCodecs.tuple<TodoKey>() });
}

/** Resolves when the to-do survives a power cut; so do the other changes. */
export async function add(todos: Todos, text: string): Promise<void> {
  await todos.set([Date.now(), crypto.randomUUID()], { text, isDone: false });
}

/** Marks the to-do at a position of the list, which takes O(log n) to find. Returns it, or `undefined` if there is none. */
export async function setDone(todos: Todos, position: number): Promise<Todo | undefined> {
  const [key] = (await todos.at(position)) ?? [];
  if (key === undefined) return undefined;
  // Atomic. Another process may have removed the to-do: `KEEP` leaves it so.
  return todos.update(key, (todo) => (todo === undefined ? KEEP : { ...todo, isDone: true }));
}

/** One transaction: it removes those that are done now, and all of them or none. Returns how many. */
export async function removeDone(todos: Todos): Promise<number> {
  return todos.transaction(async (tx) => {
    let removed = 0;
    for await (const [key, { isDone }] of tx.entries()) {
      if (!isDone) continue;
      await tx.delete(key);
      removed++;
    }
    return removed;
  });
}
