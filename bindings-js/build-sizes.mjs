// Measures what users download and fails the build when it grows past the budget.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';

const FILES = [
  'index.js', 'inline.js', 'worker.js', 'worker-indexeddb.js', 'local.js', 'indexeddb.js', 'destroy.js', 'versions.js', 'migrations.js', 'maintenance.js', 'parts.js', 'blob.js', 'live.js', 'sync.js', 'mangrove_core_bg.wasm', 'mangrove_rest_bg.wasm',
  'mangrove_bg.wasm', 'encryption.js', 'mangrove_encrypted_core_bg.wasm', 'mangrove_encrypted_rest_bg.wasm', 'mangrove_encrypted_bg.wasm', 'mangrove_upkeep_encrypted_bg.wasm', 'node.js',
  'node-inline.js', 'node-worker.js', 'upkeep.js', 'worker-upkeep.js', 'mangrove_upkeep_bg.wasm', 'node-upkeep.js', 'cli.js', 'cli-archive.js', 'mangrove_cli_bg.wasm', 'inspector.js',
];

/** Bytes after gzip. A page loads the entry, the worker and the module; Node loads its own entry instead. */
const BUDGETS = [
  { what: 'main thread', files: ['index.js'], maxGzipBytes: 37 * 1024 },
  { what: 'browser, all', files: ['index.js', 'worker.js', 'mangrove_core_bg.wasm'], maxGzipBytes: 215 * 1024 },
];

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
  { what: 'rest of the module', files: ['mangrove_rest_bg.wasm'] },
];

function totalSizes(dist) {
  return new Map([...BUDGETS, ...PARTS].map(({ what, files }) => [what, sum(files.map((file) => sizesOf(join(dist, file))))]));
}

/** What pages may say, as it is now, in bytes after gzip: `size: main thread` and the like. */
export function figuresForPages(dist) {
  const figures = [...totalSizes(dist)].map(([what, { gzip }]) => [`size: ${what}`, gzip]);
  return new Map([...figures, ...BUDGETS.map(({ what, maxGzipBytes }) => [`budget: ${what}`, maxGzipBytes])]);
}

export function checkSizes(dist) {
  const sizes = new Map(FILES.map((file) => [file, sizesOf(join(dist, file))]));
  process.stdout.write(`${'KiB'.padEnd(18)}${'raw'.padStart(9)}${'gzip'.padStart(9)}${'brotli'.padStart(9)}\n`);
  for (const [file, size] of sizes) process.stdout.write(row(file, size));
  const totals = totalSizes(dist);
  for (const { what, files, maxGzipBytes } of BUDGETS) {
    const total = totals.get(what);
    process.stdout.write(row(what, total));
    if (total.gzip > maxGzipBytes) {
      throw new Error(`${what}: ${total.gzip} bytes after gzip, the budget is ${maxGzipBytes} (${files.join(', ')})`);
    }
  }
}
