// Schema versions: an upgrade runs once and as a whole, whatever interrupts it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open, openSync, restore } from 'mangrove-kv';
import type { Database, Key, Migrations, OpenOptions, UpgradeProgress } from 'mangrove-kv';
import { blob } from 'mangrove-kv/blob';
import {
  DELETE,
  KEEP,
  buildIndexes,
  dropCollection,
  dropIndex,
  migrations,
  moveEntries,
  renameCollection,
  run,
  updateEntries,
} from 'mangrove-kv/migrations';
import { Disk } from './faults/disk.ts';
import type { Cut, Image } from './faults/disk.ts';
import { rejects, withPath } from './support/kit.ts';
import { Random } from './tabs/random.ts';

/** Opens a database, calls `use` and closes it. */
async function using<T>(path: string, options: OpenOptions, use: (db: Database) => T | Promise<T>): Promise<T> {
  const db = await open(path, options);
  try {
    return await use(db);
  } finally {
    await db.close();
  }
}

const entriesOf = (db: Database, name: string): Promise<[Key, unknown][]> => db.collection(name).entries().toArray();

test('an upgrade runs once, in one commit with the version', async () => {
  await withPath(async (path) => {
    const calls: number[] = [];
    const upgrade: OpenOptions['upgrade'] = async (tx, from, { to, collection }) => {
      calls.push(from, to);
      for await (const [key, value] of tx.entries()) await tx.set(key, `${String(value)}!`);
      await tx.collection(collection<string, number>('counts')).set('upgrades', calls.length / 2);
    };
    await using(path, {}, (db) => db.set('a', 'old'));
    for (let round = 0; round < 2; round++) {
      await using(path, { version: 3, upgrade }, async (db) => {
        assert.deepEqual(calls, [0, 3]);
        assert.equal(await db.get('a'), 'old!');
        assert.deepEqual(await db.collections(), ['counts']);
      });
    }
    const feed = await using(path, { version: 4, upgrade }, async (db) => {
      const commits = await db.snapshot().version;
      assert.equal(await db.get('a'), 'old!!');
      return commits;
    });
    assert.deepEqual(calls, [0, 3, 3, 4]);
    assert.ok(feed > 0);
  });
});

test('without an upgrade only the number changes, and older programs are refused', async () => {
  await withPath(async (path) => {
    await using(path, { version: 1 }, (db) => db.set('a', 1));
    await using(path, { version: 70_000 }, () => undefined);
    for (const options of [{ version: 1 }, { version: 69_999, readOnly: true }]) {
      await assert.rejects(open(path, options), {
        code: 'KV_VERSION_TOO_NEW',
        message: /schema version 70000, this program is written for (?:1|69999)/,
      });
    }
    await rejects(open(path, { version: 70_001, readOnly: true }), 'KV_READ_ONLY');
    // Nothing holds the directory, and a program that states no version may use it.
    await using(path, {}, async (db) => assert.equal(await db.get('a'), 1));
    await using(path, { version: 70_000 }, async (db) => assert.equal(await db.get('a'), 1));
  });
});

test('an upgrade that throws changes nothing, and the database can be opened again', async () => {
  await withPath(async (path) => {
    await using(path, { version: 1 }, (db) => db.set('a', 1));
    const failure = new TypeError('no');
    for (const upgrade of [
      async (tx: { clear(): Promise<void> }) => {
        await tx.clear();
        throw failure;
      },
      migrations({
        2: [
          run(() => {
            throw failure;
          }),
        ],
      }),
    ] as OpenOptions['upgrade'][]) {
      await assert.rejects(open(path, { version: 2, upgrade }), (error) => error === failure);
    }
    await using(path, { version: 1 }, async (db) => assert.equal(await db.get('a'), 1));
  });
});

