// `replicate` as programs use it: in the background, with its states and events.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { KvError, keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MemoryLog, MemoryServer, MemorySnapshotStore, replicate } from '@mangrove-kv/replication';
import type {
  Replication,
  ReplicationConflict,
  ReplicationOptions,
  ReplicationProgress,
} from '@mangrove-kv/replication';
import { chance, code, withPath } from '../../kv/test/support/kit.ts';

const collections = { notes: {}, accounts: { mode: 'strict' } } as const;

// Replication keeps no process alive while it waits to try again.
const alive = setInterval(() => undefined, 1000);
after(() => clearInterval(alive));

interface Node {
  readonly db: Database;
  readonly replication: Replication;
}

async function start(server: MemoryServer, options: Partial<ReplicationOptions> = {}): Promise<Node> {
  const db = await open('node', { storage: 'memory', feed: true });
  return { db, replication: await replicate(db, { log: new MemoryLog(server), collections, ...options }) };
}

async function stop(...nodes: readonly Node[]): Promise<void> {
  for (const { db, replication } of nodes) {
    await replication.close();
    await db.close();
  }
}

/** Waits for a state; fails only with the test's own time limit. */
function until(
  replication: Replication,
  isReached: (state: ReplicationProgress) => boolean,
): Promise<ReplicationProgress> {
  return new Promise((resolve) => {
    let stopListening = (): void => undefined;
    const check = (): void => {
      if (!isReached(replication.state)) return;
      stopListening();
      resolve(replication.state);
    };
    stopListening = replication.subscribe(check);
    check();
  });
}

/** The value of an entry, as soon as it is this one. */
async function arrives(db: Database, key: string, value: unknown): Promise<void> {
  for await (const _ of db.collection('notes').watch({ gte: key, lte: key, initial: true })) {
    if (JSON.stringify(await db.collection('notes').get(key)) === JSON.stringify(value)) break;
  }
}

test('two databases follow each other', async () => {
  const server = new MemoryServer();
  const [a, b] = [await start(server), await start(server)];
  await a.db.collection('notes').set('one', { text: 'eins' });
  await arrives(b.db, 'one', { text: 'eins' });
  await b.db.collection('notes').set('one', { text: 'uno' });
  await arrives(a.db, 'one', { text: 'uno' });
  await b.db.collection('other').set('stays', 'here');
  await Promise.all([a.replication.flush(), b.replication.flush()]);
  const state = await until(a.replication, ({ status, pending }) => status === 'live' && pending === 0);
  assert.ok(state.position > 0 && state.lastError === undefined);
  assert.deepEqual(await a.db.collections(), ['notes']);
  await stop(a, b);
  assert.equal(a.replication.state.status, 'stopped');
});

test('a hidden page sends bursts too, although its timers hardly run', async () => {
  const server = new MemoryServer();
  const [hidden, other] = [await start(server), await start(server)];
  await Promise.all([hidden, other].map(({ replication }) => until(replication, ({ status }) => status === 'live')));
  const { setTimeout: real } = globalThis;
  const slow = (fn: () => void, ms = 0): unknown => real(fn, ms + 600_000);
  Object.assign(globalThis, { setTimeout: slow, document: { visibilityState: 'hidden' } });
  try {
    const notes = hidden.db.collection('notes');
    for (let number = 0; number < 100; number++) {
      await notes.set(`burst ${number}`, number);
      // Most commits come right after the record of an earlier one.
      for (let turns = 0; turns < 5; turns++) await new Promise((resolve) => setImmediate(resolve));
    }
    await arrives(other.db, 'burst 99', 99);
  } finally {
    Object.assign(globalThis, { setTimeout: real });
    delete (globalThis as { document?: unknown }).document;
  }
  await stop(hidden, other);
});

test('a device whose wakes are lost reads the log again soon', async () => {
  const server = new MemoryServer({ isWakeLost: () => true });
  const { setTimeout: real } = globalThis;
  // The poll of a device that was woken long ago never comes.
  Object.assign(globalThis, {
    setTimeout: (fn: () => void, ms = 0): unknown => real(fn, ms > 5000 ? ms + 600_000 : ms),
  });
  try {
    const [a, b] = [await start(server), await start(server)];
    await Promise.all([a, b].map(({ replication }) => until(replication, ({ status }) => status === 'live')));
    await a.db.collection('notes').set('unheard', 1);
    await arrives(b.db, 'unheard', 1);
    await stop(a, b);
  } finally {
    Object.assign(globalThis, { setTimeout: real });
  }
});

