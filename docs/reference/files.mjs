// The files that pages fetch, by feature, as the table below `<!-- files -->` on a page.
// tests-e2e/specs/files.spec.ts runs each feature with its files and no others, and without each of
// them.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const CORE = 'mangrove_core_bg.wasm';
const LAZY = 'mangrove_lazy_bg.wasm';
const OPEN = ['index.js', 'worker.js', CORE];
const INLINE = ['inline.js', 'packed.js', 'worker.js'];
const ENCRYPTED = ['index.js', 'worker.js', 'encryption.js', 'mangrove_encrypted_core_bg.wasm'];

/**
 * `files` are fetched besides those of `base`, some of which are then not needed: `instead` names
 * them.
 */
export const FEATURES = {
  open: {
    what: '`open` in OPFS or memory, reads, writes, transactions, snapshots, followers, expiry, compression',
    base: [],
    files: OPEN,
  },
  indexeddb: { what: "`storage: 'indexeddb'`", base: OPEN, files: ['worker-indexeddb.js'], instead: 'worker.js' },
  local: {
    what: "`thread: 'same'`, a storage of your own",
    base: OPEN,
    files: ['local.js', LAZY],
    instead: 'worker.js',
  },
  indexeddbLocal: {
    what: "`thread: 'same'` with `storage: 'indexeddb'`",
    base: OPEN,
    files: ['indexeddb.js', LAZY],
    instead: 'worker.js',
  },
  indexes: { what: 'indexes: the first write to a collection that declares one', base: OPEN, files: [LAZY] },
  stats: { what: '`stats`, `verify`, `backup`, `refresh`', base: OPEN, files: [LAZY] },
  maintenance: { what: '`compact`, `layout`, `buildIndexes`', base: OPEN, files: ['database-maintenance.js', LAZY] },
  valueStream: { what: '`setStream`, `getStream`, `getRange`', base: OPEN, files: ['value-stream.js', LAZY] },
  blob: { what: '`mangrove-kv/blob`', base: OPEN, files: ['blob.js', 'value-stream.js', LAZY] },
  list: { what: '`list`, `destroy`', base: ['index.js'], files: ['destroy.js'] },
  indexeddbList: { what: "`list`, `destroy` with `storage: 'indexeddb'`", base: ['index.js'], files: ['indexeddb.js'] },
  recover: {
    what: '`restore`, `recover`',
    base: OPEN,
    files: ['maintenance.js', 'worker-maintenance.js', 'mangrove_maintenance_bg.wasm'],
  },
  versions: { what: '`version` and `upgrade`', base: OPEN, files: ['versions.js'] },
  bucket: { what: '`bucket`', base: OPEN, files: ['bucket.js'] },
  migrations: { what: '`mangrove-kv/migrations`', base: OPEN, files: ['migrations.js', 'versions.js'] },
  encryption: {
    what: '`encryption`',
    base: OPEN,
    files: ['encryption.js', 'mangrove_encrypted_core_bg.wasm'],
    instead: CORE,
  },
  encryptedIndexes: {
    what: `… with what needs \`${LAZY}\` above`,
    base: ENCRYPTED,
    files: ['mangrove_encrypted_lazy_bg.wasm'],
    instead: LAZY,
  },
  changeKey: {
    what: '… with `changeKey`, `reencrypt`',
    base: ENCRYPTED,
    files: ['database-maintenance.js', 'mangrove_encrypted_lazy_bg.wasm'],
  },
  encryptedRecover: {
    what: '… with `restore`, `recover`',
    base: ENCRYPTED,
    files: ['maintenance.js', 'worker-maintenance.js', 'mangrove_maintenance_bg.wasm'],
  },
  passkey: { what: '`mangrove-kv/passkey`', base: OPEN, files: ['passkey.js'] },
  live: { what: '`mangrove-kv/live`', base: OPEN, files: ['live.js', 'mirror.js'] },
  inline: { what: `\`mangrove-kv/inline\`: the first row, and what needs \`${LAZY}\``, base: [], files: INLINE },
  inlineEncryption: { what: '… with `encryption`', base: INLINE, files: ['encryption-inline.js'] },
  inlineRecover: {
    what: '… with `restore`, `recover`',
    base: INLINE,
    files: ['maintenance-inline.js', 'packed-maintenance.js', 'worker-maintenance.js'],
  },
  inlineEncryptedRecover: {
    what: '… with `restore`, `recover` and `encryption`',
    base: [...INLINE, 'encryption-inline.js'],
    files: ['maintenance-inline.js', 'packed-maintenance.js', 'worker-maintenance.js'],
  },
};

/** Whether a bundler that leaves addresses as they are does not see a file: nothing imports it. */
export const isAsset = (file) => /^worker|\.wasm$/.test(file);

const names = (files) => files.map((file) => `\`${file}\``).join(', ');

function row([id, { what, files, instead }]) {
  const assets = names(files.filter(isAsset)) + (instead === undefined ? '' : ` instead of \`${instead}\``);
  return `| ${what} | ${names(files.filter((file) => !isAsset(file)))} | ${assets.trim()} | <!-- size: files ${id} -->0 |`;
}

const TABLE = [
  '| what | scripts | workers and modules | KiB after gzip |',
  '|---|---|---|---|',
  ...Object.entries(FEATURES).map(row),
];

const withoutFigures = (line) => line.replaceAll(/-->[\d.]+/g, '-->0');

/** The page with the table, whose figures are left as they are in rows that are right. */
export function withFiles(text) {
  return text.replace(/(?<=^<!-- files -->\n)(?:\|.*\n)*/m, (given) => {
    const lines = given.split('\n');
    return TABLE.map((line) => `${lines.find((each) => withoutFigures(each) === line) ?? line}\n`).join('');
  });
}

/** Bytes after gzip of each feature's files: `size: files open` and the like. */
export function fileFigures(dist) {
  const bytes = (file) => gzipSync(readFileSync(join(dist, file)), { level: 9 }).length;
  return new Map(
    Object.entries(FEATURES).map(([id, { files }]) => [
      `size: files ${id}`,
      files.reduce((sum, file) => sum + bytes(file), 0),
    ]),
  );
}
