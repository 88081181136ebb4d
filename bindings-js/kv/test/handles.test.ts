// Whatever way something ends, nothing stays open in the engine: no snapshot, scan, transaction, feed or backup.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open, valueCodecs } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';
import { liveQuery, liveValue, liveWindow, mirror } from 'mangrove-kv/live';
import type { LiveQuery } from 'mangrove-kv/live';
import { headOf } from './support/requests.ts';
import { Op } from '../src/wire/opcodes.ts';

interface Row {
  readonly n: number;
  readonly group: number;
  readonly email?: string;
  readonly text: string;
}
type Rows = Database<string, Row>;

const INDEXES = {
  group: { key: ({ group }: Row) => group },
  parts: { key: ({ group }: Row) => [group, group + 3], multi: true },
  email: { key: ({ email }: Row) => email, unique: true },
} as const;
/** More than one reply of any read has. */
const ROWS = 3000;
const row = (n: number): Row => ({ n, group: n % 7, text: 'x'.repeat(300) });
const keyOf = (n: number): string => `k${String(n).padStart(5, '0')}`;
const unreadable = {
  ...valueCodecs.structured<Row>(),
  decode: (): never => {
    throw new RangeError('unreadable');
  },
};

const passed = (): never => {
  throw new Error('the test ends this');
};
const fails = async (run: () => unknown): Promise<void> => {
  await assert.rejects(async () => {
    await run();
  });
};
const anInstant = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1));

async function shown<K, V>(query: LiveQuery<K, V>): Promise<() => void> {
  const stop = query.subscribe(() => undefined);
  while (query.getSnapshot().status === 'loading') await anInstant();
  return stop;
}

/** What reads alike: a collection, an index of it, and both in snapshots and transactions. */
type Readable = Pick<Rows, 'entries' | 'keys' | 'values' | 'count' | 'first' | 'last' | 'at' | 'forEach'>;

async function read(of: Readable): Promise<void> {
  for (const range of [{}, { reverse: true }, { offset: 5, limit: 400 }, { limit: 0 }, { limit: 1 }]) {
    await of.entries(range).toArray();
    await of.keys(range).toArray();
    await of.count(range);
    await of.first(range);
    await of.last(range);
    await of.at(-3, range);
  }
  for await (const each of of.values()) if (each.n > 0) break;
  await fails(() => of.forEach(passed));
  await fails(() => of.entries().map(passed).toArray());
  await of.entries().return!();
  const begun = of.keys();
  await begun.next();
  await begun.return!();
  const twice = of.values();
  await Promise.all([twice.next(), twice.next(), twice.return!()]);
  await fails(() => of.entries({ signal: AbortSignal.abort() }).toArray());
  const stop = new AbortController();
  const aborted = of.entries({ signal: stop.signal });
  await aborted.next();
  stop.abort();
  await fails(() => aborted.toArray());
  for (const verb of ['count', 'first', 'last'] as const) {
    const soon = new AbortController();
    const given = of[verb]({ signal: soon.signal });
    soon.abort();
    await given.catch(() => undefined);
  }
}

/** Reads another type of the same entries, which fails as nothing can be decoded. */
async function failToRead(of: Readable): Promise<void> {
  await fails(() => of.entries().toArray());
  await fails(() => of.values({ reverse: true }).next());
  await fails(() => of.first());
  await fails(() => of.at(7));
}

