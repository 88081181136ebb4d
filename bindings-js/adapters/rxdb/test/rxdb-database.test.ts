// Whole databases of RxDB on the storage, with the plugins that ask the most of one.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { addRxPlugin, createBlob, createRxDatabase, randomToken, removeRxDatabase } from 'rxdb';
import type { RxCollection, RxDatabase, RxStorage } from 'rxdb';
import { RxDBAttachmentsPlugin } from 'rxdb/plugins/attachments';
import { RxDBCleanupPlugin } from 'rxdb/plugins/cleanup';
import { wrappedKeyEncryptionCryptoJsStorage } from 'rxdb/plugins/encryption-crypto-js';
import { wrappedKeyCompressionStorage } from 'rxdb/plugins/key-compression';
import { RxDBLeaderElectionPlugin } from 'rxdb/plugins/leader-election';
import { RxDBLocalDocumentsPlugin } from 'rxdb/plugins/local-documents';
import { RxDBMigrationSchemaPlugin } from 'rxdb/plugins/migration-schema';
import { replicateRxCollection } from 'rxdb/plugins/replication';
import { wrappedValidateAjvStorage } from 'rxdb/plugins/validate-ajv';
import { defaultConflictHandler, rxStorageInstanceToReplicationHandler } from 'rxdb';
import { filter, firstValueFrom } from 'rxjs';
import { getRxStorageMangrove } from '@mangrove-kv/rxdb';
import type { MangroveInternals } from '@mangrove-kv/rxdb';
import { runChild } from '../../../kv/test/support/child.ts';
import { withPath } from '../../../kv/test/support/kit.ts';
import { PERSON, person } from './support/rxdb.ts';
import type { Person } from './support/rxdb.ts';

for (const plugin of [
  RxDBAttachmentsPlugin,
  RxDBCleanupPlugin,
  RxDBLeaderElectionPlugin,
  RxDBLocalDocumentsPlugin,
  RxDBMigrationSchemaPlugin,
])
  addRxPlugin(plugin);

type People = RxCollection<Person>;

interface Options {
  readonly name?: string;
  readonly storage?: RxStorage<unknown, object>;
  readonly multiInstance?: boolean;
  readonly password?: string;
}

const MEMORY = getRxStorageMangrove({ storage: 'memory' });

function create({
  name = `db-${randomToken(8)}`,
  storage = MEMORY,
  multiInstance = false,
  password,
}: Options = {}): Promise<RxDatabase> {
  return createRxDatabase({
    name,
    storage,
    multiInstance,
    closeDuplicates: false,
    ...(password === undefined ? {} : { password }),
  }) as Promise<RxDatabase>;
}

/** Two of one name, which hear of each other. RxDB opens them in one thread only if their storages are called differently. */
function createTwo(): Promise<[RxDatabase, RxDatabase]> {
  const name = `db-${randomToken(8)}`;
  const again = { ...MEMORY, name: 'again' } as typeof MEMORY;
  return Promise.all([create({ name, multiInstance: true }), create({ name, storage: again, multiInstance: true })]);
}

async function addPeople(db: RxDatabase, schema: object = PERSON): Promise<People> {
  const { people } = await db.addCollections({ people: { schema: schema as typeof PERSON } });
  return people as unknown as People;
}

const ids = (documents: readonly { readonly id: string }[]): string[] => documents.map(({ id }) => id);

test('a reactive query follows inserts, updates and deletes', async () => {
  const db = await create();
  const people = await addPeople(db);
  await people.bulkInsert([person('a', { age: 30 }), person('b', { age: 20 }), person('c', { age: 10 })]);
  const results: string[][] = [];
  const query = people.find({ selector: { age: { $gte: 20 } }, sort: [{ age: 'desc' }], limit: 2 });
  query.$.subscribe((documents) => results.push(ids(documents)));
  const shows = (expected: string[]): Promise<unknown> =>
    firstValueFrom(query.$.pipe(filter((documents) => ids(documents).join() === expected.join())));
  await shows(['a', 'b']);
  await people.insert(person('d', { age: 40 }));
  await shows(['d', 'a']);
  await (await people.findOne('a').exec(true)).incrementalPatch({ age: 5 });
  await shows(['d', 'b']);
  await (await people.findOne('d').exec(true)).remove();
  await shows(['b']);
  assert.equal(await people.count({ selector: { age: { $lt: 20 } } }).exec(), 2);
  assert.equal((await people.findByIds(['a', 'd']).exec()).size, 1);
  await people.insert(person('d', { age: 1 }));
  assert.equal((await people.findOne('d').exec())?.age, 1);
  await db.close();
});