test('an aborted upgrade stops between slices and leaves its progress', async () => {
  await withPath(async (path) => {
    await using(path, { version: 1 }, (db) =>
      db.collection<number, number>('n').setMany(Array.from({ length: 3500 }, (_, key) => [key, 0])),
    );
    const stop = new AbortController();
    const upgrade = migrations({
      2: [
        updateEntries<number, number>('n', (value, key) => {
          if (key === 2100) stop.abort(new Error('stopped'));
          return value + 1;
        }),
      ],
    });
    await assert.rejects(open(path, { version: 2, upgrade, signal: stop.signal }), { message: 'stopped' });
    // Half of it is new: neither the old program nor another upgrade may touch it.
    await assert.rejects(open(path, { version: 1 }), { code: 'KV_VERSION_TOO_NEW', message: /interrupted/ });
    await assert.rejects(open(path, { version: 2, upgrade: () => undefined }), {
      code: 'KV_INVALID_ARGUMENT',
      message: /at 2\.0/,
    });
    await assert.rejects(open(path, { version: 3, upgrade: migrations({ 3: [] }) }), {
      code: 'KV_INVALID_ARGUMENT',
      message: /step 0 of version 2/,
    });
    await using(path, { version: 2, upgrade }, async (db) => {
      const values = await db.collection<number, number>('n').values().toArray();
      assert.equal(values.length, 3500);
      assert.ok(values.every((value) => value === 1));
    });
  });
});

interface Note {
  readonly title: string;
  readonly times: number;
}

/** The steps from version 1 to 3, which count how often each entry was changed. */
const STEPS: Migrations = migrations({
  2: [
    renameCollection('notes', 'texts'),
    renameCollection('absent', 'elsewhere'),
    updateEntries<number, Note>('texts', ({ title, times }, key) =>
      key % 7 === 0 ? DELETE : key % 5 === 0 ? KEEP : { title: `${title}?`, times: times + 1 },
    ),
    run(async (tx) => {
      const counter = tx.collection<string, number, number>('counter');
      await counter.set('runs', ((await counter.get('runs')) ?? 0) + 1);
    }),
  ],
  3: [
    moveEntries<number, Note, string, Note>('texts', 'byTitle', ({ title, times }, key) =>
      key % 3 === 0 ? DELETE : [`${title} ${key}`, { title, times: times + 1 }],
    ),
    buildIndexes<string, Note>('byTitle', { indexes: { byTimes: { key: ({ times }) => times } } }),
    dropCollection('old'),
  ],
});

const COUNT = 1200;

async function fill(db: Database): Promise<void> {
  await db
    .collection<number, Note>('notes')
    .setMany(Array.from({ length: COUNT }, (_, key) => [key, { title: `n${key % 10}`, times: 0 }]));
  await db.collection<string, number>('old').set('x', 1);
}

async function checkUpgraded(db: Database): Promise<void> {
  assert.deepEqual(await db.collections(), ['byTitle', 'counter']);
  assert.deepEqual(await entriesOf(db, 'counter'), [['runs', 1]]);
  const expected = new Map<Key, Note>();
  for (let key = 0; key < COUNT; key++) {
    if (key % 7 === 0 || key % 3 === 0) continue;
    const isKept = key % 5 === 0;
    const title = `n${key % 10}${isKept ? '' : '?'}`;
    expected.set(`${title} ${key}`, { title, times: isKept ? 1 : 2 });
  }
  assert.deepEqual(new Map(await entriesOf(db, 'byTitle')), expected);
  const indexed = db.collection<string, Note>('byTitle', { indexes: { byTimes: { key: ({ times }) => times } } });
  assert.equal(
    await indexed.index('byTimes').count({ eq: 1 }),
    [...expected.values()].filter(({ times }) => times === 1).length,
  );
  assert.deepEqual((await db.verify()).problems, []);
}