const USES: Record<string, (db: Rows, other: Collection<string, Row>) => Promise<unknown>> = {
  'reads of a collection': (db) => read(db),
  'reads of an index': (db) => read(db.index('group') as unknown as Readable),
  'reads of an index with several keys': (db) => read(db.index('parts') as unknown as Readable),
  'reads that cannot be decoded': async (_, other) => {
    await failToRead(other);
    await failToRead(other.index('group') as unknown as Readable);
    await fails(() => other.get(keyOf(1)));
    await fails(() => other.getMany([keyOf(1), keyOf(2)]));
    await fails(() => other.update(keyOf(1), (old) => old as Row));
  },
  'reads of ranges that are refused': async (db) => {
    const range = { gte: { no: 'key' } } as never;
    await fails(() => db.entries(range).toArray());
    await fails(() => db.count(range));
    await fails(() => db.index('group').entries(range).toArray());
    await fails(() => db.entries({ limit: -1 }).toArray());
    await fails(() => db.index('none').entries().toArray());
  },
  'a snapshot': async (db, other) => {
    const snapshot = db.snapshot();
    await read(snapshot);
    await failToRead(snapshot.collection(other));
    await snapshot.close();
    await db.snapshot().close();
    const lost = db.snapshot();
    const reading = lost.entries().toArray();
    await lost.close();
    await reading.catch(() => undefined);
  },
  'synchronous reads': async (db, other) => {
    for (const each of db.sync.values()) if (each.n > 0) break;
    [...db.sync.entries({ reverse: true })];
    assert.throws(() => [...db.sync.collection(other).values()]);
    for (const indexed of db.sync.index('group').entries()) if (indexed !== undefined) break;
    const snapshot = db.sync.snapshot();
    snapshot.get(keyOf(1));
    [...snapshot.keys()];
    snapshot.close();
    db.sync.transaction((tx) => tx.set(keyOf(1), row(1)));
    assert.throws(() => db.sync.transaction(passed));
    await anInstant();
  },
  'transactions that commit': async (db) => {
    await db.transaction(async (tx) => {
      await tx.set(keyOf(1), row(1));
      await tx.entries({ limit: 3 }).toArray();
      const before = tx.savepoint();
      await tx.delete(keyOf(2));
      await before.rollback();
      for await (const each of tx.values()) if (each.n > 0) break;
    });
    await db.transaction((tx) => tx.count(), { mode: 'readonly' });
    await db.transaction(() => undefined);
    const begun = db.begin();
    await begun.set(keyOf(3), row(3));
    await begun.commit();
  },
  'transactions that do not': async (db) => {
    await fails(() => db.transaction(passed));
    await fails(() =>
      db.transaction(async (tx) => {
        await tx.values().toArray();
        await tx.set(keyOf(1), row(1));
        passed();
      }),
    );
    await fails(() => db.transaction(() => new Promise(() => undefined), { timeout: 5 }));
    await fails(() => db.transaction(async (tx) => tx.get(keyOf(1)), { signal: AbortSignal.abort() }));
    const stop = new AbortController();
    const waiting = db.transaction(
      async (tx) => {
        await tx.get(keyOf(1));
        await new Promise(() => undefined);
      },
      { signal: stop.signal },
    );
    await anInstant();
    stop.abort();
    await fails(() => waiting);
    await db.set(keyOf(4), { ...row(4), email: 'a' });
    await fails(() => db.transaction((tx) => tx.set(keyOf(5), { ...row(5), email: 'a' })));
    db.begin().rollback();
    const begun = db.begin();
    await begun.get(keyOf(1));
    begun.rollback();
    const refused = db.begin();
    await refused.get(keyOf(1));
    await refused.set(keyOf(2), row(2));
    await db.set(keyOf(1), row(1));
    await fails(() => refused.commit());
  },
  'transactions that conflict': async (db) => {
    const count = (): Promise<void> =>
      db.transaction(async (tx) => {
        const old = await tx.get('count');
        await tx.set('count', row((old?.n ?? 0) + 1));
      });
    await Promise.all(Array.from({ length: 8 }, count));
    await db.delete('count');
    await fails(() =>
      db.transaction(
        async (tx) => {
          await tx.get(keyOf(1));
          await db.set(keyOf(1), row(1));
          await tx.set(keyOf(2), row(2));
        },
        { maxRetries: 1 },
      ),
    );
  },
  'writes that fail': async (db) => {
    await db.set(keyOf(4), { ...row(4), email: 'a' });
    await fails(() => db.set(keyOf(5), { ...row(5), email: 'a' }));
    await fails(() => db.update(keyOf(5), () => ({ ...row(5), email: 'a' })));
    await fails(() => db.update(keyOf(5), passed));
    await fails(() => db.getOrInsertComputed('none', passed));
    await fails(() => db.batch().check(keyOf(1), 1).set(keyOf(1), row(1)).commit());
    await fails(() => db.set('f', (() => undefined) as never));
  },
  'commits that are followed': async (db, other) => {
    for (const followed of [db.watch(), db.watch({ gte: keyOf(1), initial: true }), db.changes(), other.watch()]) {
      await db.set(keyOf(1), row(1));
      await followed.next().catch(() => undefined);
      const waiting = followed.next().catch(() => undefined);
      await followed.return();
      await waiting;
    }
    await db.watch().return();
    await fails(() => other.watch({ initial: true }).next());
    await fails(() => db.watch({ signal: AbortSignal.abort() }).next());
    const stop = new AbortController();
    const aborted = db.watch({ signal: stop.signal });
    const waiting = aborted.next();
    await anInstant();
    stop.abort();
    await fails(() => waiting);
    db.subscribe({}, () => undefined).unsubscribe();
    const listening = db.subscribe({ gte: keyOf(1) }, () => undefined);
    await db.set(keyOf(1), row(1));
    listening.unsubscribe();
  },
  'live queries': async (db, other) => {
    const queries = [
      liveQuery(db),
      liveQuery(db, { gte: keyOf(5), reverse: true, limit: 10 }),
      liveQuery(db.index('group'), { gte: 3 }),
      liveWindow(db, { limit: 50 }),
      liveQuery(other),
      liveQuery(other.index('group')),
    ];
    const stops = await Promise.all(queries.map((each) => shown<unknown, unknown>(each)));
    await db.set(keyOf(7), row(7));
    await anInstant();
    for (const stop of stops) stop();
    for (const each of queries) each.subscribe(() => undefined)();
    const window = liveWindow(db, { limit: 50 });
    const stop = await shown(window);
    for (const offset of [100, 1000, 0]) window.move(offset, 50);
    stop();
    const value = liveValue(db, (rows) => rows.count());
    const end = value.subscribe(() => undefined);
    await anInstant();
    end();
  },
  mirrors: async (db, other) => {
    const held = [
      mirror(db),
      mirror(db, { gte: keyOf(9) }),
      mirror(db, { index: 'group' }),
      mirror(db, { index: 'parts' }),
    ];
    for (const each of held) await each.ready;
    await db.set(keyOf(7), row(7));
    const query = liveQuery(db, { limit: 20 });
    const stop = await shown(query);
    for (const each of held) each.close();
    stop();
    for (const [source, range, maxBytes] of [
      [db, {}, 1000],
      [db, {}, 600_000],
      [db, { index: 'group' }, 1000],
      [other, {}, undefined],
      [other, { index: 'group' }, undefined],
    ] as const)
      await fails(() => mirror(source as Rows, range as never, { maxBytes }).ready);
    const closed = mirror(db);
    closed.ready.catch(() => undefined);
    closed.close();
    const late = mirror(db, { index: 'group' });
    late.ready.catch(() => undefined);
    await anInstant();
    late.close();
    await fails(() => late.ready);
  },
  'maintenance': async (db) => {
    await db.verify();
    await db.layout();
    await db.compact();
    for await (const piece of db.backup()) assert.ok(piece.length > 0);
    await db.backup().cancel();
    const backup = db.backup().getReader();
    await backup.read();
    await backup.cancel();
    await fails(() => db.verify({ onProgress: passed }));
    await fails(() => db.verify({ signal: AbortSignal.abort() }));
    for (const work of ['verify', 'layout', 'compact'] as const) {
      const given = new AbortController();
      await db[work]({ signal: given.signal, onProgress: () => given.abort() }).catch(() => undefined);
    }
    await fails(() => db.layout({ signal: AbortSignal.abort() }));
    const stopped = db.backup({ onProgress: passed });
    await fails(() => new Response(stopped).arrayBuffer());
    const stop = new AbortController();
    const aborted = db.backup({ signal: stop.signal }).getReader();
    await aborted.read();
    stop.abort();
    await fails(async () => {
      while (!(await aborted.read()).done);
    });
  },
  'streams of values': async (db) => {
    const files = db.collection<string, Uint8Array>('files', { value: valueCodecs.bytes });
    const bytes = new Uint8Array(3 << 20);
    await files.set('a', bytes);
    await new Response(await files.getStream('a')).arrayBuffer();
    await (await files.getStream('a'))!.cancel();
    const reader = (await files.getStream('a'))!.getReader();
    await reader.read();
    await reader.cancel();
    await files.getStream('none');
    await files.getRange('a', 5, 9);
    await files.setStream('b', new Blob([bytes]).stream());
    const broken = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        controller.enqueue(new Uint8Array(1 << 20));
        controller.error(new Error('the source fails'));
      },
    });
    await fails(() => files.setStream('c', broken));
  },
  'indexes that are built and dropped': async (db) => {
    const wait = { whenIncomplete: 'wait' } as const;
    const indexed = (extra: object): Collection<string, Row> =>
      db.collection('', { indexes: { ...INDEXES, ...extra } });
    const first = indexed({ n: { key: ({ n }: Row) => n } }).index('n', wait);
    // These wait for the build: some of them until it is done, others give up.
    const reading = first.entries().toArray();
    await first.entries().return!();
    const stop = new AbortController();
    const aborted = first.keys({ signal: stop.signal });
    const next = aborted.next();
    await fails(() => first.entries({ signal: AbortSignal.abort() }).next());
    stop.abort();
    await fails(() => next);
    const late = mirror(indexed({ n: { key: ({ n }: Row) => n } }), { index: 'n' });
    late.ready.catch(() => undefined);
    late.close();
    assert.equal((await reading).length, ROWS);
    await fails(() =>
      indexed({ thrown: { key: passed } })
        .index('thrown', wait)
        .entries()
        .toArray(),
    );
    await fails(() =>
      indexed({ other: { key: ({ n }: Row) => n } })
        .index('other')
        .entries()
        .toArray(),
    );
    const same = { key: ({ text }: Row) => text, unique: true };
    await fails(() => indexed({ same }).index('same', wait).count());
    await indexed({}).index('group').count();
  },
};