test('documents refer to each other, and have attachments', async () => {
  const db = await create();
  const schema = {
    ...PERSON,
    attachments: {},
    properties: { ...PERSON.properties, friend: { type: 'string', maxLength: 40, ref: 'people' } },
  };
  const people = await addPeople(db, schema);
  await people.bulkInsert([person('a', { friend: 'b' } as object), person('b')]);
  const document = await people.findOne('a').exec(true);
  assert.equal(((await document.populate('friend')) as { id: string }).id, 'b');
  await document.putAttachment({ id: 'note', data: createBlob('some text', 'text/plain'), type: 'text/plain' });
  const again = await people.findOne('a').exec(true);
  assert.equal(await again.getAttachment('note')?.getStringData(), 'some text');
  await again.getLatest().getAttachment('note')?.remove();
  assert.equal((await people.findOne('a').exec(true)).getAttachment('note'), null);
  await db.close();
});

test('everything survives close and reopen; local documents too', () =>
  withPath(async (path) => {
    const storage = getRxStorageMangrove({ path: () => path });
    const db = await create({ name: 'kept', storage });
    const people = await addPeople(db);
    await people.insert(person('a'));
    await db.addCollections({ other: { schema: { ...PERSON, version: 0 }, localDocuments: true } });
    await db['collections']['other']!.insertLocal('settings', { theme: 'dark' });
    await db.close();

    const again = await create({ name: 'kept', storage });
    assert.deepEqual(ids(await (await addPeople(again)).find().exec()), ['a']);
    await again.addCollections({ other: { schema: PERSON, localDocuments: true } });
    assert.equal((await again['collections']['other']!.getLocal('settings'))?.get('theme'), 'dark');
    const { database } = again.internalStore.internals as MangroveInternals;
    assert.deepEqual((await database.verify()).problems, []);
    await again.close();

    await removeRxDatabase('kept', storage, false);
    const empty = await create({ name: 'kept', storage });
    assert.deepEqual(await (empty.internalStore.internals as MangroveInternals).database.collections(), [
      'rxdb:0:_rxdb_internal',
    ]);
    assert.deepEqual(await (await addPeople(empty)).find().exec(), []);
    await empty.close();
  }));

test('the cleanup plugin removes deleted documents', async () => {
  const db = await create();
  const people = await addPeople(db);
  await people.bulkInsert([person('a'), person('b')]);
  await (await people.findOne('a').exec(true)).remove();
  await people.cleanup(0);
  assert.deepEqual(ids(await people.storageInstance.findDocumentsById(['a', 'b'], true)), ['b']);
  await db.close();
});

test('a new version of a schema migrates the documents', () =>
  withPath(async (path) => {
    const storage = getRxStorageMangrove({ path: () => path });
    const db = await create({ name: 'old', storage });
    await (await addPeople(db)).bulkInsert(Array.from({ length: 120 }, (_, n) => person(`p${n}`, { age: n % 100 })));
    await db.close();

    const again = await create({ name: 'old', storage });
    const { people } = await again.addCollections({
      people: {
        schema: { ...PERSON, version: 1 },
        migrationStrategies: { 1: (old: Person) => ({ ...old, age: old.age + 1 }) },
      },
    });
    assert.equal(await people.count({ selector: { age: { $gte: 1, $lte: 100 } } }).exec(), 120);
    const { database } = again.internalStore.internals as MangroveInternals;
    assert.equal((await database.collections()).includes('rxdb:0:people'), false);
    await again.close();
  }));

