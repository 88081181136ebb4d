import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// mangrove-kv needs no settings.
export default defineConfig({ plugins: [svelte()] });