for (const thread of ['same', 'worker'] as const) {
  for (const [what, use] of Object.entries(USES)) {
    if (thread === 'worker' && what === 'synchronous reads') continue;
    test(`${what}, engine in ${thread === 'same' ? 'this thread' : 'a worker'}`, async () => {
      const db: Rows = await open<string, Row, Row>('handles', {
        storage: 'memory',
        thread,
        indexes: INDEXES,
        feed: true,
      });
      // Timers of the package let a process end.
      const alive = setInterval(() => undefined, 1000);
      try {
        await db.setMany(Array.from({ length: ROWS }, (_, n) => [keyOf(n), row(n)] as const));
        const followed = followedBy(db);
        await use(db, db.collection('', { value: unreadable, indexes: INDEXES }));
        // Requests that nobody waits for come a little later.
        const look = async (): Promise<number> => followed.size + (await db.stats()).openSnapshots;
        for (let tries = 0; tries < 400 && (await look()) > 0; tries++)
          await new Promise((resolve) => setTimeout(resolve, 5));
        assert.deepEqual([...followed], [], 'feeds are left open');
        assert.equal((await db.stats()).openSnapshots, 0, 'snapshots, scans or transactions are left open');
        assert.equal(await db.count(), ROWS, 'what was done is what is tested');
      } finally {
        clearInterval(alive);
        await db.close();
      }
    });
  }
}

/** Ids of the feeds that are open in the engine, as requests say. */
function followedBy(db: Rows): ReadonlySet<number> {
  interface Sends {
    request: (write: never, read: never) => Promise<unknown>;
  }
  const { connection } = (db as unknown as { verbs: { target: { connection: Sends } } }).verbs.target;
  const followed = new Set<number>();
  const { request } = connection;
  connection.request = (write, read) => {
    const { op, numbers } = headOf(write);
    if (op === Op.changesOpen) followed.add(numbers[0]!);
    if (op === Op.changesClose) followed.delete(numbers[0]!);
    return request.call(connection, write, read);
  };
  return followed;
}
