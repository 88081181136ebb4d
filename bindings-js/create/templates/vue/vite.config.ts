import vue from '@vitejs/plugin-vue';
import { defineConfig } from 'vite';

// mangrove-kv needs no settings.
export default defineConfig({ plugins: [vue()] });
