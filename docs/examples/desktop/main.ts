// The main process: `main.ts <path of the database>`. It adds the files that are named in its input, as
// though they were dropped on its window, and shows the list, which follows what the utility process writes.
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { liveQuery } from 'mangrove-kv/live';
import { utilityProcess } from './electron.ts';
import type { UtilityProcess } from './electron.ts';
import { openFiles } from './files.ts';

// In Electron: join(app.getPath('userData'), 'db')
const [path = 'example-desktop'] = process.argv.slice(2);
const { db, files } = await openFiles(path);

let utility: UtilityProcess | undefined;
let isQuitting = false;

/** Keeps one running. The files that it had not counted are still in the database, as waiting. */
function start(): void {
  const child = utilityProcess.fork(fileURLToPath(new URL('utility.ts', import.meta.url)), [path]);
  utility = child;
  console.log(`utility process ${child.pid}`);
  child.on('message', (message) => console.log(`utility process ${child.pid} says: ${message}`));
  child.on('exit', () => {
    if (!isQuitting) start();
  });
}
start();

const list = liveQuery(files);
const stop = list.subscribe(() => {
  const { status, entries } = list.getSnapshot();
  if (status !== 'ready') return;
  const counted = entries.filter(([, file]) => file.status === 'counted');
  console.log(
    `${counted.length} of ${entries.length}: ${counted.map(([name, { words }]) => `${name} ${words}`).join(', ')}`,
  );
});

for await (const name of createInterface({ input: process.stdin })) await files.set(name, { status: 'waiting' });

isQuitting = true;
stop();
utility?.postMessage('quit');
await db.close();