test('two databases of one name hear of each other, and have one leader', async () => {
  const [one, other] = await createTwo();
  const [people, elsewhere] = [await addPeople(one), await addPeople(other)];
  const shown = firstValueFrom(
    elsewhere.find({ selector: { age: 5 } }).$.pipe(filter((documents) => documents.length === 1)),
  );
  await people.insert(person('a', { age: 5 }));
  assert.deepEqual(ids(await shown), ['a']);
  const document = await people.findOne('a').exec(true);
  const changed = firstValueFrom(document.$.pipe(filter(({ age }) => age === 6)));
  await (await elsewhere.findOne('a').exec(true)).incrementalPatch({ age: 6 });
  await changed;
  await Promise.all(
    Array.from({ length: 10 }, async (_, n) =>
      (await (n % 2 === 0 ? people : elsewhere).findOne('a').exec(true)).incrementalModify((data) => ({
        ...data,
        score: data.score + 1,
      })),
    ),
  );
  assert.equal(
    (await one['collections']['people']!.storageInstance.findDocumentsById(['a'], false))[0]?.['score'],
    11.5,
  );
  await Promise.race([one.waitForLeadership(), other.waitForLeadership()]);
  assert.notEqual(one.isLeader(), other.isLeader());
  await one.close();
  await other.waitForLeadership();
  assert.equal(other.isLeader(), true);
  await other.close();
});

test('an event that comes late takes no query back', async () => {
  const dbs = await createTwo();
  const [late, prompt] = [await addPeople(dbs[0]), await addPeople(dbs[1])];
  const both = [late, prompt];
  const told: [number | undefined, number][][] = both.map(() => []);
  const insertIsTold = Promise.all(both.map((people) => firstValueFrom(people.storageInstance.changeStream())));
  for (const [at, people] of both.entries()) {
    people.storageInstance.changeStream().subscribe(({ events }) => {
      for (const { documentId, documentData, previousDocumentData } of events)
        if (documentId === 'a') told[at]!.push([previousDocumentData?.age, documentData.age!]);
    });
  }
  await late.insert(person('a', { age: 36 }));
  const old = both.map((people) => people.find({ selector: { age: { $gte: 60 } } }));
  for (const query of old) query.$.subscribe();
  const shows = (age: number): Promise<unknown> =>
    Promise.all(
      both.map((people) => firstValueFrom(people.findOne('a').$.pipe(filter((document) => document?.age === age)))),
    );
  await insertIsTold;

  // The answer to a commit is under way while the other database builds on that commit.
  const { database } = late.storageInstance.internals as MangroveInternals;
  const { transaction } = database;
  let arrives!: () => void;
  const arrival = new Promise<void>((resolve) => (arrives = resolve));
  let committed!: () => void;
  const commit = new Promise<void>((resolve) => (committed = resolve));
  database.transaction = async (...args: never[]) => {
    database.transaction = transaction;
    const result = await (transaction as (...args: never[]) => Promise<never>).apply(database, args);
    committed();
    await arrival;
    return result;
  };
  const first = late
    .findOne('a')
    .exec(true)
    .then((document) => document.incrementalPatch({ age: 60 }));
  await commit;
  await (await prompt.findOne('a').exec(true)).incrementalModify((data) => ({ ...data, age: data.age + 1 }));
  await shows(61);
  arrives();
  await first;
  // The event of another document comes after all the others.
  await late.insert(person('b', { age: 70 }));
  await firstValueFrom(old[1]!.$.pipe(filter((documents) => documents.length === 2)));
  for (const [at, people] of both.entries()) {
    assert.deepEqual(told[at], [
      [undefined, 36],
      [36, 61],
    ]);
    assert.equal((await people.findOne('a').exec(true)).age, 61);
    assert.deepEqual(
      (await old[at]!.exec()).map(({ id, age }) => [id, age]),
      [
        ['a', 61],
        ['b', 70],
      ],
    );
  }
  for (const db of dbs) await db.close();
});

