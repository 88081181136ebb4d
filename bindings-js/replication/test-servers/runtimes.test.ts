// The built drivers in Node, Deno and Bun.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { probeBucket } from '../../replication-s3/src/index.ts';
import { Cluster } from './support/nats.ts';
import { startMinio } from './support/s3.ts';
import type { S3Server } from './support/s3.ts';

const MAIN = fileURLToPath(new URL('support/runtime-main.mjs', import.meta.url));
const bin = (name: string): string => fileURLToPath(new URL(`../../../node_modules/.bin/${name}`, import.meta.url));
const RUNTIMES: Readonly<Record<string, readonly [string, ...string[]]>> = {
  node: [process.execPath],
  deno: [bin('deno'), 'run', '--allow-all', '--no-lock', '--node-modules-dir=manual'],
  bun: [bin('bun')],
};

let cluster: Cluster;
let server: S3Server;
before(async () => {
  [cluster, server] = await Promise.all([Cluster.start(), startMinio()]);
  await createStreams({ servers: cluster.servers, replicas: 1 });
  await probeBucket(server.options);
});
after(() => Promise.all([cluster.stop(), server.stop()]));

for (const [runtime, [program, ...args]] of Object.entries(RUNTIMES)) {
  test(`the drivers run in ${runtime}`, async () => {
    for (const [what, options] of [
      ['nats', { servers: cluster.servers, database: runtime, device: 'd' }],
      ['s3', { ...server.options, database: runtime }],
    ] as const) {
      const { stdout } = await promisify(execFile)(program, [...args, MAIN, what, JSON.stringify(options)]);
      const {
        positions: [first, second],
        read,
        late,
      } = JSON.parse(stdout) as {
        readonly positions: [number, number];
        readonly read: unknown;
        readonly late: unknown;
      };
      assert.deepEqual(
        read,
        [
          [first, [1, 2, 3]],
          [second, [4]],
        ],
        what,
      );
      assert.deepEqual(late, [true, 'KV_LOG_CONFLICT'], what);
    }
  });
}
