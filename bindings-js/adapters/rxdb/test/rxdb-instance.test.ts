// Each method of the storage for RxDB, called as RxDB calls it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { randomToken } from 'rxdb';
import type { BulkWriteRow, EventBulk, RxDocumentData, RxStorageChangeEvent, RxStorageDefaultCheckpoint } from 'rxdb';
import { getRxStorageMangrove } from '@mangrove-kv/rxdb';
import { rejects, withPath } from '../../../kv/test/support/kit.ts';
import { MapStorage } from '../../../kv/test/support/map-storage.ts';
import {
  FILLED_WITH_ATTACHMENTS,
  attachment,
  createInstance,
  person,
  prepare,
  row,
  withInstance,
  written,
} from './support/rxdb.ts';
import type { Person, PersonStorage } from './support/rxdb.ts';

type Changes = EventBulk<RxStorageChangeEvent<RxDocumentData<Person>>, RxStorageDefaultCheckpoint>;

const get = async (instance: PersonStorage, id: string): Promise<RxDocumentData<Person> | undefined> =>
  (await instance.findDocumentsById([id], true))[0];

function follow(instance: PersonStorage): Changes[] {
  const seen: Changes[] = [];
  instance.changeStream().subscribe((changes) => seen.push(changes as Changes));
  return seen;
}

test('a write stores documents, and refuses those that were changed since', () =>
  withInstance(async (instance) => {
    const first = row(person('a'));
    assert.deepEqual(await instance.bulkWrite([first, row(person('b'))], 'test'), { error: [] });
    assert.deepEqual(await get(instance, 'a'), first.document);
    const again = row(person('a', { age: 1 }));
    const [conflict] = (await instance.bulkWrite([again, row(person('c'))], 'test')).error;
    assert.deepEqual([conflict?.status, conflict?.documentId, conflict?.writeRow], [409, 'a', again]);
    assert.deepEqual((conflict as { documentInDb?: unknown }).documentInDb, first.document);
    assert.equal((await get(instance, 'c'))?.id, 'c');
    const stored = (await get(instance, 'a'))!;
    assert.deepEqual(await instance.bulkWrite([row(person('a', { age: 2 }), stored)], 'test'), { error: [] });
    assert.equal((await get(instance, 'a'))?.age, 2);
    assert.equal((await instance.bulkWrite([row(person('a', { age: 3 }), stored)], 'test')).error.length, 1);
  }));

test('of many writes of one document at once, one wins', () =>
  withInstance(async (instance) => {
    await instance.bulkWrite([row(person('a', { age: 0 }))], 'test');
    const stored = (await get(instance, 'a'))!;
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, age) =>
        instance.bulkWrite([row(person('a', { age: age + 1 }), stored), row(person(`b${age}`))], 'test'),
      ),
    );
    const won = all.flatMap(({ error }, at) => (error.length === 0 ? [at + 1] : []));
    assert.equal(won.length, 1);
    assert.equal((await get(instance, 'a'))?.age, won[0]);
    assert.equal((await instance.count(prepare({ selector: {} }))).count, 21);
  }));

test('a write that cannot be stored stores nothing', () =>
  withInstance(async (instance) => {
    const seen = follow(instance);
    await rejects(
      instance.bulkWrite([row(person('a')), row(person('b', { name: (() => 1) as never }))], 'test'),
      'KV_INVALID_VALUE',
    );
    await rejects(
      instance.bulkWrite([row(person('a')), row(person('b', { name: 'x'.repeat(5000) }))], 'test'),
      'KV_KEY_TOO_LARGE',
    );
    await rejects(instance.bulkWrite([row(person(5 as never))], 'test'), 'KV_INVALID_ARGUMENT');
    await rejects(
      instance.bulkWrite([{ document: { ...written(person('a')), _rev: '' } }], 'test'),
      'KV_INVALID_ARGUMENT',
    );
    assert.deepEqual(await instance.findDocumentsById(['a', 'b'], true), []);
    assert.deepEqual(seen, []);
  }));

test('deleted documents are found if asked for', () =>
  withInstance(async (instance) => {
    await instance.bulkWrite([row(person('a')), row(person('b'))], 'test');
    await instance.bulkWrite([row(person('a'), await get(instance, 'a'), true)], 'test');
    assert.deepEqual(
      (await instance.findDocumentsById(['b', 'a', 'none'], false)).map(({ id }) => id),
      ['b'],
    );
    assert.deepEqual(
      (await instance.findDocumentsById(['b', 'a', 'none'], true)).map(({ id }) => id),
      ['b', 'a'],
    );
  }));

