// The example docs/examples/fleet with a real server, one of its processes killed meanwhile.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { open } from 'mangrove-kv';
import { FIRST_BALANCE, OWNERS, TRANSFERS, bankOf } from '../../../docs/examples/fleet/bank.ts';
import { Cluster } from './support/nats.ts';

const FLEET = fileURLToPath(new URL('../../../docs/examples/fleet/main.ts', import.meta.url));
const NAMES = ['a', 'b', 'c'];

test('a fleet of which a process is killed makes each transfer once, and keeps the sum', async () => {
  const cluster = await Cluster.start();
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-fleet-'));
  const child = spawn(
    process.execPath,
    ['--experimental-websocket', '--import', 'tsx', FLEET, directory, ...cluster.servers, 'fleet'],
    {
      cwd: fileURLToPath(new URL('../../../docs/examples', import.meta.url)),
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  const ended = once(child, 'exit');
  try {
    const lines: string[] = [];
    let victim = 0;
    let isKilled = false;
    for await (const line of createInterface({ input: child.stdout })) {
      lines.push(line);
      const started = /^b: process (\d+)$/.exec(line);
      if (started) victim = Number(started[1]);
      if (!isKilled && line === `b: transfer 4 of ${TRANSFERS}`) {
        isKilled = true;
        process.kill(victim, 'SIGKILL');
      }
    }
    assert.deepEqual(await ended, [0, null], lines.join('\n'));
    assert.ok(lines.includes('b: ended by SIGKILL, starting it again'), lines.join('\n'));

    const contents = [];
    for (const name of NAMES) {
      const db = await open(join(directory, name));
      const { accounts, transfers } = bankOf(db);
      contents.push({ accounts: await accounts.entries().toArray(), transfers: await transfers.entries().toArray() });
      assert.deepEqual((await db.verify()).problems, []);
      await db.close();
    }
    const [{ accounts, transfers }] = contents as [(typeof contents)[number]];
    for (const content of contents) assert.deepEqual(content, contents[0]);
    assert.deepEqual(accounts.map(([, { owner }]) => owner).sort(), OWNERS);
    assert.equal(
      accounts.reduce((sum, [, { balance }]) => sum + balance, 0),
      OWNERS.length * FIRST_BALANCE,
    );
    assert.deepEqual(
      transfers.map(([id]) => id),
      NAMES.flatMap((name) => Array.from({ length: TRANSFERS }, (_, nth) => `${name} ${String(nth).padStart(3, '0')}`)),
    );
    // A transfer that moved money twice would show here.
    const balances = new Map(accounts.map(([id]) => [id, FIRST_BALANCE]));
    for (const [, { from, to, amount }] of transfers) {
      balances.set(from, balances.get(from)! - amount);
      balances.set(to, balances.get(to)! + amount);
    }
    assert.deepEqual(
      accounts.map(([id, { balance }]) => [id, balance]),
      [...balances],
    );
  } finally {
    // It ends the processes that it has started.
    child.kill();
    await cluster.stop();
    rmSync(directory, { recursive: true, force: true });
  }
});
