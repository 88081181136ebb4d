// Starts nats-server on loopback, builds the demo and serves it, until Ctrl-C.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createStreams } from '@mangrove-kv/replication-nats/admin';
import { build, preview } from 'vite';
import { ROOT, REPLICATION_SERVERS } from '../../.ci/tools.mjs';

const server = JSON.parse(readFileSync(new URL('../src/replication/server.json', import.meta.url), 'utf8'));
const { values: options } = parseArgs({
  options: {
    port: { type: 'string', default: '4173' },
    websocket: { type: 'string', default: String(server.port) },
    // Kept between starts, like the databases in the browser.
    store: { type: 'string', default: join(ROOT, 'target', 'replication-demo') },
  },
});

const program = REPLICATION_SERVERS.find(({ variable }) => variable === 'NATS_SERVER')?.find();
if (program === undefined) throw new Error('nats-server is missing: node .ci/setup.mjs --nats builds it');

let isStopping = false;
let page;
mkdirSync(options.store, { recursive: true });
const nats = spawn(
  program,
  ['-c', join(ROOT, 'docs', 'examples', 'nats', 'server.conf'), '-l', join(options.store, 'nats.log')],
  {
    stdio: 'inherit',
    // A group of its own, so that Ctrl-C reaches it when the page is closed, and once.
    detached: true,
    env: {
      ...process.env,
      NATS_NAME: 'demo',
      NATS_LISTEN: `${server.host}:-1`,
      NATS_WEBSOCKET_LISTEN: `${server.host}:${options.websocket}`,
      NATS_STORE: options.store,
    },
  },
);
const ended = once(nats, 'exit');
process.on('exit', () => nats.kill());

async function stop(status) {
  if (isStopping) return;
  isStopping = true;
  await page?.close();
  nats.kill('SIGTERM');
  await Promise.race([ended, pause(5000)]);
  if (nats.exitCode === null && nats.signalCode === null) nats.kill('SIGKILL');
  process.exit(status);
}

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => void stop(0));
nats.on('exit', () => {
  if (isStopping) return;
  process.stderr.write(`nats-server ended; ${join(options.store, 'nats.log')} says why\n`);
  void stop(1);
});

/** Resolves once the server has its streams. */
async function prepare(servers) {
  for (let tries = 1; ; tries++) {
    try {
      return await createStreams({ servers, replicas: 1 });
    } catch (error) {
      if (error.code !== 'KV_LOG_UNAVAILABLE' || tries === 100) throw error;
      await pause(100);
    }
  }
}

try {
  const root = join(ROOT, 'demo-web');
  const servers = `ws://${server.host}:${options.websocket}`;
  await prepare(servers);
  await build({ root, logLevel: 'warn' });
  page = await preview({ root, preview: { port: Number(options.port), strictPort: true } });
  process.stdout.write(`nats-server: ${servers}\nthe demo: http://localhost:${options.port}/#/replication\n`);
} catch (error) {
  process.stderr.write(`${error.stack}\n`);
  await stop(1);
}
