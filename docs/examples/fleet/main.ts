// Starts three processes that share one database, and starts those again that die:
// `main.ts <directory> <server> <database>`.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createStreams } from '@mangrove-kv/replication-nats/admin';

const [directory = 'build/fleet', server = 'ws://127.0.0.1:8422', database = 'fleet'] = process.argv.slice(2);
const NAMES = ['a', 'b', 'c'];
const WORKER = fileURLToPath(new URL('worker.ts', import.meta.url));

const running = new Map<string, ChildProcess>();
process.on('exit', () => running.forEach((child) => child.kill()));
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

async function keepRunning(name: string): Promise<void> {
  for (;;) {
    const child = spawn(
      process.execPath,
      [...process.execArgv, WORKER, join(directory, name), name, server, database, String(NAMES.length)],
      { stdio: 'inherit' },
    );
    running.set(name, child);
    console.log(`${name}: process ${child.pid}`);
    const [status, signal] = (await once(child, 'exit')) as [number | null, string | null];
    if (status === 0) return;
    if (signal === null) throw new Error(`${name} failed`);
    console.log(`${name}: ended by ${signal}, starting it again`);
  }
}

await createStreams({ servers: server, replicas: 1 });
await Promise.all(NAMES.map(keepRunning));
