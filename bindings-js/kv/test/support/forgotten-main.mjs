// A process with a callable garbage collector: whatever it opens and drops must be released.
import assert from 'node:assert/strict';
import process from 'node:process';
import { open } from 'mangrove-kv';

const gc = globalThis.Bun ? () => globalThis.Bun.gc(true) : globalThis.gc;
/** A conservative collector, which takes words on the stack for references, keeps a few objects. */
const FEW = 8;

const db = await open('test', { storage: 'memory', durability: 'none' });
await db.setMany(Array.from({ length: 3000 }, (_, key) => [key, { text: 'x'.repeat(100), key }]));
// Whatever is attached to this signal lives as long as the process.
const { signal } = new AbortController();

async function collect(isDone) {
  for (let tries = 0; tries < 100; tries++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 5));
    if (await isDone()) return;
  }
  assert.fail('something is kept');
}

const snapshots = async () => (await db.stats()).openSnapshots;

async function givesBack(count, make) {
  // In a separate function: nothing in this frame may refer to the created objects.
  await (async () => {
    for (let left = count; left > 0; left--) {
      // Each of them sees a different version.
      await db.set(0, left);
      await make();
    }
  })();
  await collect(async () => (await snapshots()) <= FEW);
}

const modes = {
  async transactions() {
    await givesBack(500, () => db.begin().get(1));
    await givesBack(500, () => db.begin({ signal, timeout: Infinity }).get(1));
    await givesBack(500, () => db.begin({ mode: 'readonly', signal }).get(1));
    await givesBack(500, async () => {
      await db.begin({ timeout: 100_000 }).collection('other').set(1, 1);
    });
  },
  /** What is forgotten takes no more memory than what ended: a timer or a listener would. */
  async memory() {
    const COUNT = 20_000;
    const heapAfter = async (begin, end) => {
      await (async () => {
        for (let left = COUNT; left > 0; left--) {
          const tx = begin();
          await tx.get(1);
          if (end) tx.rollback();
          // A session has room for 65,536.
          if (left % 5000 === 0) await collect(async () => true);
        }
      })();
      await collect(async () => (await snapshots()) <= FEW);
      for (let round = 0; round < 5; round++) await collect(async () => true);
      return process.memoryUsage().heapUsed;
    };
    for (const options of [{}, { signal }, { mode: 'readonly' }, { isolation: 'snapshot', timeout: 1_000_000 }]) {
      const begin = () => db.begin(options);
      await heapAfter(begin, true);
      const ended = await heapAfter(begin, true);
      const forgotten = await heapAfter(begin, false);
      assert.ok(
        forgotten - ended < 100 * COUNT,
        `${(forgotten - ended) / COUNT} bytes each remain with ${JSON.stringify(options)}`,
      );
    }
  },
  async snapshots() {
    await givesBack(300, () => db.snapshot().get(1));
    await givesBack(300, () => db.snapshot().collection('other').get(1));
    await givesBack(300, () => db.snapshot().sync.get(1));
    await givesBack(300, () => db.sync.snapshot().get(1));
    await givesBack(300, () => db.sync.snapshot().collection('other').get(1));
  },
  async iterators() {
    await givesBack(300, () => db.entries().next());
    await givesBack(300, () => db.keys({ signal }).next());
    await givesBack(300, () =>
      db
        .entries({ meta: true })
        .map((entry) => entry.key)
        .next(),
    );
    await givesBack(300, () => db.sync.values().next());
  },
  /** Changes without a follower are not kept in memory. */
  async watches() {
    const value = 'x'.repeat(1 << 20);
    const write = async () => {
      for (let left = 40; left > 0; left--) await db.set('large', value);
      return (await db.stats()).memorySize;
    };
    const before = await write();
    await (async () => {
      for (let left = 100; left > 0; left--) {
        db.watch({ signal });
        db.changes({ signal });
        db.watch();
        db.subscribe({}, () => {}).unsubscribe();
      }
    })();
    // A single watch that a stale word on the stack still refers to keeps everything, so other
    // calls overwrite the stack.
    for (let round = 0; round < 20; round++) {
      await db.setMany([[round, round]]);
      await collect(async () => true);
    }
    const after = await write();
    assert.ok(after < before + (16 << 20), `${before} bytes before, ${after} after`);
  },
  async backups() {
    const sizes = [];
    for (let round = 0; round < 4; round++) {
      await givesBack(100, () => db.backup().getReader().read());
      await givesBack(100, () => db.backup({ signal }).getReader().read());
      sizes.push((await db.stats()).memorySize);
    }
    // Each backup takes 256 KiB, and all of a round may exist at once.
    assert.ok(sizes[3] - sizes[0] < 200 << 18, `the memory grows: ${sizes}`);
    const readers = Array.from({ length: 257 }, () => db.backup().getReader());
    const read = await Promise.allSettled(readers.map((reader) => reader.read()));
    const refused = read.filter(({ status }) => status === 'rejected');
    assert.ok(refused.length > 0 && refused.length <= 1 + FEW, `${refused.length} were refused`);
    for (const { reason } of refused) {
      assert.equal(reason.code, 'KV_TOO_MANY_OPEN');
      assert.match(reason.message, /256 open backups.*cancel/);
    }
    await Promise.all(readers.slice(0, 1 + FEW).map((reader) => reader.cancel()));
    assert.equal((await db.backup().getReader().read()).done, false);
  },
  /** Checks run to completion even if they are not awaited, and hold nothing afterwards. */
  async checks() {
    const stop = new AbortController();
    for (let left = 100; left > 0; left--) {
      void db.verify();
      void db.layout();
      db.verify({ signal: stop.signal }).catch(() => {});
      db.layout({ signal: stop.signal }).catch(() => {});
    }
    stop.abort();
    await collect(async () => (await snapshots()) === 0);
  },
};

await modes[process.argv[2]]();
process.stdout.write('given back\n');
await db.close();
