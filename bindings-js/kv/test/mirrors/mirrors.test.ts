// Mirrors over the public API: what they return, what they hold, and what they refuse.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DELETE, KEEP, KvError, keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Database, Key } from 'mangrove-kv';
import { liveQuery, liveWindow, mirror, preload } from 'mangrove-kv/live';
import type { Mirror, RollbackEvent, ShrinkEvent } from 'mangrove-kv/live';
import type { Held } from '../../src/mirror/sorted-entries.ts';
import { CollectionStore } from '../../src/mirror/store.ts';
import type { Connection } from '../../src/wire/connection.ts';
import { ReplyReader, RequestWriter } from '../../src/wire/protocol.ts';
import { withMemory } from '../support/kit.ts';
import { Random } from '../tabs/random.ts';

const code = (expected: string) => (error: unknown) => (error as KvError).code === expected;

/** Resolves when `look` returns something truthy, which a step of a mirror brings about. */
async function until<T>(look: () => T): Promise<T> {
  for (let turns = 0; turns < 5000; turns++) {
    const found = look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  throw new Error('it never happened');
}

const anyKey: fc.Arbitrary<Key> = fc.letrec<{ key: Key }>((tie) => ({
  key: fc.oneof(
    { maxDepth: 2 },
    fc.constantFrom(
      null,
      false,
      true,
      0,
      -1,
      1.5,
      1e300,
      5n,
      -(2n ** 70n),
      '',
      'a',
      'a\0',
      'a\0b',
      'ab',
      'ä',
      '\uffff',
      '\ud800',
    ),
    fc.constantFrom(
      new Date(0),
      new Date(8.64e15),
      new Uint8Array(0),
      Uint8Array.of(0),
      Uint8Array.of(0, 1),
      Uint8Array.of(255),
    ),
    fc.array(tie('key'), { maxLength: 3 }),
  ),
})).key;

test('reads are those of the collection, for all keys and ranges', () =>
  fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(anyKey, { maxLength: 20, comparator: (a, b) => fc.stringify(a) === fc.stringify(b) }),
      anyKey,
      anyKey,
      fc.record({ offset: fc.nat(4), limit: fc.oneof(fc.nat(6), fc.constant(Infinity)), reverse: fc.boolean() }),
      fc.integer({ min: -8, max: 8 }),
      async (keys, from, to, window, at) => {
        await withMemory<Key, string>({}, async (db) => {
          await db.setMany(keys.map((key, n) => [key, `value ${n}`]));
          for (const bounds of [{}, { gte: from }, { gt: from, lte: to }, { lt: to }, { prefix: [] }]) {
            const held = await mirror(db, bounds).ready;
            for (const options of [undefined, window, { ...window, gte: to }, { ...window, gt: from, lt: to }]) {
              // The reads of a mirror are within its bounds.
              const all = (await db.entries(bounds).toArray()).map(([key]) => fc.stringify(key));
              const asked = { ...options, offset: 0, limit: Infinity };
              let expected = (await db.entries(asked).toArray()).filter(([key]) => all.includes(fc.stringify(key)));
              const { offset = 0, limit = Infinity } = options ?? {};
              expected = expected.slice(offset, offset + limit);
              assert.deepEqual(held.range(options), expected);
              assert.deepEqual(
                held.keys(options),
                expected.map(([key]) => key),
              );
              assert.deepEqual(
                held.values(options),
                expected.map(([, value]) => value),
              );
              assert.equal(held.count(options), expected.length);
              assert.deepEqual(held.at(at, options), expected.at(at));
              assert.deepEqual(held.first(options), expected[0]);
              assert.deepEqual(held.last(options), expected.at(-1));
            }
            for (const [key, value] of held.range()) assert.deepEqual([held.get(key), held.has(key)], [value, true]);
            assert.equal(held.rank(from), await db.rank(from, bounds));
            assert.equal(held.size, await db.count(bounds));
            held.close();
          }
        });
      },
    ),
    { numRuns: 60 },
  ));

test('every codec of keys', () =>
  withMemory({}, async (db) => {
    const sets = [
      [keyCodecs.string, ['', 'b', 'ä', '\uffff']],
      [keyCodecs.utf8, ['a', '\u{10000}', '\uffff']],
      [keyCodecs.bytes, [Uint8Array.of(), Uint8Array.of(0), Uint8Array.of(255, 1)]],
      [keyCodecs.uint32, [0, 7, 2 ** 32 - 1]],
      [keyCodecs.int53, [-(2 ** 53) + 1, -1, 0, 2 ** 40]],
      [keyCodecs.uint64, [0n, 2n ** 64n - 1n]],
      [keyCodecs.tuple(), [[], ['a', 1], ['a', 'b']]],
    ] as const;
    for (const [key, keys] of sets) {
      const collection = db.collection<never, number>(`of ${key.id}`, { key: key as never });
      await collection.setMany(keys.map((each, n) => [each as never, n]));
      const held = await mirror(collection).ready;
      assert.deepEqual(held.keys(), await collection.keys().toArray(), key.id);
      keys.forEach((each, n) => assert.equal(held.get(each as never), n, key.id));
    }
  }));

