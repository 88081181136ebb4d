// Each file of src/adapters itself is an entry of its own: it imports the main one, and the package it adapts to, by name. So do
// the drivers of sync.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

/** Packages stay imports. */
const OPTIONS = {
  bundle: true,
  packages: 'external',
  format: 'esm',
  platform: 'neutral',
  target: 'es2022',
  sourcemap: true,
  legalComments: 'none',
  logLevel: 'warning',
};

/** Bundles the adapters and, beside them, the drivers of sync, whose downloads are measured unless `isMeasured` is false. */
export async function bundleAdapters(source, outdir, { isMeasured = true } = {}) {
  await build({
    ...OPTIONS,
    entryPoints: readdirSync(source).filter((file) => file.endsWith('.ts')).map((file) => join(source, file)),
    outdir,
  });
  const drivers = join(outdir, '..', 'sync');
  await bundleDrivers(join(source, '..', 'sync'), drivers);
  if (isMeasured) await checkDriverSizes(drivers);
}

/** Entries of `mangrove-kv/sync` that talk to servers, and what few load. */
const DRIVERS = { nats: 'nats/index', 'nats-admin': 'nats/admin', s3: 's3/index', archive: 'archive/index' };

/** A copy of the class of errors would be another class, so it comes from the main entry. */
const errorsStayOne = {
  name: 'errors-stay-one',
  setup({ onResolve }) {
    onResolve({ filter: /\/base\/errors\.ts$/ }, () => ({ path: 'mangrove-kv', external: true }));
  },
};

/** Bytes after gzip that a page loads for a driver, with the packages that it needs but without the main entry. */
const DRIVER_BUDGETS = { nats: 60 * 1024, s3: 12 * 1024 };

/** Bundles drivers as an application does, and fails if they have grown past the budget. */
async function checkDriverSizes(outdir) {
  for (const [name, maxGzipBytes] of Object.entries(DRIVER_BUDGETS)) {
    const { outputFiles: [file] } = await build({
      entryPoints: [join(outdir, `${name}.js`)],
      external: ['mangrove-kv'],
      bundle: true,
      minify: true,
      write: false,
      format: 'esm',
      platform: 'browser',
      target: 'es2022',
      legalComments: 'none',
      logLevel: 'warning',
    });
    const bytes = gzipSync(file.contents, { level: 9 }).length;
    process.stdout.write(`sync/${name} with its packages: ${(bytes / 1024).toFixed(1)} KiB after gzip\n`);
    if (bytes > maxGzipBytes) throw new Error(`sync/${name}: ${bytes} bytes after gzip with its packages, the budget is ${maxGzipBytes}`);
  }
}

async function bundleDrivers(source, outdir) {
  await build({
    ...OPTIONS,
    entryPoints: Object.entries(DRIVERS).map(([out, file]) => ({ in: join(source, `${file}.ts`), out })),
    outdir,
    plugins: [errorsStayOne],
  });
}
