import { defineConfig } from 'vite';

// Nothing of this is for Mangrove.
export default defineConfig({ build: { outDir: '../build/react-todo', emptyOutDir: true, target: 'es2022' } });
