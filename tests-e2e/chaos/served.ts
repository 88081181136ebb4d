// Builds the page of the chaos run with a bundler, as an application would, and serves it.
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { serve } from '../http.ts';
import type { Server } from '../http.ts';

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export async function serveChaos(): Promise<Server> {
  await build({ root: here('.'), configFile: here('./vite.config.ts'), logLevel: 'error' });
  return serve(here('./dist'), { 'cache-control': 'max-age=600' });
}
