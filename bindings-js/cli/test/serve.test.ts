// The verb serve, and verbs that run beside a process which has the database open.
import assert from 'node:assert/strict';
import process from 'node:process';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import { ended, linesOf, run, start, withPlace } from './support/tool.ts';

test(
  'verbs attach to a process that serves, which another one follows',
  withPlace(async (place) => {
    const path = place.loaded('db', '{"key":1,"value":"one"}\n');
    const server = start(['serve', path]);
    const end = ended(server);
    const { pid } = JSON.parse(await linesOf(server)()) as { pid: number };
    assert.equal(pid, server.pid);
    const attached = `attached to process ${pid}, which has the database open\n`;
    for (const [args, out] of [
      [['set', path, '2', '"two"'], ''],
      [['del', path, '1'], 'true\n'],
    ] as const) {
      const ran = run(args);
      assert.deepEqual([ran.code, ran.err], [0, attached], ran.out);
      if (out !== '') assert.equal(ran.out, out);
    }
    // What only reads runs beside it.
    assert.equal(run(['get', path, '2']).ok(), '"two"\n');
    assert.equal(run(['verify', path]).json<{ ok: boolean }>().ok, true);
    const db = await open(path);
    assert.equal(await db.get(2), 'two');
    const leader = new Promise<number>((resolve) => {
      db.addEventListener('leader', (event) => resolve(event.leader.pid), { once: true });
    });
    // Deno takes a child that its own method signals for killed.
    process.kill(pid, 'SIGTERM');
    assert.equal(await end, 0);
    assert.equal(await leader, process.pid);
    await db.set(3, 'three');
    assert.deepEqual(await db.keys().toArray(), [2, 3]);
    await db.close();
    assert.equal(run(['get', path, '3']).ok(), '"three"\n');
  }),
);
