// A process is killed while it edits and compacts a document: all edits acknowledged to it are
// there, each whole.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { open } from 'mangrove-kv';
import { MangrovePersistence } from '@mangrove-kv/yjs';
import * as Y from 'yjs';
import { runChild } from '../../../kv/test/support/child.ts';
import { chance, withPath } from '../../../kv/test/support/kit.ts';

const ROUNDS = 5;
const MAIN = fileURLToPath(new URL('./support/yjs-main.mjs', import.meta.url));

test('kill -9 while a document is edited loses nothing that was stored', () =>
  withPath(async (path) => {
    const random = chance(7);
    let acknowledged = -1;
    let isCompacted = false;
    for (let round = 0; round < ROUNDS; round++) {
      const child = runChild([path], { main: MAIN });
      const target = acknowledged + 30 + Math.floor(random() * 80);
      while (acknowledged < target) {
        const line = await child.line();
        assert.notEqual(line, undefined, 'the writer continues until it is killed');
        acknowledged = Number(line);
      }
      child.kill();
      for (let line = await child.line(); line !== undefined; line = await child.line()) acknowledged = Number(line);
      await child.ended;
      isCompacted = (await check(path, acknowledged)) || isCompacted;
    }
    assert.ok(isCompacted, 'some of the kills come after a compaction');
  }));

/** Returns whether the document was compacted: otherwise there is an entry for each edit. */
async function check(path: string, acknowledged: number): Promise<boolean> {
  const db = await open(path, { lockTimeout: 0 });
  assert.deepEqual((await db.verify()).problems, []);
  const provider = new MangrovePersistence('document', new Y.Doc(), { database: db });
  const { doc } = await provider.whenSynced;
  const list = doc.getArray('list').toArray();
  assert.ok(list.length > acknowledged, `${list.length} edits, ${acknowledged + 1} acknowledged`);
  assert.deepEqual(
    list,
    list.map((_, index) => index),
  );
  let expected = 0;
  for (const index of list.keys()) expected = index % 3 === 0 ? 0 : expected + ((index * 7919) % 2000);
  assert.equal(doc.getText('text').length, expected);
  assert.deepEqual(doc.store.pendingStructs, null);
  const isCompacted = provider._dbsize < list.length;
  await provider.destroy();
  await db.close();
  return isCompacted;
}