test('a mirror is loaded in one message and follows each commit in one step', () =>
  withMemory<number, { n: number }>({}, async (db) => {
    await db.setMany(Array.from({ length: 5000 }, (_, n) => [n, { n }]));
    const [low, high] = [mirror(db, { lt: 100 }), mirror(db, { gte: 4000 })];
    assert.equal(low.status, 'loading');
    assert.throws(() => low.get(1), code('KV_LOADING'));
    await Promise.all([low.ready, high.ready]);
    let steps = 0;
    const stop = low.subscribe(() => {
      steps++;
      assert.equal(low.get(1)?.n, high.get(4001)?.n, 'torn');
      assert.equal(low.version, high.version);
    });
    for (let n = 10; n < 20; n++) {
      const { version } = await db.batch().set(1, { n }).set(4001, { n }).commit();
      await until(() => low.version >= version);
      assert.equal(low.get(1)?.n, n);
    }
    assert.ok(steps >= 10);
    stop();
  }));

test('more commits than one reply holds: mirrors stay at one commit, and writes stay shown', () =>
  withMemory<string, { n: number; text?: string }>({}, async (db) => {
    await db.batch().set('a', { n: 0 }).set('z', { n: 0 }).commit();
    const first = await mirror(db, { lt: 'b' }).ready;
    let torn = 0;
    let isWritten = false;
    const text = 'x'.repeat(1 << 20);
    const writeMany = (from: number): void => {
      for (let n = from; n < from + 12; n++) void db.batch().set('a', { n, text }).set('z', { n }).commit();
    };
    writeMany(1);
    const last = await mirror(db, { gte: 'b' }).ready;
    const look = (): void => {
      if (first.get('a')!.n !== last.get('z')!.n) torn++;
      if (isWritten && !last.has('own')) torn++;
    };
    look();
    const stops = [first.subscribe(look), last.subscribe(look)];
    writeMany(13);
    isWritten = true;
    await last.set('own', { n: 1 });
    await until(() => first.get('a')!.n === 24 && last.get('z')!.n === 24);
    stops.forEach((stop) => stop());
    assert.equal(torn, 0);
  }));

test('mirrors that overlap hold entries once, and one that is covered is ready at once', () =>
  withMemory<number, object>({}, async (db) => {
    await db.setMany(Array.from({ length: 100 }, (_, n) => [n, { n }]));
    const whole = await mirror(db).ready;
    const part = mirror(db, { gte: 10, lt: 20 });
    assert.equal(part.status, 'ready');
    assert.equal(part.first(), whole.at(10));
    assert.equal(part.get(11), whole.get(11));
    whole.close();
    assert.throws(() => whole.get(1), code('KV_CLOSED'));
    assert.equal(part.size, 10);
    const wider = await mirror(db, { gte: 15, lt: 40 }).ready;
    assert.equal(wider.get(16), part.get(16));
    part.close();
    await db.set(16, { n: 'new' });
    await until(() => (wider.get(16) as { n: unknown }).n === 'new');
    assert.equal(wider.size, 25);
  }));

test('more than maxBytes: refused at first, and afterwards an event and a shorter range', () =>
  withMemory<number, string>({}, async (db) => {
    await db.setMany(Array.from({ length: 100 }, (_, n) => [n, 'x'.repeat(100)]));
    const refused = mirror(db, {}, { maxBytes: 10_000 });
    await assert.rejects(refused.ready, code('KV_RANGE_TOO_LARGE'));
    assert.equal(refused.status, 'failed');
    assert.throws(() => refused.get(1), code('KV_RANGE_TOO_LARGE'));
    const held = await mirror(db, {}, { maxBytes: 22_000 }).ready;
    assert.equal(held.size, 100);
    assert.ok(held.bytes <= 22_000);
    const shrunk: unknown[] = [];
    held.addEventListener('shrink', ({ end }: ShrinkEvent) => shrunk.push(end));
    await db.setMany(Array.from({ length: 50 }, (_, n) => [n + 0.5, 'y'.repeat(100)]));
    await until(() => shrunk.length > 0);
    const end = shrunk[0] as number;
    assert.ok(held.bytes <= 22_000);
    assert.ok(held.size <= 115 && held.size > 90);
    assert.ok((held.last()?.[0] ?? Infinity) < end);
    assert.deepEqual(held.keys(), await db.keys({ lt: end }).toArray());
    assert.throws(() => held.get(end), code('KV_OUT_OF_RANGE'));
    assert.throws(() => held.range({ gte: end }), code('KV_OUT_OF_RANGE'));
    assert.equal(held.covers({ lt: end }), true);
    assert.equal(held.covers({}), false);
    // It goes on without what it lost.
    await db.set(0, 'new');
    await db.set(end, 'not here');
    await until(() => held.get(0) === 'new');
  }));

test('a mirror is refused for its own entries only', () =>
  withMemory<number, string>({}, async (db) => {
    await db.setMany(Array.from({ length: 10 }, (_, n) => [n, 'x'.repeat(n < 5 ? 900 : 40)]));
    // The others wait for this one, so they are read together.
    const before = mirror(db, { gte: 100 });
    const refused = mirror(db, { lt: 10 }, { maxBytes: 1000 });
    const larger = mirror(db, { gte: 5 }, { maxBytes: 5000 });
    await before.ready;
    await assert.rejects(refused.ready, code('KV_RANGE_TOO_LARGE'));
    await larger.ready;
    assert.equal(larger.size, 5);
  }));

