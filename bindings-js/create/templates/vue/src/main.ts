import { createApp, h } from 'vue';
import App from './App.vue';
import './style.css';
import { explain, openTodos } from './todos.ts';

try {
  // Here, not in a component: once per page, and not again when a component is edited.
  const todos = await openTodos();
  createApp(App, { todos }).mount('#app');
} catch (error) {
  createApp(() => h('p', { role: 'alert' }, explain(error))).mount('#app');
}