test('a database without a feed is compared at each start, and followed from then on', async () => {
  await withPath(async (path) => {
    const server = new MemoryServer();
    const b = await start(server);
    for (const [before, after] of [
      ['one', 'two'],
      ['three', 'four'],
    ] as const) {
      const db = await open(path);
      await db.collection('notes').set(before, 1);
      const replication = await replicate(db, { log: new MemoryLog(server), collections });
      await replication.flush();
      await arrives(b.db, before, 1);
      await db.collection('notes').set(after, 2);
      await arrives(b.db, after, 2);
      await stop({ db, replication });
    }
    assert.equal(server.records.length, 4);
    await stop(b);
  });
});

test('the default collection follows the log like others, with the options of open', async () => {
  const server = new MemoryServer();
  const codecs = { key: keyCodecs.string, value: valueCodecs.json<{ readonly n: number }>() };
  const options = { ...codecs, indexes: { byN: { key: ({ n }: { readonly n: number }) => n } } };
  const startOne = async () => {
    const db = await open('node', { storage: 'memory', feed: true, ...options });
    return {
      db,
      replication: await replicate(db, {
        log: new MemoryLog(server),
        collections: { '': { ...options, prefixModes: [{ prefix: 'strict/', mode: 'strict' }] }, notes: {} },
      }),
    };
  };
  const [a, b] = [await startOne(), await startOne()];
  const heard: unknown[] = [];
  const changes = (async () => {
    for await (const { changes: all } of b.db.changes({ since: 0 }))
      for (const each of all) if (each.collection === '' && each.type === 'set') heard.push(each.key, each.value);
  })();
  await a.db.set('one', { n: 1 });
  await a.replication.flush();
  await b.replication.transaction(async (tx) => {
    const { n } = (await tx.collection(b.db).get('one')) as { readonly n: number };
    await tx.collection(b.db).set('strict/two', { n: n + 1 });
  });
  await assert.rejects(
    b.replication.transaction((tx) => tx.collection(b.db).set('one', { n: 3 })),
    code('KV_REPLICATION_MODE'),
  );
  await a.replication.transaction(() => undefined);
  for (const { db } of [a, b]) {
    assert.deepEqual(await db.entries().toArray(), [
      ['one', { n: 1 }],
      ['strict/two', { n: 2 }],
    ]);
    assert.deepEqual(await db.index('byN').keys({ gte: 2 }).toArray(), ['strict/two']);
  }
  await Promise.all([a, b].map(({ replication, db }) => replication.close().then(() => db.close())));
  await changes;
  assert.deepEqual(heard, ['one', { n: 1 }, 'strict/two', { n: 2 }]);
});

