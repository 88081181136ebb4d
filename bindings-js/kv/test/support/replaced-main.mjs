// Replaces the globals that test environments replace after the import, uses a database, and prints
// its events. Runs in a separate process.
import * as fs from 'node:fs';
import { open } from 'mangrove-kv';
import { liveQuery } from 'mangrove-kv/live';

const NAMES = [
  'AbortController',
  'Event',
  'EventTarget',
  'MessageChannel',
  'ReadableStream',
  'crypto',
  'performance',
  'queueMicrotask',
  'TextEncoder',
  'TextDecoder',
];
const { AbortController } = globalThis;

const [, , path, thread] = process.argv;
for (const name of NAMES) {
  const value = new Proxy(function replaced() {}, {
    get: () => {
      throw new Error(`${name} of the environment was used`);
    },
    apply: () => {
      throw new Error(`${name} of the environment was called`);
    },
    construct: () => {
      throw new Error(`${name} of the environment was constructed`);
    },
  });
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
}

const events = [];
const db = await open(path, { thread, share: false, feed: true, signal: new AbortController().signal });
const refused = open(path, { lockTimeout: 1, share: false }).catch((error) => error.code);
for (const type of ['blocked', 'close', 'error']) {
  db.addEventListener(type, (event) => events.push(type, event.target === db));
}
await db.setMany(Array.from({ length: 3000 }, (_, index) => [index, `value ${index}`]));
await db.transaction((tx) => tx.update(1, () => 'changed'));
const stop = new AbortController();
const watched = db.watch({ signal: stop.signal }).next();
await db.set(2, new Date(0), { expireIn: 60_000 });
await watched;
stop.abort();
const query = liveQuery(db, { limit: 2 });
let forget;
await new Promise((resolve) => {
  forget = query.subscribe(resolve);
});
forget();
let count = 0;
for await (const _ of db) count++;
const { ok } = await db.verify();
let bytes = 0;
for await (const piece of db.backup()) bytes += piece.length;
if ((await refused) !== 'KV_LOCKED') throw new Error('it was not locked');
await db.close();
fs.writeSync(1, JSON.stringify({ count, ok, hasBackup: bytes > 0, live: query.getSnapshot().entries.length, events }));
