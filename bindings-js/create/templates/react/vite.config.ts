import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// mangrove-kv needs no settings.
export default defineConfig({ plugins: [react()] });