test('writes while records wait for the log gather into few records', async () => {
  let isUnreachable = true;
  const a = await start(new MemoryServer({ isUnreachable: () => isUnreachable }));
  const notes = a.db.collection('notes');
  for (let [nth, end] = [0, performance.now() + 3000]; performance.now() < end; nth++) {
    await notes.set(nth, nth);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const { status, pending } = a.replication.state;
  assert.equal(status, 'offline');
  // One for each 100 ms would be 30.
  assert.ok(pending >= 1 && pending <= 12, `${pending} records`);
  isUnreachable = false;
  await a.replication.flush();
  assert.equal(a.replication.state.pending, 0);
  await stop(a);
});

test('writes of a burst gather into few records while the log answers', async () => {
  const a = await start(new MemoryServer());
  const notes = a.db.collection('notes');
  const begin = performance.now();
  let nth = 0;
  for (; performance.now() - begin < 2000; nth += 2) {
    await Promise.all([notes.set(nth, nth), notes.set(nth + 1, nth)]);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await a.replication.flush();
  const { position } = a.replication.state;
  // At most one for each 100 ms, and a few at the beginning and the end.
  const most = (performance.now() - begin) / 100 + 5;
  assert.ok(position >= 1 && position <= most, `${nth} commits in ${position} records, instead of ${most}`);
  await stop(a);
});

test('everything works offline, and is sent later', async () => {
  let isOffline = true;
  const server = new MemoryServer({ isUnreachable: () => isOffline });
  const [a, b] = [await start(server), await start(server)];
  const states: string[] = [];
  a.replication.addEventListener('state', ({ state }) => states.push(state.status));
  await a.db.collection('notes').set('one', 1);
  const offline = await until(a.replication, ({ status, pending }) => status === 'offline' && pending === 1);
  assert.equal(offline.lastError?.code, 'KV_LOG_UNAVAILABLE');
  const controller = new AbortController();
  const waiting = assert.rejects(a.replication.flush({ signal: controller.signal }), /enough/);
  controller.abort(new Error('enough'));
  await waiting;
  isOffline = false;
  await arrives(b.db, 'one', 1);
  await a.replication.flush();
  await until(a.replication, ({ status, lastError }) => status === 'live' && lastError === undefined);
  assert.ok(states.includes('offline') && states.includes('live'));
  await stop(a, b);
});

test('strict transactions wait for the log, and conflict with each other only', async () => {
  const server = new MemoryServer();
  const nodes = [await start(server), await start(server), await start(server)];
  await Promise.all(
    nodes.flatMap(({ db, replication }, index) =>
      [0, 1, 2, 3].map(async (count) => {
        await db.collection('notes').set(`${index} ${count}`, true);
        await replication.transaction((tx) =>
          tx.collection<string, number>('accounts').update('total', (old = 0) => old + 1),
        );
      }),
    ),
  );
  for (const { db, replication } of nodes) {
    await replication.flush();
    assert.equal(await db.collection('accounts').get('total'), 12);
  }
  await assert.rejects(
    nodes[0]!.replication.transaction((tx) => tx.collection('notes').set('x', 1)),
    code('KV_REPLICATION_MODE'),
  );
  await stop(...nodes);
  await assert.rejects(
    nodes[0]!.replication.transaction(() => 1),
    code('KV_CLOSED'),
  );
  await assert.rejects(nodes[0]!.replication.flush(), code('KV_CLOSED'));
});

test('an entry that was purged while replication was off and the clock ahead comes back by itself', async () => {
  await withPath(async (path) => {
    const server = new MemoryServer();
    const a = await start(server);
    await a.db.collection('notes').set('k', 'for an hour', { expireIn: 3_600_000 });
    await a.replication.flush();
    const log = (): MemoryLog => new MemoryLog(server);
    let db = await open(path, { feed: true });
    let replication = await replicate(db, { log: log(), collections });
    await arrives(db, 'k', 'for an hour');
    await replication.close();
    const { now } = Date;
    Date.now = () => now() + 7_200_000;
    try {
      await db.purgeExpired();
    } finally {
      Date.now = now;
    }
    assert.equal(await db.collection('notes').has('k'), false);
    await db.close();
    db = await open(path, { feed: true });
    replication = await replicate(db, { log: log(), collections });
    await arrives(db, 'k', 'for an hour');
    assert.equal(await a.db.collection('notes').get('k'), 'for an hour');
    await replication.close();
    await db.close();
    await stop(a);
  });
});

for (const feed of [false, true]) {
  test(`an entry that a start with the clock ahead has found purged comes back by itself when the clock is right, ${feed ? 'with a new collection' : 'without a feed'}`, async () => {
    await withPath(async (path) => {
      const { now } = Date;
      let offset = 0;
      const server = new MemoryServer({ serverTime: now });
      const a = await start(server);
      await a.db.collection('notes').set('k', 'for an hour', { expireIn: 3_600_000 });
      await a.replication.flush();
      let db = await open(path, { feed });
      let replication = await replicate(db, { log: new MemoryLog(server), collections });
      await arrives(db, 'k', 'for an hour');
      await replication.close();
      Date.now = () => now() + offset;
      try {
        offset = 7_200_000;
        await db.purgeExpired();
        await db.close();
        db = await open(path, { feed });
        // What has to be compared for the first time takes everything with it.
        replication = await replicate(db, {
          log: new MemoryLog(server),
          collections: feed ? { ...collections, new: {} } : collections,
        });
        await replication.flush();
        assert.equal(await db.collection('notes').has('k'), false);
        offset = 0;
        await arrives(db, 'k', 'for an hour');
      } finally {
        Date.now = now;
      }
      assert.equal(await a.db.collection('notes').get('k'), 'for an hour');
      await replication.close();
      await db.close();
      await stop(a);
    });
  });
}

test('the loser of a conflict can write a merged value, also after a restart', async () => {
  await withPath(async (path) => {
    let isOffline = false;
    const server = new MemoryServer({ isUnreachable: () => isOffline });
    const b = await start(server);
    let db = await open(path, { feed: true });
    let replication = await replicate(db, {
      log: new MemoryLog(server),
      collections,
      resolve: () => {
        throw new Error('the application is not ready');
      },
    });
    const failed = new Promise<string>((resolve) =>
      replication.addEventListener('error', ({ error }) => resolve(error.message), { once: true }),
    );
    await until(replication, ({ status }) => status === 'live');
    isOffline = true;
    await db.collection('notes').set('k', ['mine']);
    await until(replication, ({ pending }) => pending === 1);
    await b.db.collection('notes').set('k', ['theirs']);
    await until(b.replication, ({ pending }) => pending === 1);
    const conflicted = new Promise<ReplicationConflict>((resolve) =>
      replication.addEventListener('conflict', ({ conflict }) => resolve(conflict), { once: true }),
    );
    isOffline = false;
    assert.deepEqual(await conflicted, { collection: 'notes', key: 'k', mine: ['mine'], theirs: ['theirs'] });
    assert.match(await failed, /not ready/);
    await replication.close();
    await db.close();
    db = await open(path, { feed: true });
    const seen: ReplicationConflict[] = [];
    replication = await replicate(db, {
      log: new MemoryLog(server),
      collections,
      resolve: async (conflict) => {
        seen.push(conflict);
        await db.collection('notes').set('k', [...(conflict.mine as string[]), ...(conflict.theirs as string[])]);
      },
    });
    await arrives(b.db, 'k', ['mine', 'theirs']);
    assert.equal(seen.length, 1);
    await replication.close();
    await db.close();
    await stop(b);
  });
});

test('a database is replicated once, and replication ends with it', async () => {
  const server = new MemoryServer();
  const { db, replication } = await start(server);
  await assert.rejects(replicate(db, { log: new MemoryLog(server), collections }), code('KV_LOCKED'));
  await until(replication, ({ status }) => status === 'live');
  await db.close();
  await until(replication, ({ status }) => status === 'stopped');
  await replication.close();
  await assert.rejects(
    replicate(db, { log: new MemoryLog(server), collections: { 'mangrove:x': {} } }),
    code('KV_INVALID_ARGUMENT'),
  );
  await assert.rejects(replicate(db, { collections }), code('KV_INVALID_ARGUMENT'));
  await assert.rejects(
    replicate(db, { log: new MemoryLog(server), collections: { x: { mode: 'other' as never } } }),
    code('KV_INVALID_ARGUMENT'),
  );
});

test('a server that takes over stops the old one', async () => {
  const server = new MemoryServer();
  const old = await start(server, { exclusive: true });
  await old.db.collection('notes').set('one', 1);
  await old.replication.flush();
  const next = await start(server, { exclusive: true });
  await next.replication.flush();
  await old.db.collection('notes').set('two', 2);
  const { lastError } = await until(old.replication, ({ status }) => status === 'stopped');
  assert.equal(lastError?.code, 'KV_REPLICATION_FENCED');
  assert.deepEqual(await next.db.collection('notes').entries().toArray(), [['one', 1]]);
  await stop(old, next);
});

test('compaction, large values and a seal work together', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const key = await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, ['encrypt', 'decrypt']);
  const seal = { key, database: 'api' };
  const a = await start(server, { snapshots, seal });
  const large = new Uint8Array(400_000).fill(7);
  await a.db.collection('notes').set('large', large);
  for (let round = 0; round < 3; round++) {
    await a.db.collection('notes').set('round', `very secret ${round}`);
    assert.ok(await a.replication.compact());
  }
  for (const name of await snapshots.list('')) {
    const bytes = await new Response(
      (await snapshots.get(name)) as ReadableStream<Uint8Array<ArrayBuffer>>,
    ).arrayBuffer();
    assert.ok(!Buffer.from(bytes).includes('very secret'), name);
  }
  const b = await start(server, { snapshots, seal });
  await arrives(b.db, 'round', 'very secret 2');
  await until(b.replication, ({ status }) => status === 'live');
  assert.deepEqual(await b.db.collection('notes').get('large'), large);
  await stop(a, b);
});

