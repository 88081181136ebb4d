// An application's worker that runs the engine in its own thread.
import { open } from 'mangrove-kv';

async function run(): Promise<unknown> {
  const db = await open<string, number>('in the same thread', { thread: 'same' });
  db.sync.set('a', 1).set('b', 2);
  await db.set('c', 3);
  const found = [
    db.persistence,
    db.sync.get('a'),
    [...db.sync.keys()].join(),
    db.sync.update('a', (value = 0) => value + 1),
  ];
  db.sync.close();
  const again = await open<string, number>('in the same thread', { create: false });
  const kept = await again.get('a');
  await again.close();
  return [...found, kept];
}

run().then(
  (outcome) => postMessage(outcome),
  (error: unknown) => postMessage(String(error)),
);
