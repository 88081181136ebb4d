// The package under Node's permission model, in each supported version: what it can do with which
// permission, and that every refusal is a KvError that says what to allow.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { open } from '../dist/node.js';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
const TOOL = fileURLToPath(new URL('../../cli/dist/mangrove-kv.js', import.meta.url));
const VERSIONS = ['20', '22', '24'];

/** What all programs share: `say` prints the outcome of a call on one line. */
const START = `
import process from 'node:process';
import { open, openSync, destroy, list, recover, restore } from ${JSON.stringify(join(DIST, 'node.js'))};
const [path, other] = process.argv.slice(2);
process.on('unhandledRejection', (error) => console.log('unhandled: ' + error));
async function say(what, call) {
  try {
    console.log(what + ': ' + await call());
  } catch (error) {
    console.log(what + ': ' + error.name + ' ' + error.code + ' ' + error.message.replaceAll('\\n', ' '));
  }
}
`;

const WRITES = `
await say('open', async () => {
  const db = await open(path);
  await db.setMany(Array.from({ length: 2000 }, (_, at) => [at, 'x'.repeat(500)]));
  await db.transaction(async (tx) => { await tx.delete(0); await tx.set('kept', new Uint8Array(300_000)); }, { durability: 'strict' });
  await db.set('none', 1, { durability: 'none' });
  await db.flush();
  await db.compact();
  await db.close();
  const again = await open(path, { create: false });
  try { return await again.size; } finally { await again.close(); }
});
await say('openSync', () => {
  const db = openSync(path);
  db.set('sync', 1);
  db.close();
  return 'closed';
});
`;

const COPIES = `
await say('restore', async () => {
  const db = await open(path);
  await restore(other, db.backup());
  await db.close();
  return 'restored';
});
await say('destroy', () => destroy(other));
await say('recover', async () => (await recover(path, other)).entries);
await say('list', list);
`;

const READS = `
await say('open', async () => {
  const db = await open(path, { readOnly: true });
  try { return await db.get('a'); } finally { await db.close(); }
});
await say('open to write', () => open(path));
await say('openSync', () => openSync(path));
await say('destroy', () => destroy(path));
`;

const WORKER = `
await say('worker', async () => {
  const db = await open(path, { thread: 'worker' });
  await db.set('a', 1);
  try { return await db.get('a'); } finally { await db.close(); }
});
`;

const WAITS = `
await say('open', async () => {
  const db = await open(path);
  await db.set('a', 1);
  console.log('waits: yes');
  await new Promise((resolve) => process.stdin.once('data', resolve));
  await db.close();
  return 'closed';
});
`;

const O_DSYNC = 0o10000;