test('followers and live queries see what arrives like other commits', async () => {
  const server = new MemoryServer();
  const [a, b] = [await start(server), await start(server)];
  const commits = b.db.changes();
  const waiting = commits.next();
  await b.db.collection('local').set('first', 0);
  assert.equal((await waiting).value?.changes[0]?.collection, 'local');
  await a.db.collection('notes').set('k', { n: 1 });
  const found: unknown[] = [];
  for await (const { changes } of commits) {
    found.push(...changes.filter(({ collection }) => collection === 'notes'));
    if (found.length > 0) break;
  }
  // With the application's codecs, although replication writes bytes.
  assert.deepEqual(found, [{ type: 'set', collection: 'notes', key: 'k', value: { n: 1 } }]);
  await stop(a, b);
});

for (const seed of [1, 2, 3]) {
  test(`databases that write and replicate at once converge over a log that fails, seed ${seed}`, async () => {
    const random = chance(seed);
    let isFailing = true;
    const happens = (probability: number) => (): boolean => isFailing && random() < probability;
    const server = new MemoryServer({
      isUnreachable: happens(0.02),
      isReplyLost: happens(0.02),
      isDuplicated: happens(0.1),
      isWakeLost: happens(0.3),
      delay: async () => {
        for (let turns = Math.floor(random() * 5); turns > 0; turns--)
          await new Promise((resolve) => setImmediate(resolve));
      },
    });
    const snapshots = new MemorySnapshotStore();
    const nodes = [
      await start(server, { snapshots }),
      await start(server, { snapshots }),
      await start(server, { snapshots }),
    ];
    const errors: string[] = [];
    for (const { replication } of nodes)
      replication.addEventListener('error', ({ error }) => errors.push(error.message));
    const pick = (): string => `key ${Math.floor(random() * 8)}`;
    await Promise.all(
      nodes.map(async ({ db, replication }, index) => {
        const notes = db.collection<string, string>('notes');
        for (let count = 0; count < 80; count++) {
          const chosen = random();
          if (chosen < 0.5) await notes.set(pick(), `${index}/${count}`);
          else if (chosen < 0.65) await notes.delete(pick());
          else if (chosen < 0.8)
            await db.transaction(
              async (tx) =>
                void (await tx
                  .collection(notes)
                  .set(pick(), `${await tx.collection(notes).get(pick())} and ${count}`.slice(0, 40))),
            );
          else if (chosen < 0.85) await notes.clear({ gte: pick() });
          else if (chosen < 0.95)
            await replication.transaction((tx) =>
              tx.collection<string, number>('accounts').update('total', (old = 0) => old + 1),
            );
          else await replication.compact().catch((error: { code: string }) => assert.match(error.code, /^KV_LOG_/));
          if (random() < 0.3) await new Promise((resolve) => setImmediate(resolve));
        }
      }),
    );
    isFailing = false;
    for (let round = 0; round < 2; round++) for (const { replication } of nodes) await replication.flush();
    const digest = ({ db }: Node): Promise<unknown[]> =>
      Promise.all(['notes', 'accounts'].map((name) => db.collection(name).entries().toArray()));
    const fresh = await start(server, { snapshots });
    await fresh.replication.flush();
    for (const node of nodes) assert.deepEqual(await digest(node), await digest(fresh));
    assert.deepEqual(errors, []);
    await stop(...nodes, fresh);
  });
}

