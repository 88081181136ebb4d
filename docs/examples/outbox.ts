// Offline first. A change and the job that sends it are one commit, so neither exists without the
// other. The transaction that has sent a job removes it from the outbox.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { keyCodecs, open } from 'mangrove-kv';

interface Note {
  readonly text: string;
  readonly isSent: boolean;
}
interface Job {
  readonly id: string;
  readonly note: string;
  readonly text: string;
}

const db = await open(process.argv[2] ?? 'example-outbox');
const notes = db.collection<string, Note>('notes', { key: keyCodecs.string });
const outbox = db.collection<number, Job>('outbox', { key: keyCodecs.int53 });

async function save(note: string, text: string): Promise<void> {
  await db.transaction(async (tx) => {
    const [newest] = (await tx.collection(outbox).last()) ?? [0];
    await tx.collection(notes).set(note, { text, isSent: false });
    await tx.collection(outbox).set(newest + 1, { id: crypto.randomUUID(), note, text });
  });
}

/** Sends the oldest job; returns whether there was one. */
function sendOne(server: string): Promise<boolean> {
  return db.transaction(async (tx) => {
    const oldest = await tx.collection(outbox).first();
    if (oldest === undefined) return false;
    const [number, { id, note, text }] = oldest;
    // After a conflict this runs again. The server recognises the job by its id and runs it once.
    const response = await fetch(`${server}/notes/${note}`, {
      method: 'PUT',
      body: text,
      headers: { 'idempotency-key': id },
    });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    await tx.collection(outbox).delete(number);
    if ((await tx.collection(notes).get(note))?.text === text)
      await tx.collection(notes).set(note, { text, isSent: true });
    return true;
  });
}

async function send(server: string): Promise<string> {
  try {
    let count = 0;
    while (await sendOne(server)) count += 1;
    return `sent ${count}`;
  } catch (error) {
    return `${await outbox.size} waiting: ${(error as Error).message}`;
  }
}

await save('ada', 'Analytical Engine');
await save('grace', 'Compiler');
console.log(await send('http://127.0.0.1:1'));

const received = new Map<string, string>();
const server = createServer((request, response) => {
  const id = String(request.headers['idempotency-key']);
  // A write made while a job is in flight is not lost: the waiting transaction runs again.
  const meanwhile = received.size === 0 ? save('ada', 'Notes on the Analytical Engine') : Promise.resolve();
  received.set(id, request.url ?? '');
  void meanwhile.then(() => response.end());
});
await new Promise<void>((resolve) => {
  server.listen(0, '127.0.0.1', resolve);
});
console.log(await send(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
server.closeAllConnections();
server.close();

console.log(`the server has done ${received.size} jobs`);
for await (const [note, { text, isSent }] of notes) console.log(`${note}: ${text}${isSent ? '' : ' (not sent)'}`);
await db.close();
