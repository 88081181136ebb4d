// The native tool and the package keep each other out. MANGROVE_NATIVE is the native one.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { RUNTIMES, runChildOf } from '../../../kv/test/support/child.ts';
import { withPath } from '../../../kv/test/support/kit.ts';

const NATIVE = process.env['MANGROVE_NATIVE'] ?? 'mangrove';
const UNSHARE = ['unshare', '--pid', '--fork', '--mount-proc'];
const canUnshare = spawnSync('unshare', [...UNSHARE.slice(1), 'true']).status === 0;
/** The key "held" of the package, and its value 1, as the native tool shows bytes. */
const HELD = ['"3068656c64"', '--raw', 'hex'];
const ONE = '"01"\n';

for (const runtime of RUNTIMES) {
  for (const within of canUnshare ? [[], UNSHARE] : [[]]) {
    const where = within.length === 0 ? '' : ' in another namespace of process ids';

    test(`the native tool keeps ${runtime} out${where} until it is killed`, (t) =>
      withPath(async (path) => {
        const holder = spawn(NATIVE, ['load', path, '--collection', 'native', '--ack', '--batch', '1'], {
          stdio: ['pipe', 'pipe', 'inherit'],
        });
        t.after(() => holder.kill('SIGKILL'));
        holder.stdin.write('{"key":"1","value":"1"}\n');
        await createInterface({ input: holder.stdout })[Symbol.asyncIterator]().next();
        const refused = runChildOf(runtime, ['try', path], { within });
        assert.equal(await refused.line(), 'KV_LOCKED');
        await refused.ended;
        const ended = once(holder, 'exit');
        holder.kill('SIGKILL');
        await ended;
        const next = runChildOf(runtime, ['try', path], { within });
        assert.equal(await next.line(), 'open');
        await next.ended;
      }));

    test(`${runtime} keeps the native tool out${where} until it is killed`, (t) =>
      withPath(async (path) => {
        const holder = runChildOf(runtime, ['hold', path]);
        assert.equal(await holder.line(), 'open');
        t.after(() => holder.kill());
        const native = (
          ...args: string[]
        ): { readonly code: number | null; readonly out: string; readonly err: string } => {
          const [command = '', ...first] = [...within, NATIVE];
          const { status, stdout, stderr } = spawnSync(command, [...first, ...args], { input: '', encoding: 'utf8' });
          return { code: status, out: stdout, err: stderr };
        };
        for (const args of [
          ['set', path, '"1"', '"1"'],
          ['del', path, ...HELD],
          ['compact', path],
          ['recover', path, `${path}-new`],
        ]) {
          assert.match(native(...args).err, /^mangrove: KV_LOCKED: /m, args.join(' '));
        }
        assert.equal(native('get', path, ...HELD).out, ONE, 'reading goes on');
        holder.kill();
        await holder.ended;
        assert.equal(native('set', path, '"1"', '"1"').code, 0);
        assert.equal(native('get', path, ...HELD).out, ONE);
      }));
  }
}