test('what lies between mirrors is let go, and they are read again without it', () =>
  withMemory<number, string>({}, async (db) => {
    await db.setMany(Array.from({ length: 300 }, (_, n) => [n, 'x'.repeat(100)]));
    const renamed = db.collection<string, number>('renamed');
    await renamed.set('x', 1);
    const [other, whole] = [mirror(renamed), mirror(db)];
    await Promise.all([other.ready, whole.ready]);
    const low = mirror(db, { lt: 10 }, { maxBytes: 3000 });
    const high = mirror(db, { gte: 290 }, { maxBytes: 3000 });
    const wide = mirror(db, { gte: 140, lt: 160 }, { maxBytes: 4000 });
    const [middle, late] = [
      { gte: 145, lt: 150 },
      { gte: 155, lt: 158 },
    ].map((range) => mirror(db, range, { maxBytes: 1000 })) as [Mirror<number, string>, Mirror<number, string>];
    whole.close();
    assert.equal(liveQuery(db, { gte: 100, lt: 110 }).getSnapshot().status, 'loading');
    assert.equal(liveQuery(db, { gte: 290, lt: 300 }).getSnapshot().status, 'ready');
    const shrunk: unknown[] = [];
    wide.addEventListener('shrink', ({ end }) => shrunk.push(end));
    // Everything is read again, as after a change of leader, and the last of these is written before that.
    const stop = low.subscribe(() => {
      stop();
      void db.batch().set(141, 'y'.repeat(3000)).set(156, 'new').commit();
    });
    await Promise.all([db.set(1, 'new'), db.renameCollection('renamed', 'new name')]);
    await until(() => other.size === 0 && !other.isStale);
    await until(() => shrunk.length > 0);
    for (const [held, bounds] of [
      [low, { lt: 10 }],
      [high, { gte: 290 }],
      [middle, { gte: 145, lt: 150 }],
      [late, { gte: 155, lt: 158 }],
      [wide, { gte: 140, lt: shrunk.at(-1) as number }],
    ] as const)
      assert.deepEqual(held.range(), await db.entries(bounds).toArray());
    assert.ok(wide.bytes <= 4000);
    assert.deepEqual([middle.size, late.size], [5, 3]);
    await db.set(299, 'new');
    await until(() => high.get(299) === 'new');
  }));

test('mirrors of random ranges that come and go have their entries, and no more, however often they are read again', () =>
  withMemory<number, string>({}, async (db) => {
    const random = new Random(7);
    const KEYS = 60;
    await db.setMany(Array.from({ length: KEYS }, (_, n) => [n, 'x'.repeat(random.below(200))]));
    await db.collection('name 0').set('x', 0);
    const others = [mirror(db.collection('name 0')), mirror(db.collection('name 1'))] as const;
    await Promise.all(others.map(({ ready }) => ready));
    const held: { readonly from: number; readonly to: number; readonly mirror: Mirror<number, string> }[] = [];
    for (let step = 0; step < 200; step++) {
      const from = random.below(KEYS);
      const to = from + random.below(KEYS / 2);
      const probe = await mirror(db, { gte: from, lt: to }).ready;
      const { bytes } = probe;
      probe.close();
      held.push({ from, to, mirror: await mirror(db, { gte: from, lt: to }, { maxBytes: bytes }).ready });
      while (held.length > 4) held.splice(random.below(held.length), 1)[0]!.mirror.close();
      if (step % 3 === 0) {
        const name = (step / 3) % 2;
        await db.renameCollection(`name ${name}`, `name ${1 - name}`);
        await until(() => others[1 - name]!.size === 1 && others[name]!.size === 0 && !others[0].isStale);
      }
      for (const { from, to, mirror: each } of held)
        assert.equal(each.size, Math.max(Math.min(to, KEYS) - from, 0), `step ${step}: ${from} to ${to}`);
      for (let key = 0; key < KEYS; key++) {
        const isHeld = held.some(({ from, to }) => key >= from && key < to);
        const { status } = liveQuery(db, { gte: key, lte: key }).getSnapshot();
        assert.equal(status, isHeld ? 'ready' : 'loading', `step ${step}: ${key}`);
      }
    }
  }));

test('a key or a range outside of the mirror is not taken for missing', () =>
  withMemory<number, string>({}, async (db) => {
    await db.set(7, 'there');
    const held = await mirror(db, { lt: 5 }).ready;
    assert.throws(() => held.get(7), code('KV_OUT_OF_RANGE'));
    assert.throws(() => held.has(7), code('KV_OUT_OF_RANGE'));
    // Ranges are within the mirror, as a mirror is a part of the collection.
    assert.deepEqual(held.range({ gte: 6 }), []);
  }));

