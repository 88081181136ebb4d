import { mount } from 'svelte';
import App from './App.svelte';
import './style.css';
import { explain, openTodos } from './todos.ts';

const target = document.getElementById('app') as HTMLElement;
try {
  // Here, not in a component: once per page, and not again when a component is edited.
  const todos = await openTodos();
  mount(App, { target, props: { todos } });
} catch (error) {
  const alert = Object.assign(document.createElement('p'), { role: 'alert', textContent: explain(error) });
  target.replaceChildren(alert);
}
