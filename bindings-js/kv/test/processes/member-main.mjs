// A process or thread that shares databases: it does what the test asks in lines of JSON. Started with
// a path, it opens that one, writes and has nothing more to do.
import { createHash } from 'node:crypto';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { isMainThread, parentPort } from 'node:worker_threads';
import { destroy, open } from 'mangrove-kv';

const handles = new Map();
const snapshots = new Map();
const iterators = new Map();
const watches = new Map();
const loads = new Map();

function say(message) {
  if (isMainThread) process.stdout.write(`${JSON.stringify(message)}\n`);
  else parentPort.postMessage(message);
}

function plainError({ code, message, retryable }) {
  return { code, message: String(message), retryable };
}

/** Options that are not JSON. */
function toOptions({ key, upgradeTo, ...options } = {}) {
  if (key !== undefined) options.encryption = { key: createHash('sha256').update(key).digest() };
  if (upgradeTo !== undefined) {
    options.version = upgradeTo;
    options.upgrade = async (tx, from) => {
      await tx.set(['upgrade', upgradeTo, process.pid], from);
    };
  }
  return { share: true, ...options };
}

function dbOf(handle) {
  const db = handles.get(handle);
  if (db === undefined) throw new Error(`there is no handle ${handle}`);
  return db;
}

/** Resolves when what was requested before has begun. */
async function begun(handle) {
  await new Promise((resolve) => setTimeout(resolve));
  await dbOf(handle).has('anything');
}

async function readUntil(name, count) {
  const { commits, ended } = watches.get(name);
  while (commits.length < count) {
    if (ended.error !== undefined) throw ended.error;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return commits;
}

const operations = {
  async open(handle, path, options) {
    const db = await open(path, toOptions(options));
    const closed = { reason: undefined };
    db.addEventListener('close', ({ reason }) => {
      closed.reason = reason;
    });
    handles.set(handle, db);
    return process.pid;
  },
  async close(handle) {
    const db = dbOf(handle);
    handles.delete(handle);
    await db.close();
  },
  status: (handle) => dbOf(handle).status,
  destroy: (_, path) => destroy(path),
  /** A method with arguments and a result of JSON. */
  call: (handle, method, ...args) => dbOf(handle)[method](...args),
  fill: (handle, key, length) => dbOf(handle).set(key, new Uint8Array(length).fill(7)),
  list: (handle, prefix) =>
    dbOf(handle)
      .entries(prefix === undefined ? {} : { prefix })
      .toArray(),
  /** Increments a counter in as many transactions. */
  async add(handle, key, times) {
    let attempts = 0;
    for (let count = 0; count < times; count++) {
      await dbOf(handle).transaction(
        async (tx) => {
          attempts++;
          const old = (await tx.get(key)) ?? 0;
          await tx.set(key, old + 1);
        },
        // However many conflicts there are.
        { maxRetries: 10_000 },
      );
    }
    return attempts;
  },
  /** Writes without end, each number once, and says which of them are acknowledged. */
  load(handle, name, durability = 'strict') {
    const state = { isOn: true, done: undefined, failures: [] };
    loads.set(name, state);
    state.done = (async () => {
      for (let n = 0; state.isOn; n++) {
        try {
          // A write that is executed twice is a conflict.
          const batch = dbOf(handle).batch().check([name, n], null).set([name, n], n);
          await batch.commit({ durability });
          say({ acknowledged: name, n });
        } catch (error) {
          state.failures.push(plainError(error));
        }
      }
    })();
  },
  async stop(_, name) {
    const state = loads.get(name);
    state.isOn = false;
    await state.done;
    return state.failures;
  },
  /** Collects commits. */
  async watch(handle, name, options) {
    const [commits, ended] = [[], { error: undefined }];
    watches.set(name, { commits, ended });
    (async () => {
      for await (const { version, changes } of dbOf(handle).changes(options)) commits.push({ version, changes });
    })().catch((error) => {
      ended.error = error;
    });
    await begun(handle);
  },
  watched: (_, name, count) => readUntil(name, count),
  async subscribe(handle, name, options) {
    const commits = [];
    watches.set(name, { commits, ended: { error: undefined } });
    dbOf(handle).subscribe(options, (commit) => {
      commits.push({ version: commit.version, changes: commit.changes });
    });
    await begun(handle);
  },
  snapshot(handle, name) {
    snapshots.set(name, dbOf(handle).snapshot());
  },
  snapshotCall: (_, name, method, ...args) => snapshots.get(name)[method](...args),
  iterate(handle, name, options) {
    iterators.set(name, dbOf(handle).entries(options)[Symbol.asyncIterator]());
  },
  async next(_, name) {
    const { value, done } = await iterators.get(name).next();
    return done === true ? null : value;
  },
  /** Keeps the thread from doing anything else. */
  hang(_, ms) {
    for (const end = Date.now() + ms; Date.now() < end; );
  },
  /** Gives the process a title of this length; returns the length that it got. */
  title(_, length) {
    Object.defineProperty(process, 'title', { value: 'x'.repeat(length) });
    return process.title.length;
  },
  memory: () => process.memoryUsage().rss,
  clients: async (handle) => (await dbOf(handle).stats()).clients,
  exit: (_, code) => process.exit(code),
};

async function answer({ id, handle, operation, args }) {
  try {
    say({ id, value: (await operations[operation](handle, ...args)) ?? null });
  } catch (error) {
    say({ id, error: plainError(error) });
  }
}

const [path, ...others] = isMainThread ? process.argv.slice(2) : [];
if (path !== undefined) {
  const db = await open(path, { share: true });
  await db.set(['left', process.pid], 1);
  for (const other of others) await (await open(other, { share: true })).set(['left', process.pid], 1);
  say('nothing left to do');
} else if (isMainThread) {
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => void answer(JSON.parse(line)));
  // The test has ended.
  lines.on('close', () => process.exit());
} else {
  parentPort.on('message', (message) => void answer(message));
}
