// A to-do list on the command line.
import process from 'node:process';
import { KvError } from 'mangrove-kv';
import { liveQuery } from 'mangrove-kv/live';
import { add, openTodos, removeDone, setDone } from './todos.ts';
import type { Todo, TodoKey, Todos } from './todos.ts';

const USAGE = `Usage: npm start -- <command>

  add <text>    add a to-do
  list          show all; the default
  done <n>      mark the one with this number
  remove-done   remove those that are marked
  watch         show all, and again after each change, of other processes too, until Ctrl-C
`;

function show(entries: readonly (readonly [TodoKey, Todo])[]): void {
  if (entries.length === 0) console.log('Nothing to do.');
  for (const [at, [, { text, isDone }]] of entries.entries()) console.log(`${at + 1}. [${isDone ? 'x' : ' '}] ${text}`);
}

/** Follows the list until the process is asked to end. */
async function watch(todos: Todos): Promise<void> {
  const query = liveQuery(todos);
  // An open database does not keep a process running.
  const running = setInterval(() => undefined, 60_000);
  await new Promise<void>((resolve, reject) => {
    const stop = query.subscribe(() => {
      const { status, entries, error } = query.getSnapshot();
      if (status === 'ready') show(entries);
      if (status === 'failed') reject(error);
    });
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.once(signal, () => {
        stop();
        resolve();
      });
    }
  }).finally(() => clearInterval(running));
}

async function run(todos: Todos, [command = 'list', ...rest]: readonly string[]): Promise<void> {
  const argument = rest.join(' ').trim();
  switch (command) {
    case 'add':
      if (argument === '') throw new Error('what is to be done?');
      return add(todos, argument);
    case 'list':
      return show(await todos.entries().toArray());
    case 'done':
      if (!/^[1-9]\d*$/.test(argument) || (await setDone(todos, Number(argument) - 1)) === undefined)
        throw new Error(`nothing has the number ${JSON.stringify(argument)}`);
      return;
    case 'remove-done':
      console.log(`${await removeDone(todos)} removed`);
      return;
    case 'watch':
      return watch(todos);
    default:
      throw new Error(`${JSON.stringify(command)} is no command\n\n${USAGE}`);
  }
}

try {
  const todos = await openTodos();
  try {
    await run(todos, process.argv.slice(2));
  } finally {
    await todos.close();
  }
} catch (error) {
  // Every error of the database has a stable code.
  console.error(error instanceof KvError ? `${error.code}: ${error.message}` : (error as Error).message);
  process.exitCode = 1;
}
