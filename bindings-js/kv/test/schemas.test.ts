// Collections with a schema validate every write from every interface and store the schema's
// output.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as v from 'valibot';
import { z } from 'zod';
import { DELETE, KEEP, keyCodecs, open } from 'mangrove-kv';
import type { Collection, Database, SchemaIssue, StandardSchema, SyncCollection } from 'mangrove-kv';
import { code, rejects, withMemory, withPath } from './support/kit.ts';

interface User {
  name: string;
  age: number;
}

/** Hand-written, without a library: an age may be text, and defaults to 0. */
function validate(value: unknown): { value: User } | { issues: SchemaIssue[] } {
  const { name, age = 0 } = (value ?? {}) as { name?: unknown; age?: unknown };
  if (typeof name !== 'string') return { issues: [{ message: 'no name', path: [{ key: 'name' }] }] };
  if (!Number.isInteger(Number(age))) return { issues: [{ message: 'no age', path: ['age'] }] };
  return { value: { name, age: Number(age) } };
}

interface Input {
  name: string;
  age?: number | string | undefined;
}

const SCHEMAS: Record<string, { schema: StandardSchema<Input, User>; isAsync: boolean }> = {
  zod: {
    schema: z.object({ name: z.string(), age: z.coerce.number<number | string | undefined>().int().default(0) }),
    isAsync: false,
  },
  valibot: {
    schema: v.object({
      name: v.string(),
      age: v.optional(v.pipe(v.union([v.number(), v.string()]), v.transform(Number), v.integer()), 0),
    }),
    isAsync: false,
  },
  'a hand-written schema': { schema: { '~standard': { version: 1, vendor: 'test', validate } }, isAsync: false },
  'an asynchronous schema': {
    schema: {
      '~standard': { version: 1, vendor: 'test', validate: async (value) => validate(await Promise.resolve(value)) },
    },
    isAsync: true,
  },
  'an asynchronous schema of zod': {
    schema: z.object({
      name: z.string().refine(async (name) => Promise.resolve(name !== '')),
      age: z.coerce.number<number | string | undefined>().int().default(0),
    }),
    isAsync: true,
  },
};

const bad = { age: 1 } as unknown as Input;

function issuesOf(error: unknown): readonly SchemaIssue[] {
  return (error as { cause: readonly SchemaIssue[] }).cause;
}

async function refuses(promise: Promise<unknown>): Promise<void> {
  await assert.rejects(promise, (error: Error) => {
    code('KV_INVALID_VALUE')(error);
    assert.match(error.message, /name/);
    const [issue] = issuesOf(error);
    const [part] = issue?.path ?? [];
    assert.equal(typeof part === 'object' ? part.key : part, 'name');
    return true;
  });
}

