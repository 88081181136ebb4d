import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { App } from './App.tsx';
import './style.css';
import { explain, openTodos } from './todos.ts';

const root = createRoot(document.getElementById('app') as HTMLElement);
try {
  // Here, not in a component: once per page, and not again when a component is edited.
  const todos = await openTodos();
  root.render(
    <StrictMode>
      <App todos={todos} />
    </StrictMode>,
  );
} catch (error) {
  root.render(<p role="alert">{explain(error)}</p>);
}