test('writes show at once, with what will be stored; what fails is undone with an event', () =>
  withMemory({}, async (db) => {
    const people = db.collection<string, { email: string; tags?: string[] }>('people', {
      indexes: { email: { key: ({ email }) => email, unique: true } },
    });
    await people.set('ada', { email: 'a' });
    const [held, byEmail] = [mirror(people), mirror(people, { index: 'email' })];
    await Promise.all([held.ready, byEmail.ready]);
    const rollbacks: RollbackEvent[] = [];
    held.addEventListener('rollback', (event) => rollbacks.push(event));
    const value = { email: 'g', tags: ['x'] };
    const stored = held.set('grace', value);
    value.tags.push('changed later');
    assert.deepEqual(held.get('grace'), { email: 'g', tags: ['x'] });
    assert.deepEqual(byEmail.keys(), ['ada', 'grace']);
    await stored;
    assert.deepEqual(await people.get('grace'), { email: 'g', tags: ['x'] });
    const clash = held.set('eve', { email: 'a' });
    assert.deepEqual(held.keys(), ['ada', 'eve', 'grace']);
    await assert.rejects(clash, code('KV_UNIQUE'));
    assert.deepEqual(held.keys(), ['ada', 'grace']);
    assert.deepEqual(byEmail.keys(), ['ada', 'grace']);
    assert.deepEqual(
      rollbacks.map(({ error, keys }) => [(error as KvError).code, keys]),
      [['KV_UNIQUE', ['eve']]],
    );
    // What is refused before it is sent never shows.
    await assert.rejects(held.set('bad', { email: 'b', tags: [(() => 1) as never] }), code('KV_INVALID_VALUE'));
    await assert.rejects(held.set('bad', { email: (() => 1) as never }), code('KV_INVALID_KEY'));
    await assert.rejects(held.set('bad', null as never), code('KV_INVALID_VALUE'));
    assert.equal(held.has('bad'), false);
    const gone = byEmail.delete('ada');
    assert.deepEqual([held.keys(), byEmail.keys()], [['grace'], ['grace']]);
    assert.equal(await gone, true);
    assert.equal(await held.deleteMany(['ada', 'grace']), 1);
    assert.equal(held.size, 0);
    await assert.rejects(mirror(people.index('email')).set('a' as never, 1 as never), code('KV_UNSUPPORTED'));
  }));

test('what the collection refuses rejects as there, and is not shown', () =>
  withMemory<number, string>({}, async (db) => {
    await db.set(1, 'a');
    const held = await mirror(db).ready;
    const rollbacks: RollbackEvent[] = [];
    held.addEventListener('rollback', (event) => rollbacks.push(event));
    function* failing(): Generator<never> {
      yield* [];
      throw new TypeError('no');
    }
    const codeOf = (call: () => Promise<unknown>): Promise<unknown> =>
      call().then(
        () => 'stored',
        (error: KvError) => error.code ?? error.message,
      );
    for (const wrong of [undefined, null, 5, 'ab', {}, [null], [1], [[1]], [[]], failing] as never[]) {
      const given = (): never => (typeof wrong === 'function' ? failing() : wrong) as never;
      const results = [codeOf(() => held.setMany(given()))];
      if (!Array.isArray(wrong)) results.push(codeOf(() => held.deleteMany(given())));
      assert.deepEqual(held.range(), [[1, 'a']]);
      const expected = [await codeOf(async () => db.setMany(given()))];
      if (!Array.isArray(wrong)) expected.push(await codeOf(async () => db.deleteMany(given())));
      assert.deepEqual(await Promise.all(results), expected);
    }
    assert.deepEqual(rollbacks, []);
    for (const wrong of [undefined, 5] as never[])
      await assert.rejects(held.update(1, wrong), code('KV_INVALID_ARGUMENT'));
  }));

test('a write that fails does not take a later one of the same key with it', () =>
  withMemory({}, async (db) => {
    const people = db.collection<string, { email: string }>('people', {
      indexes: { email: { key: ({ email }) => email, unique: true } },
    });
    await people.setMany([
      ['ada', { email: 'a' }],
      ['eve', { email: 'e' }],
    ]);
    const held = await mirror(people).ready;
    const bad = held.set('eve', { email: 'a' });
    const good = held.set('eve', { email: 'e2' });
    bad.catch(() => assert.deepEqual(held.get('eve'), { email: 'e2' }));
    await assert.rejects(bad, code('KV_UNIQUE'));
    assert.deepEqual(held.get('eve'), { email: 'e2' });
    await good;
    assert.deepEqual(held.get('eve'), { email: 'e2' });
  }));

test('updates count what others have written, and show it', () =>
  withMemory<string, number>({}, async (db) => {
    await db.set('n', 0);
    const held = await mirror(db).ready;
    const add = (old: number | undefined): number => (old ?? 0) + 1;
    const all: Promise<unknown>[] = [];
    for (let n = 0; n < 20; n++) {
      all.push(held.update('n', add), db.update('n', add));
      assert.ok(held.get('n')! >= 1);
    }
    await Promise.all(all);
    assert.equal(await db.get('n'), 40);
    await until(() => held.get('n') === 40);
    const gone = held.update('n', () => DELETE);
    assert.equal(held.has('n'), false);
    await gone;
    await assert.rejects(
      held.update('n', () => {
        throw new TypeError('no');
      }),
      TypeError,
    );
    assert.equal(held.has('n'), false);
  }));