test('the change stream tells of each commit, once it can be read', () =>
  withInstance(async (instance) => {
    const reads: Promise<unknown>[] = [];
    instance
      .changeStream()
      .subscribe(({ events }) =>
        reads.push(
          ...events.map(({ documentId, documentData }) =>
            get(instance, documentId).then((found) => assert.deepEqual(found, documentData)),
          ),
        ),
      );
    const seen = follow(instance);
    await instance.bulkWrite([row(person('a')), row(person('b'))], 'first');
    assert.equal(seen.length, 1);
    const stored = (await get(instance, 'a'))!;
    const last = row(person('a', { age: 5 }), stored);
    await instance.bulkWrite([last, row(person('b'))], 'second');
    await instance.bulkWrite([row(person('b'))], 'all refused');
    await instance.bulkWrite([row(person('b'), await get(instance, 'b'), true)], 'third');
    assert.deepEqual(
      seen.map(({ context, events }) => [
        context,
        events.map(({ operation, documentId }) => `${operation} ${documentId}`),
      ]),
      [
        ['first', ['INSERT a', 'INSERT b']],
        ['second', ['UPDATE a']],
        ['third', ['DELETE b']],
      ],
    );
    assert.deepEqual(seen[1]!.events[0]!.previousDocumentData, stored);
    assert.deepEqual(seen[1]!.checkpoint, { id: 'a', lwt: last.document._meta.lwt });
    assert.deepEqual((await instance.getChangedDocumentsSince!(10, seen[2]!.checkpoint)).documents, []);
  }));

test('no read shows a write that has not been told of', () =>
  withInstance(async (instance) => {
    const told = new Set<string>();
    instance.changeStream().subscribe(({ events }) => {
      for (const { documentData } of events) told.add(documentData._rev!);
    });
    const ids = Array.from({ length: 10 }, (_, n) => `p${n}`);
    await instance.bulkWrite(
      ids.map((id) => row(person(id))),
      'test',
    );
    const adults = prepare({ selector: { age: { $gte: 50 } } });
    const reads = [
      () => instance.findDocumentsById(ids, true),
      async () => (await instance.query(prepare({ selector: {} }))).documents,
      async () => (await instance.query(adults)).documents,
    ];
    for (let round = 0; round < 20; round++) {
      const stored = await instance.findDocumentsById(ids, true);
      const writing = stored.map((each, n) =>
        instance.bulkWrite([row(person(each.id, { age: 49 + ((round + n) % 2) }), each)], 'test'),
      );
      let isWriting = true;
      const reading = reads.map(async (read) => {
        while (isWriting) for (const { _rev } of await read()) assert.ok(told.has(_rev), `${_rev} in round ${round}`);
      });
      await Promise.all(writing);
      isWriting = false;
      await Promise.all(reading);
    }
  }));

test('changes continue after a checkpoint, also among documents of one time', () =>
  withInstance(async (instance) => {
    const rows = Array.from({ length: 25 }, (_, n) => row(person(`p${String(n).padStart(2, '0')}`)));
    for (const { document } of rows) document._meta.lwt = 1000;
    await instance.bulkWrite(rows, 'test');
    await instance.bulkWrite([row(person('p03', { age: 1 }), await get(instance, 'p03'))], 'test');
    const seen: string[] = [];
    let checkpoint: unknown;
    for (;;) {
      const changed = await instance.getChangedDocumentsSince!(7, checkpoint);
      checkpoint = changed.checkpoint;
      if (changed.documents.length === 0) break;
      seen.push(...changed.documents.map(({ id }) => id));
    }
    const expected = rows.map(({ document: { id } }) => id).filter((id) => id !== 'p03');
    assert.deepEqual(seen, [...expected, 'p03']);
    assert.deepEqual(await instance.getChangedDocumentsSince!(7, checkpoint), { documents: [], checkpoint });
  }));

