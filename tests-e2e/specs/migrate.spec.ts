// Migration of data that idb-keyval, localForage, Dexie and localStorage actually stored in a
// browser.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

test('migrates everything that idb-keyval, localForage and Dexie store, with progress', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(async () => {
    const { Dexie, idbKeyval, localforage, migrateIndexedDB } = await window.loadMigration();
    const keys = [1, 'text', new Date(5), [1, ['a']], new Uint8Array([1, 2]).buffer];
    const values = [
      new Map([['a', new Set([1n])]]),
      new Date(7),
      /x+/gi,
      new Error('text'),
      { deep: [undefined, null, -0, Number.NaN], bytes: new Float32Array([1.5]) },
    ];
    await idbKeyval.setMany(keys.map((key, index) => [key, values[index]]));
    await localforage.setItem('user', { name: 'Ada', photo: new Uint8Array([1, 2, 3]) });
    const dexie = new Dexie('friends');
    dexie.version(3).stores({ friends: '++id, name', pets: '[owner+name]', empty: '' });
    await dexie
      .table('friends')
      .bulkAdd(Array.from({ length: 1000 }, (_, index) => ({ name: `friend ${index}`, born: new Date(index) })));
    await dexie.table('pets').add({ owner: 1, name: 'Rex' });
    // The source database stays open, as in a page.
    const db = await window.mangrove.open('migrated');
    const fromKeyval = await migrateIndexedDB(db, { name: 'keyval-store', into: () => db });
    const kept = await Promise.all(keys.map((key) => db.get(key as never)));
    const [map, date, pattern, error, deep] = kept as [
      Map<string, Set<bigint>>,
      Date,
      RegExp,
      Error,
      { deep: unknown[]; bytes: Float32Array },
    ];
    const same = [
      map.get('a')?.has(1n),
      date.getTime() === 7,
      String(pattern) === '/x+/gi',
      error.message === 'text',
      deep.deep.length === 4 && Object.is(deep.deep[2], -0) && Number.isNaN(deep.deep[3]) && deep.bytes[0] === 1.5,
    ];
    const fromForage = await migrateIndexedDB(db, { name: 'localforage', stores: ['keyvaluepairs'] });
    const user = (await db.collection('keyvaluepairs').get('user')) as { photo: Uint8Array };
    const steps: number[] = [];
    const fromDexie = await migrateIndexedDB(db, {
      name: 'friends',
      batchSize: 300,
      onProgress: ({ done, total }) => void steps.push(done, total),
    });
    const friends = db.collection<number, { id: number; name: string }>('friends');
    const last = await friends.get(1000);
    const pet = await db.collection('pets').get([1, 'Rex']);
    const again = await migrateIndexedDB(db, { name: 'friends' });
    const count = await friends.count();
    await db.close();
    return {
      fromKeyval,
      same,
      fromForage,
      photo: [...user.photo],
      fromDexie,
      steps,
      last: last?.name,
      pet,
      again,
      count,
    };
  });
  expect(found).toEqual({
    fromKeyval: 5,
    same: [true, true, true, true, true],
    fromForage: 1,
    photo: [1, 2, 3],
    fromDexie: 1001,
    steps: [0, 1001, 300, 1001, 600, 1001, 900, 1001, 1000, 1001, 1001, 1001],
    last: 'friend 999',
    pet: { owner: 1, name: 'Rex' },
    again: 0,
    count: 1000,
  });
});

test("Dexie's indexes stay what they are, in order and contents, also after a reload and with later writes", async ({
  profile,
}) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const migrated = await page.evaluate(async () => {
    const { Dexie, compareIndexes, fillPeople, migrateIndexedDB, PEOPLE, dexieIndexes } = await window.loadMigration();
    let state = 1;
    const next = (): number => (state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff) / 0x8000_0000;
    const table = await fillPeople(new Dexie('people'), 400, next);
    const db = await window.mangrove.open('people');
    const copied = await migrateIndexedDB(db, { name: 'people', batchSize: 100 });
    const found = await compareIndexes(table, db.collection('people', { indexes: dexieIndexes(PEOPLE) }));
    await db.close();
    return { copied, ...found };
  });
  expect(migrated).toEqual({ copied: 400, wrong: [], compared: migrated.compared });
  expect(migrated.compared).toBeGreaterThan(1500);
  await page.reload();
  const later = await page.evaluate(async () => {
    const { Dexie, PEOPLE, compareIndexes, dexieIndexes, indexesOf, peopleOf } = await window.loadMigration();
    const dexie = new Dexie('people');
    dexie.version(1).stores({ people: PEOPLE });
    const table = dexie.table<unknown, number>('people');
    const db = await window.mangrove.open('people');
    await dexie.open();
    const objects = dexie.backendDB().transaction('people').objectStore('people');
    // As the browser describes the indexes; the same declaration as that of the schema.
    const described = indexesOf([...objects.indexNames].map((name) => objects.index(name)));
    const people = db.collection('people', { indexes: described });
    let state = 2;
    const next = (): number => (state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff) / 0x8000_0000;
    const changed = peopleOf(100, next).map((person, at) => ({
      ...person,
      email: `later ${at}`,
      phones: [-at - 1],
      id: at * 5 + 1,
    }));
    await table.bulkPut(changed);
    await people.setMany(changed.map((person) => [person.id, person] as const));
    await table.bulkDelete([2, 3]);
    await people.deleteMany([2, 3]);
    const { wrong } = await compareIndexes(table as never, db.collection('people', { indexes: dexieIndexes(PEOPLE) }));
    const refused = await Promise.all([
      table.add({ email: 'later 3' }).catch((error: Error) => error.name),
      people.set(9999, { email: 'later 3' }).catch((error: { code: string }) => error.code),
    ]);
    const report = await db.verify();
    await db.close();
    return { wrong, refused, ok: report.ok };
  });
  expect(later).toEqual({ wrong: [], refused: ['ConstraintError', 'KV_UNIQUE'], ok: true });
});