test('a write through a handle without the indexes that others mirror is undone', () =>
  withMemory({}, async (db) => {
    const rows = db.collection<number, object>('rows', {
      indexes: { n: { key: (row) => (row as { in: { n: number } }).in.n } },
    });
    await rows.set(1, { in: { n: 1 } });
    const plain = await mirror(db.collection<number, object>('rows')).ready;
    const indexed = await mirror(rows, { index: 'n' }).ready;
    const errors: unknown[] = [];
    plain.addEventListener('rollback', ({ error }) => errors.push((error as KvError).code));
    // The index function throws for the first one.
    for (const row of [{ flat: true }, { in: { n: 2 } }]) {
      const refused = plain.set(2, row);
      assert.deepEqual(plain.get(2), row);
      await assert.rejects(refused, code('KV_INDEX_MISMATCH'));
      assert.deepEqual([plain.size, indexed.size], [1, 1]);
    }
    assert.deepEqual(errors, ['KV_INDEX_MISMATCH', 'KV_INDEX_MISMATCH']);
  }));

test('an update whose function changes what it is given changes nothing that is shown before', () =>
  withMemory({}, async (db) => {
    const people = db.collection<string, { email: string; visits: number }>('people', {
      indexes: { email: { key: ({ email }) => email, unique: true } },
    });
    await people.setMany([
      ['ada', { email: 'a', visits: 1 }],
      ['eve', { email: 'e', visits: 1 }],
    ]);
    const held = await mirror(people).ready;
    const before = held.get('eve');
    const change = (email: string) => (old: { email: string; visits: number } | undefined) => {
      old!.email = email;
      old!.visits++;
      return old!;
    };
    const clash = held.update('eve', change('a'));
    assert.deepEqual(held.get('eve'), { email: 'a', visits: 2 });
    await assert.rejects(clash, code('KV_UNIQUE'));
    assert.equal(held.get('eve'), before);
    assert.deepEqual(before, { email: 'e', visits: 1 });
    await held.update('eve', change('e2'));
    assert.deepEqual(held.get('eve'), { email: 'e2', visits: 2 });
    assert.deepEqual(before, { email: 'e', visits: 1 });
  }));

test('an update that keeps the entry of the database shows that one', () =>
  withMemory<string, number>({}, async (db) => {
    await db.set('n', 1);
    const held = await mirror(db).ready;
    const other = db.set('n', 5);
    const kept = held.update('n', (old) => (old! > 3 ? KEEP : old! + 1));
    assert.equal(held.get('n'), 2);
    await other;
    assert.equal(await kept, 5);
    await until(() => held.get('n') === 5);
  }));

test('an update of an entry that is not mirrored shows nothing before that is read', () =>
  withMemory({}, async (db) => {
    const rows = db.collection<number, { n: number; text?: string }>('rows', {
      indexes: { n: { key: ({ n }) => n } },
    });
    await rows.set(50, { n: 1, text: 'stays' });
    const [low, some, all] = [
      mirror(rows, { lt: 10 }),
      mirror(rows, { index: 'n', gte: 5 }),
      mirror(rows, { index: 'n' }),
    ];
    await Promise.all([low.ready, some.ready]);
    for (const held of [low, some]) {
      const shown: unknown[] = [];
      const stop = some.subscribe(() => shown.push(some.values()));
      const stored = held.update(50, (old) => ({ ...old, n: (old?.n ?? 0) + 6 }));
      assert.deepEqual(some.size, shown.length === 0 ? 0 : 1);
      await stored;
      assert.deepEqual(some.values(), [await rows.get(50)]);
      stop();
      assert.ok(shown.flat().every((row) => (row as { text?: string }).text === 'stays'));
      await rows.set(50, { n: 1, text: 'stays' });
      await until(() => some.size === 0);
    }
    await all.ready;
    const stored = low.update(50, (old) => ({ ...old, n: 7 }));
    assert.deepEqual(all.values(), [{ n: 7, text: 'stays' }]);
    await stored;
  }));

test('a schema gives what is shown', () =>
  withMemory({}, async (db) => {
    const standard = (validate: (value: unknown) => unknown) =>
      ({ '~standard': { version: 1, vendor: 'test', validate } }) as never;
    const doubled = db.collection<string, number>('doubled', {
      schema: standard((value) =>
        typeof value === 'number' ? { value: value * 2 } : { issues: [{ message: 'no number' }] },
      ),
    });
    const held = await mirror(doubled).ready;
    const stored = held.set('a', 4);
    assert.equal(held.get('a'), 8);
    await stored;
    await assert.rejects(held.set('b', 'x' as never), code('KV_INVALID_VALUE'));
    assert.equal(held.has('b'), false);
    const late = db.collection<string, number>('late', {
      schema: standard(async (value) => ({ value: (value as number) + 1 })),
    });
    const later = await mirror(late).ready;
    await later.set('a', 1);
    await until(() => later.get('a') === 2);
  }));

test('an entry that expires is gone at once, and subscribers are told', async () => {
  await withMemory<string, string>({}, async (db) => {
    await db.set('stays', 'x');
    const held = await mirror(db).ready;
    let told = 0;
    const expireAt = Date.now() + 60;
    await held.set('soon', 'y', { expireAt });
    assert.equal(held.get('soon'), 'y');
    await until(() => held.version > 1);
    held.subscribe(() => told++);
    while (Date.now() < expireAt) await new Promise((resolve) => setTimeout(resolve, 1));
    assert.equal(held.get('soon'), undefined);
    assert.deepEqual(held.keys(), ['stays']);
    await until(() => told > 0);
  });
});

