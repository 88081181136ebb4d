// A process that edits a document until it is killed, and prints each edit that is stored.
import process from 'node:process';
import { MangrovePersistence } from '@mangrove-kv/yjs';
import * as Y from 'yjs';

const [path] = process.argv.slice(2);

const provider = new MangrovePersistence('document', new Y.Doc(), { database: path, trimSize: 20 });
provider._storeTimeout = 0;
provider.on('error', (error) => {
  throw error;
});
const { doc } = await provider.whenSynced;
const list = doc.getArray('list');
for (;;) {
  const next = list.length;
  // One transaction, one update.
  doc.transact(() => {
    list.push([next]);
    doc.getText('text').insert(0, 'x'.repeat((next * 7919) % 2000));
    if (next % 3 === 0) doc.getText('text').delete(0, doc.getText('text').length);
  });
  if (next % 2 === 0) continue;
  await provider.flush();
  process.stdout.write(`${next}\n`);
}