test('steps run in order, in slices, and report how far they are', async () => {
  await withPath(async (path) => {
    await using(path, { version: 1 }, fill);
    const seen: UpgradeProgress[] = [];
    await using(path, { version: 3, upgrade: STEPS, onUpgrade: (progress) => seen.push(progress) }, checkUpgraded);
    assert.ok(seen.length > 10);
    assert.ok(seen.every(({ from, to, isHere }) => from === 1 && to === 3 && isHere));
    const done = seen.map((each) => each.done);
    assert.deepEqual(
      done,
      [...done].sort((a, b) => a - b),
    );
    assert.ok(seen.some(({ step, total }) => step === 'updateEntries of "texts"' && total === 7000));
    await using(path, { version: 3, upgrade: STEPS, onUpgrade: () => assert.fail('it is done') }, checkUpgraded);
  });
});

test('entries keep their expiry when they are updated and moved', async () => {
  await withPath(async (path) => {
    const expireAt = Date.now() + 3_600_000;
    await using(path, { version: 1 }, async (db) => {
      await db.collection('a').set(1, 'x', { expireAt });
      await db.collection('a').set(2, 'y');
    });
    const upgrade = migrations({
      2: [
        updateEntries<number, string>('a', (value) => `${value}1`, { expireIn: 5 }),
        moveEntries<number, string>('a', 'b', (value, key) => [key, `${value}2`], { to: { expireIn: 5 } }),
      ],
    });
    await using(path, { version: 2, upgrade }, async (db) => {
      const [first, second] = await db.collection('b').entries({ meta: true }).toArray();
      assert.deepEqual(
        [first?.value, first?.expiresAt, second?.value, second?.expiresAt],
        ['x12', expireAt, 'y12', undefined],
      );
    });
  });
});

test('an update frees unique keys in the order of entries, and stores long Blobs', async () => {
  await withPath(async (path) => {
    const unique = { indexes: { byName: { key: (name: string) => name, unique: true } } };
    const size = 300 << 10;
    await using(path, { version: 1 }, async (db) => {
      await db.collection<number, string>('names', unique).setMany([
        [1, 'a'],
        [2, 'b'],
        [3, 'c'],
        [4, 'd'],
      ]);
      const files = db.collection<number, Blob>('files', { value: blob() });
      await files.set(1, new Blob(['x']));
      await files.set(2, new Blob([new Uint8Array(size)]));
    });
    const upgrade = migrations({
      2: [
        // Each takes the name that the one before it has left.
        updateEntries<number, string>(
          'names',
          (_, key) => (key === 1 ? DELETE : key === 2 ? 'a' : key === 3 ? 'b' : KEEP),
          unique,
        ),
        updateEntries<number, Blob>('files', async (file) => new Blob([await file.arrayBuffer(), 'y']), {
          value: blob(),
        }),
      ],
    });
    await using(path, { version: 2, upgrade }, async (db) => {
      assert.deepEqual(await entriesOf(db, 'names'), [
        [2, 'a'],
        [3, 'b'],
        [4, 'd'],
      ]);
      const files = db.collection<number, Blob>('files', { value: blob() });
      assert.deepEqual([await (await files.get(1))?.text(), (await files.get(2))?.size], ['xy', size + 1]);
      assert.deepEqual((await db.verify()).problems, []);
    });
  });
});

test('an index is dropped by a step', async () => {
  await withPath(async (path) => {
    const indexes = { byValue: { key: (value: string) => value } };
    await using(path, { version: 1 }, (db) => db.collection<number, string>('a', { indexes }).set(1, 'x'));
    await using(
      path,
      { version: 2, upgrade: migrations({ 2: [dropIndex('a', 'byValue'), dropIndex('none', 'byValue')] }) },
      async (db) => {
        await db.collection<number, string>('a').set(2, 'y');
      },
    );
  });
});

/** Cuts an upgrade at each operation of the disk, and calls `check` with what that leaves. */
async function cutEverywhere(
  start: Image,
  upgrade: OpenOptions,
  check: (image: Image, at: string) => Promise<void>,
): Promise<number> {
  const random = new Random(7);
  const copy = (): Image => new Map([...start].map(([name, bytes]) => [name, bytes.slice()]));
  let images = 0;
  const cuts: Cut[] = ['all', 'none', 'first', 'any'];
  const disk = new Disk(random, copy());
  const taken: [string, Image][] = [];
  disk.onOperation = () => {
    const how = cuts[images++ % cuts.length]!;
    taken.push([`operation ${images}, ${how}`, disk.cut(how)]);
  };
  await using('cut', { ...upgrade, storage: disk }, () => undefined);
  disk.onOperation = undefined;
  for (const [at, image] of taken) await check(image, at);
  return images;
}

