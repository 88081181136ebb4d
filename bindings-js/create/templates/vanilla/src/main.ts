// The page: draws the to-dos, and again whenever they change, in this tab or in another one.
import { liveQuery } from 'mangrove-kv/live';
import './style.css';
import { add, explain, openTodos, remove, removeDone, setDone } from './todos.ts';
import type { Todo, TodoKey, Todos } from './todos.ts';

function find<E extends Element>(selector: string, within: ParentNode = document): E {
  const found = within.querySelector<E>(selector);
  if (found === null) throw new Error(`the page has no ${selector}`);
  return found;
}

const form = find<HTMLFormElement>('form');
const input = find<HTMLInputElement>('input');
const list = find<HTMLUListElement>('ul');
const status = find('[role=status]');
const alert = find<HTMLElement>('[role=alert]');
const removeButton = find<HTMLButtonElement>('footer button');
const template = find<HTMLTemplateElement>('template');

/** The rows that are drawn, by key. */
const rows = new Map<string, HTMLLIElement>();

/** Waits for a change, and tells the user if it fails. */
async function attempt(change: Promise<void>): Promise<boolean> {
  try {
    await change;
    alert.hidden = true;
    return true;
  } catch (error) {
    report(error);
    return false;
  }
}

function report(error: unknown): void {
  alert.textContent = explain(error);
  alert.hidden = false;
}

function newRow(todos: Todos, key: TodoKey): HTMLLIElement {
  const row = find<HTMLLIElement>('li', template.content.cloneNode(true) as DocumentFragment);
  const box = find<HTMLInputElement>('input', row);
  box.onchange = () => void attempt(setDone(todos, key, box.checked));
  find<HTMLButtonElement>('button', row).onclick = async () => {
    // The focus would be lost with the button.
    if (await attempt(remove(todos, key))) input.focus();
  };
  return row;
}

function draw(todos: Todos, entries: readonly (readonly [TodoKey, Todo])[]): void {
  const shown = new Set(entries.map(([key]) => String(key)));
  for (const [id, row] of rows) {
    if (shown.has(id)) continue;
    row.remove();
    rows.delete(id);
  }
  for (const [at, [key, { text, isDone }]] of entries.entries()) {
    const row = rows.get(String(key)) ?? newRow(todos, key);
    rows.set(String(key), row);
    find<HTMLInputElement>('input', row).checked = isDone;
    find('span', row).textContent = text;
    find('button', row).ariaLabel = `Delete ${text}`;
    // Moving a row that is in its place would take the focus from it.
    if (list.children[at] !== row) list.insertBefore(row, list.children[at] ?? null);
  }
  const done = entries.filter(([, { isDone }]) => isDone).length;
  status.textContent = `${entries.length - done} to do`;
  removeButton.hidden = done === 0;
}

try {
  const todos = await openTodos();
  const query = liveQuery(todos);
  query.subscribe(() => {
    const { status, entries, error } = query.getSnapshot();
    if (status === 'failed') report(error);
    else if (status === 'ready') draw(todos, entries);
  });
  form.onsubmit = async (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text === '') return;
    const isAdded = await attempt(add(todos, text));
    // What was typed stays until it is stored, and so does what was typed meanwhile.
    if (isAdded && input.value.trim() === text) form.reset();
  };
  removeButton.onclick = async () => {
    if (await attempt(removeDone(todos))) input.focus();
  };
} catch (error) {
  status.textContent = '';
  report(error);
}