test('live queries of what is mirrored are ready at once, follow it, and go on without it', () =>
  withMemory<number, { tag: string }>({}, async (db) => {
    const rows = db.collection<number, { tag: string }>('rows', { indexes: { tag: { key: ({ tag }) => tag } } });
    await rows.setMany(Array.from({ length: 50 }, (_, n) => [n, { tag: `t${n % 5}` }]));
    const [held, byTag] = [mirror(rows, { lt: 30 }), mirror(rows, { index: 'tag' })];
    await Promise.all([held.ready, byTag.ready]);
    const query = liveQuery(rows, { gte: 10, lt: 20, reverse: true, limit: 3 });
    assert.equal(query.getSnapshot().status, 'ready');
    assert.deepEqual(
      query.getSnapshot().entries.map(([key]) => key),
      [19, 18, 17],
    );
    assert.equal(query.getSnapshot(), query.getSnapshot());
    const tagged = liveQuery(rows.index('tag'), { eq: 't1' });
    assert.deepEqual(
      tagged.getSnapshot().entries.map(([key]) => key),
      [1, 6, 11, 16, 21, 26, 31, 36, 41, 46],
    );
    const window = liveWindow(rows, { lt: 30, limit: 5 });
    window.move(5, 2);
    assert.deepEqual(
      window.getSnapshot().entries.map(([key]) => key),
      [5, 6],
    );
    let told = 0;
    const stop = query.subscribe(() => told++);
    const [, before] = query.getSnapshot().entries;
    await held.set(19, { tag: 'new' });
    assert.deepEqual(query.getSnapshot().entries[0], [19, { tag: 'new' }]);
    assert.equal(query.getSnapshot().entries[1], before);
    assert.ok(told >= 1);
    await rows.set(25, { tag: 'outside of the query' });
    await until(() => held.get(25)?.tag !== 't0');
    held.close();
    await rows.set(18, { tag: 'after' });
    await until(() => query.getSnapshot().entries.some(([, { tag }]) => tag === 'after'));
    stop();
    // What nothing mirrors loads.
    assert.equal(liveQuery(rows, { gte: 40 }).getSnapshot().status, 'loading');
  }));

test('a live query has the same entries after its mirror is closed', () =>
  withMemory({}, async (db) => {
    const rows = db.collection<string, { n: number }>('rows', { indexes: { n: { key: ({ n }) => n } } });
    await rows.setMany([
      ['a', { n: 1 }],
      ['b', { n: 2 }],
    ]);
    const [held, byN] = [await mirror(rows).ready, await mirror(rows, { index: 'n' }).ready];
    const [query, indexed, later] = [liveQuery(rows), liveQuery(rows.index('n')), liveQuery(rows)];
    const stops = [query, indexed].map(({ subscribe }) => subscribe(() => undefined));
    const [before, indexedBefore] = [query.getSnapshot().entries, indexed.getSnapshot().entries];
    assert.equal(later.getSnapshot().entries[0], before[0]);
    held.close();
    byN.close();
    stops.push(later.subscribe(() => undefined));
    await rows.set('b', { n: 3 });
    const all = [query, indexed, later];
    await until(() => all.every(({ getSnapshot }) => getSnapshot().entries[1]?.[1].n === 3));
    for (const each of [query, later]) assert.equal(each.getSnapshot().entries[0], before[0]);
    assert.equal(indexed.getSnapshot().entries[0], indexedBefore[0]);
    stops.forEach((stop) => stop());
  }));

test('a second live query of a range begins with what the first one shows, and a preloaded one is ready', () =>
  withMemory<number, string>({}, async (db) => {
    await db.setMany([
      [1, 'a'],
      [2, 'b'],
    ]);
    const first = liveQuery(db, { gte: 1 });
    const stop = first.subscribe(() => undefined);
    await until(() => first.getSnapshot().status === 'ready');
    const second = liveQuery(db, { gte: 1 });
    assert.equal(second.getSnapshot().status, 'ready');
    assert.equal(second.getSnapshot().entries, first.getSnapshot().entries);
    assert.equal(liveQuery(db, { gte: 2 }).getSnapshot().status, 'loading');
    assert.equal(liveQuery(db.collection('other'), { gte: 1 } as never).getSnapshot().status, 'loading');
    stop();
    const result = await preload(liveQuery(db, { lt: 2 }));
    assert.deepEqual(result.entries, [[1, 'a']]);
    assert.deepEqual(liveQuery(db, { lt: 2 }).getSnapshot().entries, [[1, 'a']]);
    await assert.rejects(preload(liveQuery(db, { gte: Symbol('bad') as never })), code('KV_INVALID_KEY'));
  }));

test('a live query that was made before its mirror tells a new listener later', () =>
  withMemory<number, string>({}, async (db) => {
    await db.set(1, 'a');
    const [preloaded, query] = [liveQuery(db), liveQuery(db)];
    await mirror(db).ready;
    assert.deepEqual((await preload(preloaded)).entries, [[1, 'a']]);
    // The listener ends its subscription when it is called, so `subscribe` has to have returned.
    await new Promise<void>((resolve) => {
      const stop = query.subscribe(() => {
        stop();
        resolve();
      });
    });
    assert.deepEqual(query.getSnapshot().entries, [[1, 'a']]);
  }));