test('an upgrade that is cut at any write is finished by the next opening, each entry changed once', async () => {
  const random = new Random(1);
  const first = new Disk(random);
  // A small cache, so that merges and checkpoints fall into the upgrade.
  const small = { cacheBytes: 256 * 1024 };
  await using('cut', { version: 1, storage: first, ...small }, fill);
  const start = first.cut('none');
  let resumed = 0;
  const images = await cutEverywhere(start, { version: 3, upgrade: STEPS, ...small }, async (image, at) => {
    const copy = new Map([...image].map(([name, bytes]) => [name, bytes.slice()]));
    const old = await open('cut', { version: 1, storage: new Disk(random, copy), ...small }).catch(
      (error: { code: string }) => error.code,
    );
    if (typeof old === 'string') {
      assert.equal(old, 'KV_VERSION_TOO_NEW', at);
      resumed++;
    } else {
      // The old program sees nothing of an upgrade that did not begin.
      assert.equal(await old.collection('notes').size, COUNT, at);
      await old.close();
    }
    await using('cut', { version: 3, upgrade: STEPS, storage: new Disk(random, image), ...small }, checkUpgraded);
  });
  assert.ok(images > 30, `${images} images`);
  assert.ok(resumed > 5, `${resumed} upgrades were resumed`);
});

test('backups contain the version', async () => {
  await withPath(async (path) => {
    const backup = await using(path, { version: 5 }, async (db) => {
      await db.set('a', 1);
      return new Response(db.backup()).blob();
    });
    await restore(`${path}-copy`, backup);
    await rejects(open(`${path}-copy`, { version: 4 }), 'KV_VERSION_TOO_NEW');
    await using(`${path}-copy`, { version: 5, upgrade: () => assert.fail('it is up to date') }, async (db) =>
      assert.equal(await db.get('a'), 1),
    );
  });
});

test('the synchronous API opens a version, but does not upgrade data', async () => {
  await withPath(async (path) => {
    const made = openSync(path, { version: 2 });
    made.set('a', 1);
    made.close();
    assert.throws(() => openSync(path, { version: 3, upgrade: () => undefined }), { code: 'KV_SYNC_UNAVAILABLE' });
    assert.throws(() => openSync(path, { version: 1 }), { code: 'KV_VERSION_TOO_NEW' });
    const again = openSync(path, { version: 2 });
    assert.equal(again.get('a'), 1);
    again.close();
    openSync(path, { version: 3 }).close();
    await rejects(open(path, { version: 2 }), 'KV_VERSION_TOO_NEW');
  });
});

test('invalid options of versions and steps are refused', async () => {
  await withPath(async (path) => {
    for (const options of [
      { version: 0 },
      { version: 1.5 },
      { version: '1' },
      { version: 2 ** 32 },
      { upgrade: () => undefined },
      { version: 1, upgrade: 5 },
      { version: 1, upgrade: {} },
      { version: 1, onUpgrade: 5 },
    ]) {
      await rejects(open(path, options as unknown as OpenOptions), 'KV_INVALID_ARGUMENT');
    }
    const refused = { code: 'KV_INVALID_ARGUMENT' };
    assert.throws(() => migrations({ 0: [] }), refused);
    assert.throws(() => migrations({ 1: [5 as never] }), refused);
    assert.throws(() => migrations({ 1: {} as never }), refused);
    assert.throws(() => renameCollection('a', ''), refused);
    assert.throws(() => updateEntries('a', 5 as never), refused);
    assert.throws(() => moveEntries('a', 'a', (value, key) => [key, value]), refused);
    assert.throws(() => run(undefined as never), refused);
  });
});
