// Uses a database in a service worker, which has neither workers nor dynamic imports.
import { open } from 'mangrove-kv';

interface Client {
  postMessage(message: unknown): void;
}

interface MessageEvents {
  addEventListener(
    type: 'message',
    listener: (event: { readonly source: Client; waitUntil(done: Promise<unknown>): void }) => void,
  ): void;
}

async function count(source: Client): Promise<void> {
  const db = await open<string, number>('service worker', { storage: 'indexeddb' });
  await db.update('starts', (old = 0) => old + 1);
  const message = [await db.get('starts'), (await db.verify()).ok, db.persistence];
  await db.close();
  source.postMessage(message);
}

(globalThis as unknown as MessageEvents).addEventListener('message', (event) => {
  event.waitUntil(count(event.source).catch((error: unknown) => event.source.postMessage(String(error))));
});