test('a mirror does not tell of others that are closed, refused or shrink', () =>
  withMemory<number, string>({}, async (db) => {
    await db.setMany(Array.from({ length: 20 }, (_, n) => [n, 'x'.repeat(100)]));
    const [held, small] = [mirror(db, { lt: 10 }), mirror(db, { gte: 10 }, { maxBytes: 2000 })];
    await Promise.all([held.ready, small.ready]);
    await db.set(0, 'new');
    await until(() => held.get(0) === 'new');
    const told: string[] = [];
    held.subscribe(() => told.push('held'));
    const stop = small.subscribe(() => told.push('small'));
    await db.set(15, 'y'.repeat(1000));
    await until(() => !small.covers({ gte: 10 }));
    await assert.rejects(mirror(db, { lt: 30 }, { maxBytes: 100 }).ready);
    small.close();
    stop();
    mirror(db, { gte: 2 }).close();
    assert.deepEqual([...new Set(told)], ['small']);
    held.close();
    assert.equal(told.at(-1), 'held');
  }));

test('what was loaded leaves nothing open in the engine, not even if that failed', () =>
  withMemory<string, { group: number; text: string }>(
    { indexes: { group: { key: ({ group }) => group } } },
    async (db) => {
      const text = 'x'.repeat(10_000);
      // More than one reply has.
      await db.setMany(Array.from({ length: 1500 }, (_, n) => [String(n), { group: n % 7, text }] as const));
      const isAllClosed = async (): Promise<void> => {
        for (let tries = 0; (await db.stats()).openSnapshots > 0 && tries < 1000; tries++)
          await new Promise((resolve) => setTimeout(resolve, 1));
        assert.equal((await db.stats()).openSnapshots, 0);
      };
      const loaded = [mirror(db), mirror(db, { gte: '5' }), mirror(db, { index: 'group' })];
      for (const each of loaded) await each.ready;
      await isAllClosed();
      for (const each of loaded) each.close();
      for (const maxBytes of [1000, 12_000_000]) {
        await assert.rejects(mirror(db, {}, { maxBytes }).ready, code('KV_RANGE_TOO_LARGE'));
        await assert.rejects(mirror(db, { index: 'group' }, { maxBytes }).ready, code('KV_RANGE_TOO_LARGE'));
      }
      await isAllClosed();
      const value = {
        ...valueCodecs.structured<never>(),
        decode: () => {
          throw new RangeError('unreadable');
        },
      };
      await assert.rejects(mirror(db.collection('', { value })).ready, code('KV_CORRUPT'));
      await isAllClosed();
    },
  ));

test('a mirror of an index that is closed at once leaves nothing open', () =>
  withMemory({}, async (db) => {
    const rows = db.collection<number, { n: number }>('rows', { indexes: { n: { key: ({ n }) => n } } });
    const { connection } = (db as unknown as { verbs: { target: { connection: Connection } } }).verbs.target;
    for (let entries = 0; entries < 2; entries++) {
      const closed = mirror(rows, { index: 'n' });
      closed.close();
      await assert.rejects(closed.ready, code('KV_CLOSED'));
      await rows.set(entries, { n: entries });
      assert.equal(connection.waiting.size, 0);
    }
  }));

test('a listener that another one has ended is not called any more', () =>
  withMemory<number, string>({}, async (db) => {
    const held = await mirror(db).ready;
    const [mirrored, followed] = [liveQuery(db), liveQuery(db.collection('other'))];
    for (const { subscribe } of [held, mirrored, followed]) {
      const calls: string[] = [];
      const stopFirst = subscribe(() => {
        calls.push('first');
        stopSecond();
      });
      const stopSecond = subscribe(() => calls.push('second'));
      await Promise.all([db.set(1, String(calls.length)), db.collection('other').set('a', 1)]);
      await until(() => calls.length > 0);
      assert.ok(!calls.includes('second'));
      stopFirst();
    }
  }));

test('what is dropped, renamed or closed', () =>
  withMemory({}, async (db) => {
    const [a, b] = [db.collection<string, number>('a'), db.collection<string, number>('b')];
    await a.set('x', 1);
    const [heldA, heldB] = [mirror(a), mirror(b)];
    await Promise.all([heldA.ready, heldB.ready]);
    await db.renameCollection('a', 'b');
    await until(() => heldB.has('x') && heldA.size === 0);
    await db.dropCollection('b');
    await until(() => heldB.size === 0);
    await b.set('y', 2);
    await until(() => heldB.get('y') === 2);
    let failure: unknown;
    heldB.addEventListener('error', ({ error }) => {
      failure = error;
    });
    await db.close();
    await until(() => heldB.status === 'failed');
    assert.ok(code('KV_CLOSED')(failure));
    assert.throws(() => heldB.get('y'), code('KV_CLOSED'));
    heldB.close();
  }));

test('as mirrors fail, none that is still ready has lost its entries', () =>
  withMemory<number, string>({}, async (db) => {
    await db.setMany([
      [1, 'a'],
      [2, 'b'],
    ]);
    const held = [await mirror(db, { lt: 2 }).ready, await mirror(db, { gte: 2 }).ready];
    const seen: unknown[] = [];
    const look = (): void => held.forEach((each) => seen.push(each.status === 'ready' ? each.size : each.status));
    for (const each of held) {
      each.subscribe(look);
      each.addEventListener('error', look);
    }
    await db.close();
    await until(() => held.every(({ status }) => status === 'failed'));
    assert.ok(seen.length > 0);
    assert.deepEqual(new Set(seen), new Set(['failed', 1]));
  }));

