// The utility process: does the slow work, so that the window never waits for it. It may be killed at any time.
import { readFile } from 'node:fs/promises';
import { parentPort } from './electron.ts';
import { openFiles } from './files.ts';

const [path = 'example-desktop'] = process.argv.slice(2);
const { db, files } = await openFiles(path);
const waiting = files.index('byStatus', { whenIncomplete: 'wait' });

async function countOne(): Promise<boolean> {
  const next = await waiting.first({ eq: 'waiting' });
  if (next === undefined) return false;
  // One that cannot be read has no words.
  const text = await readFile(next.key, 'utf8').catch(() => '');
  const words = text.split(/\s+/).filter((word) => word !== '').length;
  await files.set(next.key, { status: 'counted', words, pid: process.pid });
  return true;
}

parentPort.on('message', async ({ data }) => {
  if (data !== 'quit') return;
  await db.close();
  process.exit();
});
parentPort.postMessage('ready');

const commits = files.watch();
// What was left by one that was killed.
while (await countOne());
for await (const _ of commits) while (await countOne());
