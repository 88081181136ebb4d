// Measures what a page loads for each codec: bundled for a browser, minified and tree-shaken.
import { join } from 'node:path';
import { constants, brotliCompressSync, gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { CODECS } from './codecs.mjs';

const ROOT = join(import.meta.dirname, '../../..');

async function bundle(id) {
  const { bundle: contents, ours } = CODECS[id];
  if (contents === undefined) return undefined;
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: ours ? ROOT : import.meta.dirname },
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    logLevel: 'silent',
  });
  const code = outputFiles[0].contents;
  if (code.length <= 1) return { minified: 0, gzip: 0, brotli: 0 };
  const brotli = brotliCompressSync(code, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  return { minified: code.length, gzip: gzipSync(code, { level: 9 }).length, brotli: brotli.length };
}

export async function measureBundles(ids) {
  const sizes = {};
  for (const id of ids) sizes[id] = await bundle(id);
  return sizes;
}