test('a live query does not take an entry for the same as one whose version died with a leader', () =>
  withMemory<string, { n: number }>({}, async (db) => {
    const rows = db.collection<string, { n: number }>('rows');
    await rows.setMany([
      ['changes', { n: 1 }],
      ['stays', { n: 1 }],
    ]);
    // Both entries are of version 7 before and after the change of leader, which the feed tells.
    const followed = db.collection<string, { n: number }>('rows');
    const [entries, watch] = [followed.entries.bind(followed), followed.watch.bind(followed)];
    let takeOver = (_: unknown): void => undefined;
    Object.assign(followed, {
      entries: (range: object) => ({
        toArray: async () =>
          (await entries({ ...range, meta: true }).toArray()).map((each) => ({ ...each, version: 7 })),
      }),
      watch: (options: object) => {
        const commits = watch(options);
        const lost = new Promise<never>((_, reject) => {
          takeOver = reject;
        });
        return { [Symbol.asyncIterator]: () => ({ next: () => Promise.race([lost, commits.next()]) }) };
      },
    });
    const query = liveQuery(followed);
    const stop = query.subscribe(() => undefined);
    const before = await until(() => query.getSnapshot().entries[1]);
    await rows.set('changes', { n: 2 });
    takeOver(new KvError('KV_TRUNCATED_FEED', 'the leader is gone'));
    await until(() => query.getSnapshot().entries[0]?.[1].n === 2);
    assert.equal(query.getSnapshot().entries[1], before);
    stop();
  }));

test('an entry that is read again is the same object only if its bytes are the same', () => {
  // The version of a commit that died with a leader is given again.
  const target = { name: '', key: keyCodecs.string, value: valueCodecs.json<unknown>() } as never;
  const store = new CollectionStore(target);
  const segment = { lower: '', upper: undefined, loadedAt: undefined };
  const read = (value: string): Held => {
    const writer = new RequestWriter();
    writer.str('a').bytes(valueCodecs.json().encode(value)).uv(7).uv(0);
    return store.readEntry(new ReplyReader(writer.view().slice()));
  };
  const first = read('one');
  store.install(segment, 7, [first]);
  assert.equal(read('one'), first);
  assert.equal(read('two').value, 'two');
  store.install(segment, 7, [read('two')]);
  assert.equal(store.entries.get('a')?.value, 'two');
});

test('arguments that are invalid', () =>
  withMemory({}, async (db) => {
    const refuses = (...args: unknown[]): void =>
      assert.throws(() => (mirror as (...given: unknown[]) => unknown)(...args), code('KV_INVALID_ARGUMENT'));
    refuses(undefined);
    refuses({});
    refuses(db.snapshot());
    refuses(db, { limit: 3 });
    refuses(db, { gte: undefined });
    refuses(db, { lmit: 3 });
    refuses(db, {}, { maxBytes: -1 });
    refuses(db, {}, { max: 1 });
    refuses(db, { index: 'none' });
    const rows = db.collection('rows', { indexes: { n: { key: (row: { n: number }) => row.n } } });
    refuses(rows.index('n'), { index: 'n' });
    const held = await mirror(db as Database<Key, unknown>).ready;
    for (const wrong of [{ lmit: 1 }, { gte: undefined }])
      assert.throws(() => held.range(wrong as never), code('KV_INVALID_ARGUMENT'));
    assert.throws(() => held.at(0.5), code('KV_INVALID_ARGUMENT'));
    assert.throws(() => held.get(Symbol('no') as never), code('KV_INVALID_KEY'));
  }));

test('values of other codecs', () =>
  withMemory({}, async (db) => {
    for (const value of [valueCodecs.json<unknown>(), valueCodecs.structured<unknown>()]) {
      const collection = db.collection<string, unknown>(value.id, { value });
      const held = await mirror(collection).ready;
      const stored = held.set('a', { list: [1, 2], text: 'ä' });
      assert.deepEqual(held.get('a'), { list: [1, 2], text: 'ä' });
      await stored;
      await collection.set('b', [null]);
      await until(() => held.has('b'));
      assert.deepEqual(held.values(), [{ list: [1, 2], text: 'ä' }, [null]]);
    }
    const bytes = await mirror(db.collection<string, Uint8Array>('bytes', { value: valueCodecs.bytes })).ready;
    const given = Uint8Array.of(1, 2);
    const stored = bytes.set('a', given);
    given[0] = 9;
    assert.deepEqual(bytes.get('a'), Uint8Array.of(1, 2));
    await stored;
  }));

test('processes that share a database see each other in their mirrors', async () => {
  const { mkdtemp, rm } = await import('node:fs/promises');
  const path = await mkdtemp(`${(await import('node:os')).tmpdir()}/mirror-`);
  const [first, second] = [await open<string, number>(path), await open<string, number>(path)];
  const held = await mirror(second).ready;
  await first.set('a', 1);
  await until(() => held.get('a') === 1);
  // The first one leads; the second one goes on after it.
  await first.close();
  await held.set('b', 2);
  assert.deepEqual(held.keys(), ['a', 'b']);
  await second.set('c', 3);
  await until(() => held.size === 3);
  await second.close();
  await rm(path, { recursive: true });
});
