import { defineConfig } from 'vite';

// Mangrove needs none of this.
export default defineConfig({ build: { outDir: '../build/react-todo', emptyOutDir: true, target: 'es2022' } });