test('no checkpoint passes over a write that was made before and commits later', () =>
  withInstance(async (instance) => {
    const first = Array.from({ length: 10 }, (_, n) => row(person(`u${n}`)));
    await instance.bulkWrite(first, 'test');
    const followed = new Map<string, string>();
    let checkpoint: RxStorageDefaultCheckpoint | undefined;
    const catchUp = async (): Promise<void> => {
      for (;;) {
        const changed = await instance.getChangedDocumentsSince!(5, checkpoint);
        checkpoint = changed.checkpoint;
        if (changed.documents.length === 0) return;
        for (const { id, _rev } of changed.documents) followed.set(id, _rev);
      }
    };
    const told = new Set<string>();
    const checkpoints: { readonly since: RxStorageDefaultCheckpoint; readonly told: ReadonlySet<string> }[] = [];
    instance.changeStream().subscribe(({ events, checkpoint: since }) => {
      for (const { documentData } of events) told.add(documentData._rev!);
      checkpoints.push({ since, told: new Set(told) });
    });
    /** As RxDB writes a document that may have been deleted: again with the same time, if it has. */
    const insert = async ({ document }: BulkWriteRow<Person>): Promise<void> => {
      const [conflict] = (await instance.bulkWrite([{ document }], 'test')).error;
      const previous = (conflict as { documentInDb?: RxDocumentData<Person> } | undefined)?.documentInDb;
      if (previous !== undefined) await instance.bulkWrite([{ previous, document }], 'test');
    };
    const ids = first.map(({ document: { id } }) => id);
    for (let round = 1; round <= 5; round++) {
      const stored = await instance.findDocumentsById(ids, true);
      const deleted = ids.map((id) => row(person(`${id}-${round}`), undefined, true));
      await instance.bulkWrite(deleted, 'test');
      const anew = deleted.map(({ document: { id } }) => row(person(id)));
      const rows = stored.flatMap((each, n) => [
        row(person(each.id, { age: round }), each),
        row(person(`x${round}-${n}`)),
        // A document that exists, beside one that does not.
        [row(person(each.id)), row(person(`y${round}-${n}`))],
      ]);
      checkpoints.length = 0;
      let isWriting = true;
      const following = (async () => {
        while (isWriting) await catchUp();
      })();
      await Promise.all([...anew.map(insert), ...rows.map((each) => instance.bulkWrite([each].flat(), 'test'))]);
      isWriting = false;
      await following;
      await catchUp();
      const changed = await instance.findDocumentsById(
        [...anew, ...rows.flat()].map(({ document: { id } }) => id),
        true,
      );
      assert.equal(changed.length, 50);
      for (const { id, _rev } of changed) assert.equal(followed.get(id), _rev);
      for (const at of checkpoints) {
        const later = await instance.getChangedDocumentsSince!(1000, at.since);
        const found = new Set(later.documents.map(({ _rev }) => _rev));
        for (const { id, _rev } of changed) assert.ok(at.told.has(_rev) || found.has(_rev), id);
      }
    }
  }));

test('changes of another tab are not held back by a write that fails', () =>
  withInstance(async (instance) => {
    await instance.bulkWrite([row(person('a'))], 'test');
    const { checkpoint } = await instance.getChangedDocumentsSince!(10);
    // As of a tab whose clock is ahead of this one's by a second.
    const other = row(person('b'));
    other.document._meta.lwt += 1000;
    await instance.bulkWrite([other], 'test');
    const reading = instance.getChangedDocumentsSince!(10, checkpoint);
    const failing = instance.bulkWrite([row(person('a'))], 'test');
    assert.deepEqual(
      (await reading).documents.map(({ id }) => id),
      ['b'],
    );
    assert.equal((await failing).error.length, 1);
  }));

test('cleanup removes what was deleted long enough ago, with its attachments', () =>
  withInstance(
    async (instance) => {
      const rows = Array.from({ length: 1500 }, (_, n) => row(person(`p${n}`), undefined, n % 4 !== 0));
      rows[1]!.document._attachments = { note: attachment('kept by mistake') };
      await instance.bulkWrite(rows, 'test');
      assert.equal(await instance.cleanup(3_600_000), true);
      assert.equal((await instance.count(prepare({ selector: {} }))).count, 1500);
      assert.deepEqual([await instance.cleanup(0), await instance.cleanup(0)], [false, true]);
      assert.equal((await instance.count(prepare({ selector: {} }))).count, 375);
      await rejects(instance.getAttachmentData('p1', 'note', 'digest of kept by mistake'), 'KV_NOT_FOUND');
      await instance.bulkWrite([row(person('p1'))], 'test');
      assert.equal((await get(instance, 'p1'))?._deleted, false);
    },
    { schema: FILLED_WITH_ATTACHMENTS },
  ));

