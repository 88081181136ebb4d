// A server on all cores: four workers behind one port, which share a database. The primary starts
// them, and another one for each that dies: `main.ts <path> <port>`.
import cluster from 'node:cluster';
import type { Worker } from 'node:cluster';
import { fileURLToPath } from 'node:url';

const [path = 'example-cluster', port = '8080'] = process.argv.slice(2);
const WORKERS = 4;

const ready = new Set<Worker>();
cluster.setupPrimary({ exec: fileURLToPath(new URL('worker.ts', import.meta.url)), args: [path, port] });
cluster.on('listening', (worker, address) => {
  ready.add(worker);
  console.log(`worker ${worker.process.pid} listens on ${address.port}`);
});
cluster.on('exit', (worker, status, signal) => {
  if (worker.exitedAfterDisconnect) return;
  if (!ready.delete(worker)) throw new Error(`worker ${worker.process.pid} did not start`);
  console.log(`worker ${worker.process.pid} died (${signal ?? status})`);
  cluster.fork();
});
// The workers answer what they have received, and close the database.
for (const signal of ['SIGINT', 'SIGTERM'])
  process.once(signal, () => {
    cluster.disconnect();
  });

for (let nth = 0; nth < WORKERS; nth++) cluster.fork();