test('a strict transaction whose answers are lost takes effect once', async () => {
  const server = new MemoryServer();
  for (const lost of [1, 2, 5]) {
    const log = new MemoryLog(server);
    const append = log.append.bind(log);
    let left = lost;
    log.append = async (...args) => {
      const position = await append(...args);
      if (left-- > 0) throw Object.assign(new Error('the answer is lost'), { code: 'KV_LOG_UNAVAILABLE' });
      return position;
    };
    const node = await start(server, { log });
    const before =
      (await node.replication.transaction((tx) => tx.collection<string, number>('accounts').get('balance'))) ?? 0;
    let runs = 0;
    const result = await node.replication.transaction(async (tx) => {
      runs++;
      return tx.collection<string, number>('accounts').update('balance', (old = 0) => old + 1);
    });
    assert.equal(result, before + 1);
    assert.equal(
      await node.db.collection<string, number>('accounts').get('balance'),
      before + 1,
      `${lost} answers lost`,
    );
    assert.equal(runs, 1);
    await stop(node);
  }
});

test('a strict transaction waits for its outcome while the log refuses a token that has expired', async () => {
  const server = new MemoryServer();
  const log = new MemoryLog(server);
  let refusals = 0;
  let isSent = false;
  for (const method of ['append', 'read', 'at'] as const) {
    const call = log[method].bind(log) as (...args: unknown[]) => Promise<unknown>;
    (log as unknown as Record<string, typeof call>)[method] = async (...args) => {
      if (isSent && refusals < 5) {
        refusals++;
        throw Object.assign(new Error('the token has expired'), { name: 'KvError', code: 'KV_LOG_REFUSED' });
      }
      const answer = await call(...args);
      if (method !== 'append' || isSent) return answer;
      isSent = true;
      throw Object.assign(new Error('the answer is lost'), { code: 'KV_LOG_UNAVAILABLE' });
    };
  }
  const node = await start(server, { log });
  let runs = 0;
  const result = await node.replication.transaction((tx) => {
    runs++;
    return tx.collection<string, number>('accounts').update('balance', (old = 0) => old + 1);
  });
  assert.deepEqual(
    [result, runs, refusals, await node.db.collection<string, number>('accounts').get('balance')],
    [1, 1, 5, 1],
  );
  await stop(node);
});

