// The page of the benchmark, built and served, with the build to compare with beside it.
import { cpSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { build, preview } from 'vite';
import { BEFORE } from '../src/peers/index.ts';

export interface ServedPage {
  readonly url: string;
  close(): Promise<void>;
}

/** Relative to where npm was called. */
export const toPath = (text: string): string => resolve(process.env['INIT_CWD'] ?? '.', text);

export async function servePage(): Promise<ServedPage> {
  const root = join(import.meta.dirname, '..');
  await build({ root, logLevel: 'error' });
  if (BEFORE !== undefined) cpSync(toPath(BEFORE), join(root, 'dist', 'before'), { recursive: true });
  const server = await preview({ root, logLevel: 'error' });
  const url = server.resolvedUrls?.local[0];
  if (url === undefined) throw new Error('the page is not served');
  return { url, close: () => server.close() };
}