test('attachments are stored, replaced and removed with their document', () =>
  withInstance(
    async (instance) => {
      const text = async (id: string, name: string, digest: string): Promise<string> =>
        (await instance.getAttachmentData(id, name, digest)).text();
      const first = row(person('a'));
      first.document._attachments = { note: attachment('one'), other: attachment('two') };
      const seen = follow(instance);
      await instance.bulkWrite([first], 'test');
      const stored = (await get(instance, 'a'))!;
      assert.deepEqual(stored._attachments['note'], { length: 3, type: 'text/plain', digest: 'digest of one' });
      assert.deepEqual(seen[0]?.events[0]?.documentData._attachments, stored._attachments);
      assert.equal(await text('a', 'note', 'digest of one'), 'one');
      // Bun adds a charset to types of text.
      assert.equal((await instance.getAttachmentData('a', 'note', 'digest of one')).type.split(';')[0], 'text/plain');
      await rejects(instance.getAttachmentData('a', 'note', 'digest of none'), 'KV_NOT_FOUND');

      const second = row(person('a'), stored);
      second.document._attachments = { note: attachment('new') };
      await instance.bulkWrite([second], 'test');
      assert.equal(await text('a', 'note', 'digest of new'), 'new');
      await rejects(instance.getAttachmentData('a', 'other', 'digest of two'), 'KV_NOT_FOUND');

      const withoutData = row(person('b'));
      withoutData.document._attachments = {
        first: attachment('of a document that is refused'),
        note: { length: 1, type: 'text/plain', digest: 'x' },
      };
      const [error] = (await instance.bulkWrite([withoutData, row(person('c'))], 'test')).error;
      assert.equal(error?.status, 510);
      assert.deepEqual(
        seen.at(-1)?.events.map(({ documentId }) => documentId),
        ['c'],
      );
      await rejects(
        instance.getAttachmentData('b', 'first', 'digest of of a document that is refused'),
        'KV_NOT_FOUND',
      );

      await instance.bulkWrite([row(person('a'), await get(instance, 'a'), true)], 'test');
      await rejects(instance.getAttachmentData('a', 'note', 'digest of new'), 'KV_NOT_FOUND');
    },
    { schema: FILLED_WITH_ATTACHMENTS },
  ));

/** Counts the bytes that the engine reads. */
class CountingStorage extends MapStorage {
  bytes = 0;

  override open(name: string): ReturnType<MapStorage['open']> {
    const file = super.open(name);
    return {
      read: (at, into) => {
        this.bytes += into.length;
        return file.read(at, into);
      },
      write: (at, from) => file.write(at, from),
      flush: () => file.flush(),
      size: () => file.size(),
      truncate: (size) => file.truncate(size),
      close: () => file.close(),
    };
  }
}

test('queries read what they return, and no attachments', async () => {
  const storage = new CountingStorage();
  // Room for everything, so that nothing is read twice.
  const rx = getRxStorageMangrove({ storage, cacheBytes: 64 << 20 });
  const options = { databaseName: 'counted', schema: FILLED_WITH_ATTACHMENTS };
  const filling = await createInstance(rx, options);
  const noise = (n: number, words = 60): string =>
    Array.from({ length: words }, (_, at) => Math.imul(n * 61 + at, 0x9e3779b1).toString(36)).join('');
  let attached = 0;
  for (let from = 0; from < 3000; from += 500) {
    const rows = Array.from({ length: 500 }, (_, at) => from + at).map((n) =>
      row(person(`p${String(n).padStart(4, '0')}`, { age: n % 100, name: `n${n % 9}`, tags: [noise(n)] })),
    );
    for (const { document } of rows.slice(0, 10)) {
      const large = attachment(noise(from, 20_000));
      document._attachments = { large };
      attached += large.length;
    }
    await filling.bulkWrite(rows, 'test');
  }
  await filling.close();
  /** What a call reads when nothing is cached. */
  const cost = async (run: (instance: PersonStorage) => Promise<unknown>): Promise<number> => {
    const instance = await createInstance(rx, options);
    const before = storage.bytes;
    await run(instance);
    const bytes = storage.bytes - before;
    await instance.close();
    return bytes;
  };
  const live = { _deleted: false } as object;
  const limited = [
    prepare({ selector: live, sort: [{ age: 'asc' }], limit: 5 }),
    prepare({ selector: live, sort: [{ age: 'desc' }], limit: 5 }),
    prepare({ selector: { ...live, tags: { $size: 1 } } as never, sort: [{ name: 'asc' }], limit: 5 }),
    prepare({ selector: { ...live, age: 50 } as never, sort: [{ age: 'asc' }], skip: 5, limit: 5 }),
  ];
  const some = [
    await cost(async (instance) =>
      assert.equal((await instance.count(prepare({ selector: { ...live, age: { $gte: 50 } } as never }))).count, 1500),
    ),
  ];
  for (const query of limited)
    some.push(await cost(async (instance) => assert.equal((await instance.query(query)).documents.length, 5)));
  const all = await cost(async (instance) =>
    assert.equal((await instance.query(prepare({ selector: {} }))).documents.length, 3000),
  );
  assert.ok(all < attached, `${all} beside ${attached} of attachments`);
  for (const bytes of some) assert.ok(bytes < all / 2, `${some.join()} of ${all}`);
});

