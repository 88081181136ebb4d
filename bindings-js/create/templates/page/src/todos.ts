// The data. Nothing else in this project knows how it is stored.
import { KEEP, KvError, keyCodecs, open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';

export interface Todo {
  readonly text: string;
  readonly isDone: boolean;
}
/** Entries are sorted by their keys, so this is the order of the list: oldest first. */
export type TodoKey = readonly [addedAt: number, id: string];
export type Todos = Database<TodoKey, Todo>;

/** Call it once per page. All tabs open the same database and share it. */
export function openTodos(): Promise<Todos> {
  return open('todos', { key: keyCodecs.tuple<TodoKey>() });
}

/** Resolves when the to-do survives a power cut; so do the other changes. */
export async function add(todos: Todos, text: string): Promise<void> {
  await todos.set([Date.now(), crypto.randomUUID()], { text, isDone: false });
}

/** `update` is atomic. Another tab may have removed the to-do: `KEEP` leaves it so. */
export async function setDone(todos: Todos, key: TodoKey, isDone: boolean): Promise<void> {
  await todos.update(key, (todo) => (todo === undefined ? KEEP : { ...todo, isDone }));
}

export async function remove(todos: Todos, key: TodoKey): Promise<void> {
  await todos.delete(key);
}

/** One transaction: it removes those that are done now, in whichever tab, and all of them or none. */
export async function removeDone(todos: Todos): Promise<void> {
  await todos.transaction(async (tx) => {
    for await (const [key, { isDone }] of tx.entries()) if (isDone) await tx.delete(key);
  });
}

/** What to tell the user. Every error of the database has a stable code. */
export function explain(error: unknown): string {
  if (!(error instanceof KvError)) return String(error);
  switch (error.code) {
    case 'KV_UNSUPPORTED':
      return `This browser window cannot store data; it may be a private one. ${error.message}`;
    case 'KV_LOCKED':
      return 'A tab with another version of this page has the data: reload or close it.';
    case 'KV_QUOTA_EXCEEDED':
      return 'There is no space left on this device. Nothing was changed.';
    default:
      return error.message;
  }
}