test('close waits for no call of the log that never answers', async () => {
  class Silent extends MemoryLog {
    isSilent = false;
    override read(...given: Parameters<MemoryLog['read']>): ReturnType<MemoryLog['read']> {
      return this.isSilent ? new Promise(() => undefined) : super.read(...given);
    }
  }
  const server = new MemoryServer();
  const log = new Silent(server);
  const { db, replication } = await start(server, { log });
  await replication.flush();
  log.isSilent = true;
  await db.collection('notes').set('k', 1);
  const flushed = assert.rejects(replication.flush(), code('KV_CLOSED'));
  await replication.close();
  await flushed;
  await db.close();
});

for (const how of ['flush', 'transaction', 'compact', 'reconnection'] as const) {
  test(`a device whose log has lost its history meanwhile notices it by ${how}`, async () => {
    /** Fails once. */
    class Broken extends MemoryLog {
      isBroken = false;
      #listener: ((isReconnected?: boolean) => void) | undefined;
      #check(): void {
        if (!this.isBroken) return;
        this.isBroken = false;
        throw new KvError('KV_LOG_UNAVAILABLE', 'the connection broke', { retryable: true });
      }
      override async append(...given: Parameters<MemoryLog['append']>): ReturnType<MemoryLog['append']> {
        this.#check();
        return super.append(...given);
      }
      override async read(...given: Parameters<MemoryLog['read']>): ReturnType<MemoryLog['read']> {
        this.#check();
        return super.read(...given);
      }
      override wake(listener: (isReconnected?: boolean) => void): () => void {
        this.#listener = listener;
        return super.wake(listener);
      }
      reconnect(): void {
        this.#listener?.(true);
      }
    }
    const server = new MemoryServer();
    const log = new Broken(server);
    const snapshots = new MemorySnapshotStore();
    const a = await start(server, { log, snapshots });
    for (let at = 0; at < 4; at++) {
      await a.db.collection('notes').set(`k${at}`, at);
      await a.replication.flush();
    }
    const repaired = new Promise((resolve) => a.replication.addEventListener('repair', resolve));
    server.loseHistory(server.records.at(-3)?.position as number);
    if (how === 'reconnection') log.reconnect();
    else log.isBroken = true;
    if (how === 'flush') await a.replication.flush();
    if (how === 'transaction') await a.replication.transaction(() => 1);
    if (how === 'compact') await a.replication.compact().catch(() => undefined);
    await repaired;
    const b = await start(server, { snapshots });
    await arrives(b.db, 'k3', 3);
    await stop(a, b);
  });
}