test('documents survive close and reopen, with their indexes', () =>
  withPath(async (path) => {
    const rx = getRxStorageMangrove({ path: () => path });
    const first = await createInstance(rx);
    assert.equal(first.internals.database.persistence, 'fs');
    await first.bulkWrite([row(person('a', { age: 1 })), row(person('b', { age: 2 }))], 'test');
    await first.close();
    const second = await createInstance(rx);
    const { documents } = await second.query(prepare({ selector: { _deleted: false, age: { $gt: 1 } } as never }));
    assert.deepEqual(
      documents.map(({ id }) => id),
      ['b'],
    );
    assert.equal((await second.internals.database.verify()).ok, true);
    await second.close();
  }));

test('collections, versions and databases are apart', async () => {
  const rx = getRxStorageMangrove({ storage: 'memory' });
  const databaseName = randomToken(10);
  const all = await Promise.all([
    createInstance(rx, { databaseName }),
    createInstance(rx, { databaseName, collectionName: 'other' }),
    createInstance(rx, { databaseName, schema: { ...FILLED_WITH_ATTACHMENTS, version: 1 } }),
    createInstance(rx, { databaseName: randomToken(10) }),
  ]);
  for (const [n, instance] of all.entries()) await instance.bulkWrite([row(person('a', { age: n }))], 'test');
  for (const [n, instance] of all.entries()) assert.equal((await get(instance, 'a'))?.age, n);
  await all[0]!.remove();
  assert.equal((await get(all[1]!, 'a'))?.age, 1);
  const again = await createInstance(rx, { databaseName });
  assert.deepEqual(await again.findDocumentsById(['a'], true), []);
  await again.bulkWrite([row(person('a', { age: 9 }))], 'test');
  assert.equal((await again.query(prepare({ selector: { age: 9 } }))).documents.length, 1);
  await Promise.all([again, ...all.slice(1)].map((instance) => instance.close()));
});

test('closing completes what was called, and refuses what comes later', async () => {
  const instance = await createInstance(getRxStorageMangrove({ storage: 'memory' }), { databaseName: randomToken(10) });
  let isComplete = false;
  instance.changeStream().subscribe({
    complete: () => {
      isComplete = true;
    },
  });
  const writing = instance.bulkWrite([row(person('a'))], 'test');
  const closing = instance.close();
  assert.equal(instance.close(), closing);
  await closing;
  assert.deepEqual(await writing, { error: [] });
  assert.equal(isComplete, true);
  await assert.rejects(instance.bulkWrite([row(person('b'))], 'test'), { code: 'KV_CLOSED', name: 'Error' });
  await assert.rejects(instance.query(prepare({ selector: {} })), { code: 'KV_CLOSED', name: 'Error' });
  await assert.rejects(instance.remove(), { code: 'KV_CLOSED', name: 'Error' });
  assert.throws(() => instance.changeStream(), { code: 'KV_CLOSED' });
  assert.equal(instance.internals.database.status, 'closed');
});

test('options are checked', async () => {
  for (const options of [{ storag: 'memory' }, { path: 'people' }, { readOnly: true }, { indexes: {} }, 5, null]) {
    assert.throws(() => getRxStorageMangrove(options as never), { code: 'KV_INVALID_ARGUMENT' });
  }
  await rejects(
    createInstance(getRxStorageMangrove({ storage: 'memory' }), { options: { durabilty: 'none' } }),
    'KV_INVALID_ARGUMENT',
  );
  await rejects(createInstance(getRxStorageMangrove({ storage: 'nowhere' as never })), 'KV_INVALID_ARGUMENT');
  await withInstance(
    async (instance) => {
      assert.deepEqual(await instance.bulkWrite([row(person('a'))], 'test'), { error: [] });
    },
    { options: { durability: 'relaxed' } },
  );
});