for (const [name, { schema, isAsync }] of Object.entries(SCHEMAS)) {
  const withUsers = (use: (users: Collection<string, User, Input>, db: Database) => Promise<void>): Promise<void> =>
    withMemory({}, (db) => use(db.collection('users', { key: keyCodecs.string, schema }), db));

  test(`${name}: every write stores the output of the schema`, () =>
    withUsers(async (users, db) => {
      await users.set('set', { name: 'a', age: '1' });
      await users.set('expiring', { name: 'b' }, { expireIn: 60_000 });
      await users.setMany([
        ['many 1', { name: 'c', age: '2' }],
        ['many 2', { name: 'd' }],
      ]);
      assert.deepEqual(await users.getOrInsert('inserted', { name: 'e', age: '3' }), { name: 'e', age: 3 });
      assert.deepEqual(await users.getOrInsertComputed('computed', async () => ({ name: 'f', age: '4' })), {
        name: 'f',
        age: 4,
      });
      assert.deepEqual(await users.update('set', (old) => ({ name: 'a', age: `${(old?.age ?? 0) + 1}` })), {
        name: 'a',
        age: 2,
      });
      await db.batch([{ type: 'set', collection: users, key: 'op', value: { name: 'g', age: '5' } }]);
      await db.batch().collection(users).set('batch', { name: 'h', age: '6' }).commit();
      await db.transaction(async (tx) => {
        const inside = tx.collection(users);
        await inside.set('tx', { name: 'i', age: '7' });
        assert.deepEqual(await inside.update('tx', (old) => ({ ...(old as User), age: '8' })), { name: 'i', age: 8 });
      });
      assert.deepEqual(Object.fromEntries(await users.entries().toArray()), {
        set: { name: 'a', age: 2 },
        expiring: { name: 'b', age: 0 },
        'many 1': { name: 'c', age: 2 },
        'many 2': { name: 'd', age: 0 },
        inserted: { name: 'e', age: 3 },
        computed: { name: 'f', age: 4 },
        op: { name: 'g', age: 5 },
        batch: { name: 'h', age: 6 },
        tx: { name: 'i', age: 8 },
      });
      assert.ok((await users.getEntry('expiring'))?.expiresAt);
    }));

  test(`${name}: no write accepts an invalid value`, () =>
    withUsers(async (users, db) => {
      await users.set('a', { name: 'a' });
      await refuses(users.set('a', bad));
      await refuses(users.set('a', bad, { expireIn: 60_000 }));
      await refuses(
        users.setMany([
          ['b', { name: 'b' }],
          ['c', bad],
        ]),
      );
      await refuses(users.getOrInsert('b', bad));
      await refuses(users.getOrInsertComputed('b', () => bad));
      await refuses(users.update('a', () => bad));
      await refuses(
        db.batch([
          { type: 'set', key: 'z', value: 1 },
          { type: 'set', collection: users, key: 'b', value: bad },
        ]),
      );
      await refuses(db.transaction((tx) => tx.collection(users).set('b', bad)));
      const batch = db.batch().set('z', 1);
      // Refused at the call if the schema is synchronous, else at the commit.
      await refuses((async () => batch.collection(users).set('b', bad).delete('a').commit())());
      if (!isAsync) assert.equal(batch.length, 1);
      assert.deepEqual(await users.entries().toArray(), [['a', { name: 'a', age: 0 }]]);
      assert.equal(await db.size, 0);
      // DELETE and KEEP are not values.
      assert.deepEqual(await users.update('a', () => KEEP), { name: 'a', age: 0 });
      assert.equal(await users.update('a', () => DELETE), undefined);
    }));

  test(`${name}: changes of a batch keep their order`, () =>
    withUsers(async (users, db) => {
      const batch = db.batch();
      const inside = batch.collection(users);
      inside.set('a', { name: 'first' }).delete('a').set('b', { name: 'second' });
      batch.set('plain', 1);
      inside.set('b', { name: 'third' }).check('c', null);
      assert.equal(batch.length, 6);
      await batch.commit();
      assert.deepEqual(await users.entries().toArray(), [['b', { name: 'third', age: 0 }]]);
      assert.equal(await db.get('plain'), 1);
      await rejects(batch.commit(), 'KV_CLOSED');
    }));

  test(`${name}: values stored without the schema are read unchanged`, () =>
    withUsers(async (users, db) => {
      const raw = db.collection<string, unknown>('users', { key: keyCodecs.string });
      await raw.set('a', { age: 'old' });
      assert.deepEqual(await users.get('a'), { age: 'old' });
      assert.deepEqual(await users.getOrInsert('a', { name: 'new' }), { age: 'old' });
      assert.deepEqual(await users.update('a', () => ({ name: 'new' })), { name: 'new', age: 0 });
    }));

  test(`${name}: the default collection may have a schema too`, () =>
    withMemory({ schema }, async (db) => {
      await db.set(1, { name: 'a', age: '1' });
      assert.deepEqual(await db.get(1), { name: 'a', age: 1 });
      await refuses(db.set(2, bad));
      await db.transaction((tx) => tx.set(3, { name: 'b' }));
      assert.deepEqual(await db.get(3), { name: 'b', age: 0 });
    }));

  test(`${name}: the synchronous API validates, or refuses an asynchronous schema`, () =>
    withUsers(async (users, db) => {
      const sync = db.sync.collection(users);
      const named: SyncCollection<string, User, Input> = db.sync.collection('users', { key: keyCodecs.string, schema });
      const writes: (() => unknown)[] = [
        () => sync.set('a', { name: 'a', age: '1' }),
        () => named.setMany([['b', { name: 'b' }]]),
        () => sync.getOrInsert('c', { name: 'c', age: '2' }),
        () => sync.getOrInsertComputed('d', () => ({ name: 'd' })),
        () => sync.update('a', (old) => ({ name: 'a', age: `${(old?.age ?? 0) + 1}` })),
        () => db.sync.transaction((tx) => tx.collection(users).set('e', { name: 'e' })),
      ];
      if (isAsync) {
        for (const write of writes) assert.throws(write, code('KV_SYNC_UNAVAILABLE'));
        assert.equal(sync.size, 0);
        return;
      }
      for (const write of writes) write();
      assert.deepEqual(
        [...sync.values()].map(({ age }) => age),
        [2, 0, 2, 0, 0],
      );
      assert.throws(() => sync.set('f', bad), code('KV_INVALID_VALUE'));
      assert.throws(
        () =>
          sync.setMany([
            ['f', { name: 'f' }],
            ['g', bad],
          ]),
        code('KV_INVALID_VALUE'),
      );
      assert.throws(() => sync.update('a', () => bad), code('KV_INVALID_VALUE'));
      assert.equal(sync.size, 5);
    }));
}

