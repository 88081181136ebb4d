// The dedicated worker's part of the probes: commands, called from page.js.
const handles = new Map();
const channels = new Map();
const heard = [];
const sleep = (ms) =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
const describe = (error) => `${error.name}: ${error.message}`;
const attempt = (run) => {
  try {
    return run() ?? 'ok';
  } catch (error) {
    return describe(error);
  }
};

async function fileOf(name) {
  return (await navigator.storage.getDirectory()).getFileHandle(name, { create: true });
}

const commands = {
  facts() {
    return {
      broadcastChannel: typeof BroadcastChannel === 'function',
      locks: typeof navigator.locks?.request === 'function',
      getDirectory: typeof navigator.storage?.getDirectory === 'function',
      createSyncAccessHandle:
        typeof FileSystemFileHandle === 'function' && 'createSyncAccessHandle' in FileSystemFileHandle.prototype,
      move: typeof FileSystemFileHandle === 'function' && 'move' in FileSystemFileHandle.prototype,
      readwriteUnsafe:
        typeof FileSystemSyncAccessHandle === 'function' && 'mode' in FileSystemSyncAccessHandle.prototype,
      sharedWorker: typeof SharedWorker === 'function',
      indexedDb: typeof indexedDB === 'object',
      nestedWorker: typeof Worker === 'function',
    };
  },

  /** Takes a handle, a lock and a channel, each if requested. */
  async hold({ file, lock, channel, beat }) {
    if (lock) {
      await new Promise((resolve, reject) => {
        navigator.locks
          .request(lock, () => {
            resolve();
            return new Promise(() => {});
          })
          .catch((error) => {
            heard.push(`lock lost: ${error.name}`);
            reject(error);
          });
      });
    }
    if (file) handles.set(file, await (await fileOf(file)).createSyncAccessHandle());
    if (channel) {
      const opened = new BroadcastChannel(channel);
      channels.set(channel, opened);
      opened.onmessage = ({ data }) => {
        if (data.say !== undefined) heard.push(data.say);
      };
      let beats = 0;
      if (beat) setInterval(() => opened.postMessage({ beat: ++beats }), beat);
    }
    return 'held';
  },

  /** When the lock and the handle became available, by the system clock. */
  async watch({ file, lock, timeout = 20_000 }) {
    const found = { errors: [], attempts: 0 };
    const got =
      lock &&
      new Promise((resolve) => {
        navigator.locks
          .request(lock, { signal: AbortSignal.timeout(timeout) }, () => {
            found.lockAt = Date.now();
          })
          .then(resolve, (error) => {
            found.lockError = error.name;
            resolve();
          });
      });
    const end = Date.now() + timeout;
    while (file && found.handleAt === undefined && Date.now() < end) {
      found.attempts++;
      try {
        (await (await fileOf(file)).createSyncAccessHandle()).close();
        found.handleAt = Date.now();
      } catch (error) {
        const text = describe(error);
        if (!found.errors.includes(text)) found.errors.push(text);
        await sleep(2);
      }
    }
    await got;
    return found;
  },

  async steal({ lock }) {
    return navigator.locks.request(lock, { steal: true }, () => 'stolen').catch(describe);
  },

  async query() {
    const { held, pending } = await navigator.locks.query();
    return { held: held.map(({ name }) => name), pending: pending.map(({ name }) => name) };
  },

  async listen({ channel, ms }) {
    const opened = new BroadcastChannel(channel);
    let beats = 0;
    opened.onmessage = ({ data }) => {
      if (data.beat !== undefined) beats++;
    };
    await sleep(ms);
    opened.close();
    return beats;
  },

  say({ channel, words }) {
    const opened = new BroadcastChannel(channel);
    for (const say of words) opened.postMessage({ say });
    // Closing at once would be a different probe.
    setTimeout(() => opened.close(), 1000);
  },

  heard: () => heard,

  write: ({ file }) => attempt(() => handles.get(file).write(new Uint8Array(4096), { at: 0 })),

  /** Blocks for a while and then makes one call: by then its page may be gone. */
  busy({ file, ms, then }) {
    for (const end = performance.now() + ms; performance.now() < end; );
    const handle = handles.get(file);
    const bytes = new Uint8Array(100);
    const write = () => handle.write(bytes, { at: 0 });
    attempt(
      {
        'nothing': () => {},
        'read': () => handle.read(bytes, { at: 0 }),
        write,
        'truncate': () => handle.truncate(1),
        'flush': () => handle.flush(),
        'getSize': () => handle.getSize(),
        'close': () => handle.close(),
        'write if timers are set': () => setTimeout(() => {}) === 0 || write(),
      }[then],
    );
  },

  /** What the calls return when there is no room. */
  async full({ file }) {
    const handle = await (await fileOf(file)).createSyncAccessHandle();
    const chunk = new Uint8Array(65_536).fill(7);
    const found = { chunk: chunk.length };
    let at = 0;
    for (; at < 1 << 30; at += chunk.length) {
      const result = attempt(() => handle.write(chunk, { at }));
      if (result === chunk.length) continue;
      found.write = result;
      break;
    }
    found.writtenBytes = at;
    found.getSize = attempt(() => handle.getSize());
    found.flush = attempt(() => handle.flush());
    found.writeAgain = attempt(() => handle.write(chunk, { at }));
    found.writeOneByteMore = attempt(() => handle.write(new Uint8Array(1), { at: handle.getSize() }));
    found.overwriteInside = attempt(() => handle.write(chunk, { at: 0 }));
    found.truncateLonger = attempt(() => handle.truncate(handle.getSize() + (8 << 20)));
    found.sizeAfterTruncateLonger = attempt(() => handle.getSize());
    try {
      const other = await (await fileOf(`${file} other`)).createSyncAccessHandle();
      found.otherFile = 'opens';
      found.writeOtherFile = attempt(() => other.write(chunk, { at: 0 }));
      other.close();
    } catch (error) {
      found.otherFile = describe(error);
    }
    found.truncateShorter = attempt(() => handle.truncate(1 << 20));
    found.writeAfterTruncateShorter = attempt(() => handle.write(chunk, { at: 1 << 20 }));
    found.flushAtEnd = attempt(() => handle.flush());
    found.estimate = await navigator.storage.estimate();
    handle.close();
    return found;
  },

  async countHandles({ most }) {
    const opened = [];
    let error;
    while (opened.length < most && error === undefined) {
      await fileOf(`many ${opened.length}`)
        .then((file) => file.createSyncAccessHandle())
        .then(
          (handle) => opened.push(handle),
          (reason) => {
            error = describe(reason);
          },
        );
    }
    for (const handle of opened) handle.close();
    return { opened: opened.length, error: error ?? 'none' };
  },

  countMemories: ({ most }) => {
    const memories = [];
    const error = attempt(() => {
      while (memories.length < most) memories.push(new WebAssembly.Memory({ initial: 17, maximum: 65_536 }));
      return 'none';
    });
    return { made: memories.length, error };
  },

  async opfs() {
    const found = {};
    for (const [name, run] of Object.entries({
      getDirectory: async () => void (await navigator.storage.getDirectory()),
      handle: async () => {
        const handle = await (await fileOf('private')).createSyncAccessHandle();
        const size = handle.getSize();
        handle.write(new Uint8Array(10), { at: 0 });
        handle.flush();
        handle.close();
        return `opens, ${size} bytes from before`;
      },
      indexedDb: () =>
        new Promise((resolve, reject) => {
          const request = indexedDB.open('private');
          request.onsuccess = () => {
            request.result.close();
            resolve();
          };
          request.onerror = () => reject(request.error);
        }),
      locks: () => navigator.locks.request('private', () => undefined),
      quota: async () => (await navigator.storage.estimate()).quota,
      persisted: () => navigator.storage.persisted(),
    }))
      found[name] = await run().then((value) => value ?? 'ok', describe);
    return found;
  },

  echo({ channel }) {
    const opened = new BroadcastChannel(channel);
    channels.set(channel, opened);
    opened.onmessage = ({ data }) => {
      if (data.ping !== undefined) opened.postMessage({ pong: data.ping });
    };
  },

  /** Round-trip times over a channel, in microseconds. */
  async pingChannel({ channel, rounds }) {
    const opened = new BroadcastChannel(channel);
    const times = await roundTrips(
      rounds,
      (ping) => opened.postMessage({ ping }),
      (answered) => {
        opened.onmessage = ({ data }) => {
          if (data.pong !== undefined) answered();
        };
      },
    );
    opened.close();
    return times;
  },

  pingPort: ({ port, rounds }) =>
    roundTrips(
      rounds,
      (ping) => port.postMessage(ping),
      (answered) => {
        port.onmessage = answered;
      },
    ),

  echoPort({ port }) {
    port.onmessage = ({ data }) => port.postMessage(data);
  },
};

/** Clocks in pages are coarse, so each measurement covers a hundred round trips. */
async function roundTrips(rounds, send, onAnswer) {
  const BATCH = 100;
  const times = [];
  for (let batch = 0; batch < rounds / BATCH; batch++) {
    const begin = performance.now();
    for (let round = 0; round < BATCH; round++) {
      await new Promise((resolve) => {
        onAnswer(resolve);
        send(round);
      });
    }
    times.push(((performance.now() - begin) * 1000) / BATCH);
  }
  times.sort((a, b) => a - b);
  return { bestUs: Math.round(times[0]), medianUs: Math.round(times[times.length >> 1]) };
}

onmessage = async ({ data: { id, command, argument } }) => {
  try {
    postMessage({ id, value: await commands[command](argument) });
  } catch (error) {
    postMessage({ id, error: describe(error) });
  }
};
