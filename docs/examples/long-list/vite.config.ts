import { defineConfig } from 'vite';

export default defineConfig({ build: { outDir: '../build/long-list', emptyOutDir: true, target: 'es2022' } });
