// Each file of src/adapters itself is an entry of its own: it imports the main one, and the package it adapts to, by name.
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

/** Entries of `mangrove-kv/sync` that talk to servers. */
const DRIVERS = { nats: 'nats/index', 'nats-admin': 'nats/admin', s3: 's3/index' };

/** A copy of the class of errors would be another class, so it comes from the main entry. */
const errorsStayOne = {
  name: 'errors-stay-one',
  setup({ onResolve }) {
    onResolve({ filter: /\/base\/errors\.ts$/ }, () => ({ path: 'mangrove-kv', external: true }));
  },
};

export async function bundleDrivers(source, outdir) {
  await build({
    entryPoints: Object.entries(DRIVERS).map(([out, file]) => ({ in: join(source, `${file}.ts`), out })),
    outdir,
    bundle: true,
    packages: 'external',
    plugins: [errorsStayOne],
    format: 'esm',
    platform: 'neutral',
    target: 'es2022',
    sourcemap: true,
    legalComments: 'none',
    logLevel: 'warning',
  });
}