test('a migration resumes where it stopped after an abort and after a reload', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const aborted = await page.evaluate(async () => {
    const { idbKeyval, migrateIndexedDB } = await window.loadMigration();
    await idbKeyval.setMany(Array.from({ length: 1000 }, (_, index) => [index, `value ${index}`]));
    const db = await window.mangrove.open('resumed');
    const controller = new AbortController();
    const outcome = await migrateIndexedDB(db, {
      name: 'keyval-store',
      batchSize: 50,
      signal: controller.signal,
      onProgress: ({ done }) => void (done === 300 && controller.abort(new Error('enough'))),
    }).catch((error: Error) => error.message);
    const keyval = db.collection<number, string>('keyval');
    const count = await keyval.count();
    await keyval.set(7, 'changed');
    // Resumes, and the page is left halfway through.
    await new Promise<void>((resolve) => {
      migrateIndexedDB(db, {
        name: 'keyval-store',
        batchSize: 50,
        onProgress: ({ done }) => void (done >= 500 && resolve()),
      }).catch(() => undefined);
    });
    return { outcome, count };
  });
  expect(aborted).toEqual({ outcome: 'enough', count: 300 });
  await page.reload();
  const resumed = await page.evaluate(async () => {
    const { migrateIndexedDB } = await window.loadMigration();
    const db = await window.mangrove.open('resumed');
    const keyval = db.collection<number, string>('keyval');
    const before = await keyval.count();
    const copied = await migrateIndexedDB(db, { name: 'keyval-store', batchSize: 50 });
    const entries = await keyval.entries().toArray();
    const wrong = entries.filter(
      ([key, value], index) => key !== index || value !== (key === 7 ? 'changed' : `value ${key}`),
    );
    await db.close();
    return { before, copied, count: entries.length, wrong };
  });
  expect(resumed.before).toBeGreaterThanOrEqual(500);
  expect(resumed.before % 50).toBe(0);
  expect(resumed).toEqual({ before: resumed.before, copied: 1000 - resumed.before, count: 1000, wrong: [] });
});

test('a value that a database cannot store ends a migration with its key, unless it is converted', async ({
  profile,
}) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(async () => {
    const { idbKeyval, migrateIndexedDB } = await window.loadMigration();
    const key = await crypto.subtle.generateKey({ name: 'AES-GCM', length: 128 }, false, ['encrypt']);
    const values: Record<string, unknown> = {
      blob: new Blob(['text']),
      file: new File(['text'], 'a.txt'),
      key,
      image: new ImageData(1, 1),
      nested: { list: [new Blob(['x'])] },
    };
    const db = await window.mangrove.open('unfit');
    const refused: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(values)) {
      const store = idbKeyval.createStore(`unfit ${name}`, 'entries');
      await idbKeyval.setMany(
        [
          ['a', 1],
          [name, value],
          ['z', 2],
        ],
        store,
      );
      const into = db.collection<string, unknown>(name);
      const error = (await migrateIndexedDB<string, unknown>(db, { name: `unfit ${name}`, into: () => into }).catch(
        (error: unknown) => error,
      )) as { code: string; message: string };
      refused[name] = [error.code, error.message.includes(`entries: "${name}"`), await into.count()];
    }
    const into = db.collection<string, unknown>('blob');
    const converted = await migrateIndexedDB<string, unknown>(db, {
      name: 'unfit blob',
      into: () => into,
      transform: async ({ key, value }) => [
        key as string,
        value instanceof Blob ? new Uint8Array(await value.arrayBuffer()) : value,
      ],
    });
    const text = new TextDecoder().decode((await into.get('blob')) as Uint8Array);
    await db.close();
    return { refused, converted, text };
  });
  const refused = ['KV_INVALID_VALUE', true, 0];
  expect(found).toEqual({
    refused: { blob: refused, file: refused, key: refused, image: refused, nested: refused },
    converted: 3,
    text: 'text',
  });
});

test('migrates localStorage', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  await page.goto(HARNESS_URL);
  const found = await page.evaluate(async () => {
    const { migrateLocalStorage } = await window.loadMigration();
    for (let index = 0; index < 500; index++) localStorage.setItem(`app:${index}`, JSON.stringify({ index }));
    localStorage.setItem('other', '\u{1f333}');
    const db = await window.mangrove.open('from localStorage');
    const settings = db.collection<string, { index: number }>('settings');
    const steps: number[] = [];
    const copied = await migrateLocalStorage<string, { index: number }>(db, {
      into: settings,
      prefix: 'app:',
      onProgress: ({ done, total }) => void steps.push(done, total),
      transform: ({ key, value }) => [String(key).slice(4), JSON.parse(String(value)) as { index: number }],
    });
    const again = await migrateLocalStorage(db, { into: settings as never, prefix: 'app:' });
    const all = await migrateLocalStorage(db);
    const result = [
      copied,
      again,
      steps,
      (await settings.get('499'))?.index,
      all,
      await db.collection('localStorage').get('other'),
      localStorage.length,
    ];
    await db.close();
    return result;
  });
  expect(found).toEqual([500, 0, [500, 500], 499, 501, '\u{1f333}', 501]);
});