test('two collections replicate to each other', async () => {
  const [server, client] = [await create(), await create()];
  const [there, here] = [await addPeople(server), await addPeople(client)];
  await there.bulkInsert(Array.from({ length: 60 }, (_, n) => person(`s${n}`)));
  await here.bulkInsert(Array.from({ length: 30 }, (_, n) => person(`c${n}`)));
  const handler = rxStorageInstanceToReplicationHandler(there.storageInstance, defaultConflictHandler, randomToken(10));
  const replicate = async (): Promise<void> => {
    const state = replicateRxCollection<Person, unknown>({
      collection: here,
      replicationIdentifier: 'test',
      live: false,
      pull: {
        batchSize: 7,
        handler: (checkpoint, batchSize) => handler.masterChangesSince(checkpoint as never, batchSize) as never,
      },
      push: { batchSize: 7, handler: (rows) => handler.masterWrite(rows as never) as never },
    });
    const errors: unknown[] = [];
    state.error$.subscribe((error) => errors.push(error));
    await state.awaitInitialReplication();
    assert.deepEqual(errors, []);
    await state.cancel();
  };
  await replicate();
  await (await here.findOne('s7').exec(true)).incrementalPatch({ age: 99 });
  await (await there.findOne('c3').exec(true)).remove();
  await replicate();
  const state = async (people: People): Promise<string[]> =>
    (await people.find({ sort: [{ id: 'asc' }] }).exec()).map(({ id, age }) => `${id} ${age}`);
  assert.deepEqual(await state(here), await state(there));
  assert.equal((await state(here)).length, 89);
  assert.equal((await there.findOne('s7').exec(true)).age, 99);
  await Promise.all([server.close(), client.close()]);
});

test('storages that wrap it work: validation, encryption, key compression', async () => {
  const storage = wrappedKeyEncryptionCryptoJsStorage({
    storage: wrappedKeyCompressionStorage({ storage: wrappedValidateAjvStorage({ storage: MEMORY }) }),
  });
  const db = await create({ storage, password: 'a long password' });
  const people = await addPeople(db, { ...PERSON, keyCompression: true, encrypted: ['tags'] });
  await people.bulkInsert([person('a', { age: 30, tags: ['secret'] }), person('b', { age: 20, tags: [] })]);
  const found = await people.find({ selector: { age: { $gt: 20 } } }).exec();
  assert.deepEqual(
    found.map((each) => each.toJSON().tags),
    [['secret']],
  );
  await assert.rejects(people.insert(person('c', { age: 'old' as never })));
  const [stored] = await people.internalStorageInstance.findDocumentsById(['a'], false);
  assert.deepEqual(stored?.tags, ['secret']);
  await db.close();
});

test('kill -9 while RxDB inserts loses nothing that it was told is stored', () =>
  withPath(async (path) => {
    const main = fileURLToPath(new URL('./support/rxdb-main.mjs', import.meta.url));
    const schema = {
      version: 0,
      primaryKey: 'id',
      type: 'object',
      properties: {
        id: { type: 'string', maxLength: 20 },
        n: { type: 'integer', minimum: 0, maximum: 1e6, multipleOf: 1 },
      },
      required: ['id', 'n'],
      indexes: ['n'],
    } as const;
    let acknowledged = -1;
    for (let round = 1; round <= 3; round++) {
      const child = runChild([path, String(acknowledged + 1000)], { main });
      const first = acknowledged + 1000;
      while (acknowledged < first + 10 * round) {
        const line = await child.line();
        assert.notEqual(line, undefined, 'the writer continues until it is killed');
        acknowledged = Number(line);
      }
      child.kill();
      for (let line = await child.line(); line !== undefined; line = await child.line()) acknowledged = Number(line);
      await child.ended;
      const db = await create({ name: 'killed', storage: getRxStorageMangrove({ path: () => path }) });
      const { notes } = await db.addCollections({ notes: { schema } });
      for (let n = first; n <= acknowledged; n++)
        assert.equal((await notes.findByIds([`a${n}`, `b${n}`]).exec()).size, 2);
      const all = await notes.find().exec();
      for (const { n } of all) assert.equal(await notes.count({ selector: { n } }).exec(), 2);
      assert.deepEqual((await (db.internalStore.internals as MangroveInternals).database.verify()).problems, []);
      await db.close();
    }
  }));