/** How a process has the files of a directory open. */
function flagsOf(pid, directory) {
  return readdirSync(`/proc/${pid}/fd`)
    .flatMap((handle) => {
      const file = readlinkSync(`/proc/${pid}/fd/${handle}`);
      if (dirname(file) !== directory) return [];
      const flags = Number.parseInt(
        /^flags:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${handle}`, 'utf8'))[1],
        8,
      );
      return [`${basename(file)}: ${(flags & O_DSYNC) === 0 ? 'cached' : 'written through'}`];
    })
    .sort();
}

function binaryOf(version) {
  return fileURLToPath(new URL(`node_modules/node-${version}-${process.arch}/bin/node`, import.meta.url));
}

for (const version of VERSIONS) {
  const node = binaryOf(version);
  // Binaries of the registry are for Linux.
  const options = { skip: process.platform !== 'linux' };
  const read = (path) => `--allow-fs-read=${path}`;
  const write = (path) => `--allow-fs-write=${path}`;

  /** Runs `use` in a directory of its own, with a database at `db` and the flags that every program needs. */
  const inDirectory = (use) => async () => {
    assert.ok(existsSync(node), `no ${node}; node .ci/setup.mjs --runtimes installs it`);
    const directory = mkdtempSync(join(realpathSync(tmpdir()), 'mangrove-permissions-'));
    const script = join(directory, 'program.mjs');
    const flags = [
      version === '20' ? '--experimental-permission' : '--permission',
      '--no-warnings',
      read(`${DIST}*`),
      read(script),
    ];
    const place = { path: join(directory, 'db'), other: join(directory, 'other') };
    const args = (program, ...permissions) => {
      writeFileSync(script, START + program);
      return [...flags, ...permissions, script, place.path, place.other];
    };
    const run = (program, ...permissions) =>
      Object.fromEntries(
        execFileSync(node, args(program, ...permissions), {
          cwd: directory,
          encoding: 'utf8',
          stdio: ['ignore', 'pipe', 'inherit'],
        })
          .trim()
          .split('\n')
          .map((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)]),
      );
    try {
      await use({ directory, ...place, args, run });
    } finally {
      rmSync(directory, { recursive: true });
    }
  };
  const make = async (path) => {
    const db = await open(path);
    await db.set('a', 1);
    await db.close();
  };
  const below = (path) => [read(`${path}/*`), write(`${path}/*`)];

  test(
    `Node ${version}: no permission at all`,
    options,
    inDirectory(async ({ path, run }) => {
      await make(path);
      for (const outcome of Object.values(run(READS)))
        assert.match(outcome, /^KvError KV_IO .*allow it with --allow-fs-read=/);
    }),
  );

  test(
    `Node ${version}: read only`,
    options,
    inDirectory(async ({ path, run }) => {
      await make(path);
      const { open: opened, ...refused } = run(READS, read(`${path}/*`));
      assert.equal(opened, '1');
      for (const outcome of Object.values(refused))
        assert.match(outcome, /^KvError KV_IO .*allow it with --allow-fs-write=/);
    }),
  );

  test(
    `Node ${version}: the directory above, to write`,
    options,
    inDirectory(async ({ directory, run }) => {
      const { list, ...done } = run(WRITES + COPIES, ...below(directory));
      assert.deepEqual(done, {
        open: '2001',
        openSync: 'closed',
        restore: 'restored',
        destroy: 'true',
        recover: '2002',
      });
      // That is the working directory itself.
      assert.match(list, /^KvError KV_IO .*allow it with --allow-fs-read=\.$/);
    }),
  );

  test(
    `Node ${version}: only the database's own directory`,
    options,
    inDirectory(async ({ path, run }) => {
      mkdirSync(path);
      assert.deepEqual(run(WRITES, ...below(path)), { open: '2001', openSync: 'closed' });
      const db = await open(path, { create: false });
      assert.equal(await db.size, 2002);
      assert.ok((await db.verify()).ok);
      await db.close();
      assert.deepEqual(readdirSync(path).sort(), ['data', 'log']);
    }),
  );

  for (const locks of [[], ['--allow-child-process']]) {
    test(
      `Node ${version}: two processes, ${locks[0] ?? 'without flock'}`,
      options,
      inDirectory(async ({ path, args, run }) => {
        mkdirSync(path);
        const holder = spawn(node, args(WAITS, ...below(path), ...locks), { stdio: ['pipe', 'pipe', 'inherit'] });
        const ended = new Promise((resolve) => holder.once('close', resolve));
        await once(holder.stdout, 'data');
        if (locks.length === 0)
          assert.deepEqual(flagsOf(holder.pid, path), ['data: written through', 'log: written through']);
        assert.match(run(WRITES, ...below(path), ...locks).openSync, /^KvError KV_LOCKED /);
        holder.stdin.end('\n');
        await ended;
        assert.equal(run(WRITES, ...below(path), ...locks).open, '2002');
      }),
    );
  }

  test(
    `Node ${version}: the command line tool`,
    options,
    inDirectory(async ({ directory, path }) => {
      await make(path);
      const permission = version === '20' ? '--experimental-permission' : '--permission';
      const tool = (...args) =>
        execFileSync(node, [permission, '--no-warnings', read(`${ROOT}*`), ...below(directory), TOOL, ...args], {
          cwd: directory,
          encoding: 'utf8',
          stdio: ['ignore', 'pipe', 'inherit'],
        });
      assert.equal(JSON.parse(tool('backup', path, join(directory, 'backup'))).entries, 1);
      assert.equal(tool('dump', path), '{"collection":"","key":"a","value":1}\n');
      assert.equal(JSON.parse(tool('restore', join(directory, 'backup'), join(directory, 'copy'))).entries, 1);
      assert.equal(tool('set', join(directory, 'copy'), '"b"', '2'), '');
      assert.equal(tool('count', join(directory, 'copy')), '2\n');
    }),
  );

  test(
    `Node ${version}: an engine in a worker`,
    options,
    inDirectory(async ({ path, run }) => {
      mkdirSync(path);
      assert.match(run(WORKER, ...below(path)).worker, /^KvError KV_UNSUPPORTED .*allow it with --allow-worker$/);
      assert.equal(run(WORKER, ...below(path), '--allow-worker').worker, '1');
    }),
  );
}
