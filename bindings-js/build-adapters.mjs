// Each file of src/adapters is an entry of its own: it imports the main one, and the package it adapts to, by name.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';

export async function bundleAdapters(source, outdir) {
  await build({
    entryPoints: readdirSync(source).filter((file) => file.endsWith('.ts')).map((file) => join(source, file)),
    outdir,
    bundle: true,
    packages: 'external',
    format: 'esm',
    platform: 'neutral',
    target: 'es2022',
    sourcemap: true,
    legalComments: 'none',
    logLevel: 'warning',
  });
}