const ASYNC = (SCHEMAS['an asynchronous schema'] as { schema: StandardSchema<Input, User> }).schema;

test('a signal that is aborted while a value is validated stops the write', () =>
  withMemory({ schema: ASYNC }, async (db) => {
    const reason = new Error('enough');
    const writes: ((signal: AbortSignal) => Promise<unknown>)[] = [
      (signal) => db.set(1, { name: 'a' }, { signal }),
      (signal) => db.setMany([[1, { name: 'a' }]], { signal }),
      (signal) => db.getOrInsert(1, { name: 'a' }, { signal }),
      (signal) => db.batch().set(1, { name: 'a' }).commit({ signal }),
    ];
    for (const write of writes) {
      const controller = new AbortController();
      const writing = write(controller.signal);
      controller.abort(reason);
      await assert.rejects(writing, (error) => error === reason);
    }
    await new Promise((resolve) => setTimeout(resolve));
    assert.equal(await db.size, 0);
  }));

test('with a synchronous schema calls take effect in the order of calls', () =>
  withMemory({ schema: z.number() }, async (db) => {
    const results = await Promise.all([db.set(1, 1), db.get(1), db.set(1, 2), db.get(1), db.getOrInsert(1, 3)]);
    assert.deepEqual(results, [undefined, 1, undefined, 2, 2]);
  }));

test('an error that a schema throws becomes a KvError, and an output of undefined is refused', () =>
  withMemory({}, async (db) => {
    const standard = { version: 1, vendor: 'test' } as const;
    const cause = new Error('inside');
    for (const validate of [
      () => {
        throw cause;
      },
      () => Promise.reject(cause),
    ]) {
      const broken = db.collection('broken', { schema: { '~standard': { ...standard, validate } } });
      await assert.rejects(
        broken.set(1, 1),
        (error: Error) => code('KV_INVALID_VALUE')(error) && error.cause === cause,
      );
    }
    const nothing = db.collection('nothing', {
      schema: { '~standard': { ...standard, validate: () => ({ value: undefined }) } },
    });
    await rejects(nothing.set(1, 1 as unknown as undefined), 'KV_INVALID_VALUE');
    const silent = db.collection('silent', {
      schema: { '~standard': { ...standard, validate: () => ({ issues: [] }) } },
    });
    await rejects(silent.set(1, 1), 'KV_INVALID_VALUE');
  }));

test('an invalid schema is refused', async () => {
  const schemas = [
    {},
    null,
    1,
    { '~standard': { version: 2, vendor: 'x', validate } },
    { '~standard': { version: 1, vendor: 'x' } },
  ];
  for (const schema of schemas as unknown as StandardSchema[]) {
    await rejects(open('x', { storage: 'memory', schema }), 'KV_INVALID_ARGUMENT');
    await withMemory({}, async (db) => {
      assert.throws(() => db.collection('x', { schema }), code('KV_INVALID_ARGUMENT'));
    });
  }
});

test('a schema belongs to the handle, not to the file', () =>
  withPath(async (path) => {
    const strict = await open(path, { schema: z.string() });
    await strict.set(1, 'a');
    await strict.close();
    const free = await open(path);
    await free.set(1, 5);
    await free.close();
    const again = await open(path, { schema: z.string() });
    assert.equal(await again.get(1), 5);
    await again.close();
  }));
