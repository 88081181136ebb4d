import { strict as assert } from 'node:assert';
import cluster from 'node:cluster';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const WAIT_MS = 10_000;

describe('a worker of a cluster', () => {
  test('listens by itself: the primary process would keep the socket of one that is killed', async () => {
    const directory = fs.mkdtempSync(join(tmpdir(), 'mangrove-cluster-'));
    cluster.setupPrimary({
      exec: fileURLToPath(new URL('cluster-worker.ts', import.meta.url)),
      execArgv: ['--import', 'tsx'],
    });
    const worker = cluster.fork();
    try {
      await once(worker, 'message');
      await new Promise((resolve) => worker.send(directory, resolve));
      const listens = (): boolean => fs.existsSync(join(directory, 'listens'));
      // Meanwhile this process answers nothing.
      for (const until = performance.now() + WAIT_MS; !listens() && performance.now() < until; );
      assert.equal(listens(), true);
    } finally {
      worker.process.kill('SIGKILL');
      await once(worker, 'exit');
      fs.rmSync(directory, { recursive: true });
    }
  });
});
