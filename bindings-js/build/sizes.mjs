// Measures what users download, says by how much that has changed, and fails the build when it has grown by more than a twentieth since the sizes were
// recorded. `node bindings-js/build/sizes.mjs --record` records them, for a commit that says why they grew.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';

const FILES = [
  'index.js',
  'inline.js',
  'worker.js',
  'worker-indexeddb.js',
  'local.js',
  'indexeddb.js',
  'destroy.js',
  'versions.js',
  'bucket.js',
  'migrations.js',
  'database-maintenance.js',
  'value-stream.js',
  'passkey.js',
  'blob.js',
  'live.js',
  'mirror.js',
  'mangrove_core_bg.wasm',
  'mangrove_lazy_bg.wasm',
  'mangrove_bg.wasm',
  'packed.js',
  'encryption.js',
  'mangrove_encrypted_core_bg.wasm',
  'mangrove_encrypted_lazy_bg.wasm',
  'maintenance.js',
  'worker-maintenance.js',
  'mangrove_maintenance_bg.wasm',
  'packed-maintenance.js',
];

/** What a page downloads, and the part of it that runs on its main thread. */
const DOWNLOADS = [
  { what: 'main thread', files: ['index.js'] },
  { what: 'browser, all', files: ['index.js', 'worker.js', 'mangrove_core_bg.wasm'] },
];

/** By download, its bytes after gzip when they were recorded. */
const RECORD = new URL('sizes.json', import.meta.url);
/** How much more a build may have. */
const HEADROOM = 0.05;

function sizesOf(path) {
  const bytes = readFileSync(path);
  return { raw: bytes.length, gzip: gzipSync(bytes, { level: 9 }).length, brotli: brotliCompressSync(bytes).length };
}

function row(what, { raw, gzip, brotli }) {
  const kib = (bytes) => (bytes / 1024).toFixed(1).padStart(9);
  return `${what.padEnd(18)}${kib(raw)}${kib(gzip)}${kib(brotli)}\n`;
}

function sum(parts) {
  const total = { raw: 0, gzip: 0, brotli: 0 };
  for (const part of parts) for (const key of Object.keys(total)) total[key] += part[key];
  return total;
}

/** Parts of all that pages name. */
const PARTS = [
  { what: 'scripts', files: ['index.js', 'worker.js'] },
  { what: 'module', files: ['mangrove_core_bg.wasm'] },
  { what: 'lazy part of the module', files: ['mangrove_lazy_bg.wasm'] },
];

function totalSizes(dist) {
  return new Map(
    [...DOWNLOADS, ...PARTS].map(({ what, files }) => [what, sum(files.map((file) => sizesOf(join(dist, file))))]),
  );
}

/** What pages may say, as it is now, in bytes after gzip: `size: main thread` and the like. */
export function figuresForPages(dist) {
  return new Map([...totalSizes(dist)].map(([what, { gzip }]) => [`size: ${what}`, gzip]));
}

export function checkSizes(dist) {
  const sizes = new Map(FILES.map((file) => [file, sizesOf(join(dist, file))]));
  process.stdout.write(`${'KiB'.padEnd(18)}${'raw'.padStart(9)}${'gzip'.padStart(9)}${'brotli'.padStart(9)}\n`);
  for (const [file, size] of sizes) process.stdout.write(row(file, size));
  const totals = totalSizes(dist);
  const recorded = JSON.parse(readFileSync(RECORD, 'utf8'));
  for (const { what, files } of DOWNLOADS) {
    const total = totals.get(what);
    const growth = total.gzip / recorded[what] - 1;
    process.stdout.write(row(what, total));
    process.stdout.write(
      `${what}: ${growth < 0 ? '' : '+'}${(growth * 100).toFixed(2)} % since the sizes were recorded\n`,
    );
    if (growth > HEADROOM) {
      throw new Error(
        `${what}: ${total.gzip} bytes after gzip, recorded were ${recorded[what]} (${files.join(', ')}); node bindings-js/build/sizes.mjs --record`,
      );
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url) && process.argv.includes('--record')) {
  const totals = totalSizes(fileURLToPath(new URL('../kv/dist', import.meta.url)));
  writeFileSync(
    RECORD,
    `${JSON.stringify(Object.fromEntries(DOWNLOADS.map(({ what }) => [what, totals.get(what).gzip])), null, 2)}\n`,
  );
}
