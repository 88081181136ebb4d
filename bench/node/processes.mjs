// Several processes with one database, Mangrove beside the peers that can do that: durable commits of all
// of them together, gets of one that has not the files, the longest wait after the death of the one that
// leads, and what sharing costs a single process.
//
//     node bench/node/processes.mjs [--rounds 3] [--seconds 2] [--processes 1,2,4,8] [--deaths 20]
//
// Each round measures the engines in turns. Reported are medians.
import { fork } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { median } from './src/report/numbers.mjs';
import { prepare } from './src/peers.mjs';
import { open as openSqlite } from './src/engines/sqlite.mjs';

/** SQLite writes nothing if a row remains as it is. */
function valueOf(count) {
  const value = Buffer.alloc(100, 7);
  value.writeUInt32LE(count);
  return value;
}
const DURABLE = { ints: false, values: 'bytes', durable: true, cacheBytes: 64 << 20 };
const RECORDS = 1000;
const keyOf = (process, index) => `${process}/${String(index % RECORDS).padStart(4, '0')}`;

const openMangrove = (options) => async (directory) => {
  const { open, keyCodecs, valueCodecs } = await import('mangrove-kv');
  const db = await open(directory, {
    key: keyCodecs.string,
    value: valueCodecs.binary,
    lockTimeout: 30_000,
    ...options,
  });
  return {
    put: (key, value) => db.set(key, value),
    get: (key) => db.get(key),
    getAll: (keys) => Promise.all(keys.map((key) => db.get(key))),
    close: () => db.close(),
  };
};

/** `leader` opens the database in a process that does nothing else. */
const ENGINES = {
  mangrove: { open: openMangrove({ share: true }) },
  'mangrove-thread': { open: openMangrove({ share: true, thread: 'worker' }) },
  'mangrove-served': { open: openMangrove({ share: true }), hasLeader: true },
  'mangrove-alone': { open: openMangrove({ share: false }), isAlone: true },
  lmdb: {
    open: async (directory) => {
      const { open } = await import('./src/engines/lmdb.mjs');
      const db = open(directory, DURABLE);
      return { ...db, getAll: (keys) => keys.map((key) => db.get(key)) };
    },
  },
  'better-sqlite3': {
    open: async (directory) => {
      const { default: Sqlite } = await import('better-sqlite3');
      const db = openSqlite(directory, DURABLE, (path) => new Sqlite(path, { timeout: 30_000 }));
      return { ...db, getAll: (keys) => keys.map((key) => db.get(key)) };
    },
  },
};

// A child executes what its parent sends, one command after the other.
const COMMANDS = {
  async open({ engine, directory }, state) {
    const begin = performance.now();
    state.db = await ENGINES[engine].open(directory);
    return performance.now() - begin;
  },
  async fill({ number }, { db }) {
    for (let index = 0; index < RECORDS; index++) await db.put(keyOf(number, index), valueOf(index));
  },
  /** Returns the commits a second. */
  async write({ number, ms }, { db }) {
    const begin = performance.now();
    let count = 0;
    for (; performance.now() - begin < ms; count++) await db.put(keyOf(number, count), valueOf(count));
    return (count / (performance.now() - begin)) * 1000;
  },
  async get({ ms }, { db }) {
    const begin = performance.now();
    let count = 0;
    for (; performance.now() - begin < ms; count++) await db.get(keyOf(0, count));
    return (count / (performance.now() - begin)) * 1000;
  },
  async getAll({ ms }, { db }) {
    const begin = performance.now();
    let count = 0;
    for (; performance.now() - begin < ms; count += 100)
      await db.getAll(Array.from({ length: 100 }, (_, index) => keyOf(0, count + index)));
    return (count / (performance.now() - begin)) * 1000;
  },
  /** Writes until it is told to stop; returns the longest wait for a commit. */
  async writeOn({ number }, state) {
    state.isStopped = false;
    let longest = 0;
    for (let count = 0; !state.isStopped; count++) {
      const begin = performance.now();
      await state.db.put(keyOf(number, count), valueOf(count));
      longest = Math.max(longest, performance.now() - begin);
    }
    return longest;
  },
  stop(_, state) {
    state.isStopped = true;
  },
  /** Opens the same database once more. */
  async again({ engine, directory }) {
    const begin = performance.now();
    const db = await ENGINES[engine].open(directory);
    const ms = performance.now() - begin;
    await db.close();
    return ms;
  },
  async close(_, { db }) {
    await db.close();
  },
};

function serve() {
  const state = {};
  process.on('message', async ({ id, command, ...request }) => {
    try {
      process.send({ id, value: await COMMANDS[command](request, state) });
    } catch (error) {
      process.send({ id, error: String(error?.stack ?? error) });
    }
  });
}

class Member {
  #id = 0;
  #waiting = new Map();

  constructor(number) {
    this.number = number;
    this.child = fork(import.meta.filename, ['serve']);
    this.ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.on('message', ({ id, value, error }) => {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) resolve(value);
      else reject(new Error(error));
    });
    this.child.once('exit', () => {
      for (const { resolve } of this.#waiting.values()) resolve(undefined);
    });
  }

  ask(command, request = {}) {
    const id = this.#id++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.child.send({ id, command, number: this.number, ...request });
    });
  }

  async end() {
    await this.ask('close');
    this.child.disconnect();
    await this.ended;
  }

  async kill() {
    this.child.kill('SIGKILL');
    await this.ended;
  }
}

async function start(engine, directory, count) {
  const members = [];
  for (let number = 0; number < count; number++) {
    const member = new Member(number);
    await member.ask('open', { engine, directory });
    members.push(member);
  }
  return members;
}

const sum = (values) => values.reduce((all, value) => all + value, 0);

/** Commits of all processes together, a second. */
async function commits(engine, directory, count, ms) {
  const idle = ENGINES[engine].hasLeader ? 1 : 0;
  const members = await start(engine, directory, count + idle);
  const writers = members.slice(idle);
  await Promise.all(writers.map((member) => member.ask('write', { ms: ms / 4 })));
  const rate = sum(await Promise.all(writers.map((member) => member.ask('write', { ms }))));
  for (const member of members.reverse()) await member.end();
  return rate;
}

/** Gets of a process beside the one that opened the database first. */
async function gets(engine, directory, ms) {
  const [first, second] = await start(engine, directory, 2);
  await first.ask('fill', { number: 0 });
  await second.ask('get', { ms: ms / 4 });
  await second.ask('getAll', { ms: ms / 4 });
  const [one, many] = [await second.ask('get', { ms }), await second.ask('getAll', { ms })];
  await second.end();
  await first.end();
  return { one, many };
}

/** The longest wait of three writers when the process that leads is killed. */
async function death(engine, directory) {
  const members = await start(engine, directory, 4);
  const [first, ...others] = members;
  const waits = others.map((member) => member.ask('writeOn'));
  await new Promise((resolve) => setTimeout(resolve, 300));
  await first.kill();
  await new Promise((resolve) => setTimeout(resolve, 700));
  for (const member of others) await member.ask('stop');
  const longest = Math.max(...(await Promise.all(waits)));
  for (const member of others) await member.end();
  return longest;
}

/** What one process does that shares with nobody. */
async function alone(engine, directory, ms) {
  const first = new Member(0);
  await first.ask('open', { engine, directory });
  await first.ask('fill');
  const get = (await first.ask('get', { ms: ms / 4 }), await first.ask('get', { ms }));
  const put = (await first.ask('write', { ms: ms / 4 }), await first.ask('write', { ms }));
  const seconds = [];
  if (!ENGINES[engine].isAlone)
    for (let round = 0; round < 5; round++) seconds.push(await first.ask('again', { engine, directory }));
  await first.end();
  const opens = [];
  for (let round = 0; round < 5; round++) {
    const member = new Member(0);
    opens.push(await member.ask('open', { engine, directory }));
    await member.end();
  }
  return { open: median(opens), get, put, again: seconds.length === 0 ? undefined : median(seconds) };
}

async function main() {
  const { values: options } = parseArgs({
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '2' },
      processes: { type: 'string', default: '1,2,4,8' },
      deaths: { type: 'string', default: '20' },
      engines: { type: 'string', default: 'mangrove,mangrove-thread,mangrove-served,lmdb,better-sqlite3' },
      output: { type: 'string' },
    },
  });
  const engines = options.engines.split(',');
  prepare(engines);
  const ms = Number(options.seconds) * 1000;
  const counts = options.processes.split(',').map(Number);
  const root = mkdtempSync(join(tmpdir(), 'mangrove-processes-'));
  const found = new Map();
  const add = (name, value) => found.set(name, [...(found.get(name) ?? []), value]);
  let place = 0;
  const within = async (run) => {
    const directory = join(root, String(place++));
    mkdirSync(directory);
    try {
      return await run(directory);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  };
  try {
    for (let round = 0; round < Number(options.rounds); round++) {
      const turn = [...engines.slice(round % engines.length), ...engines.slice(0, round % engines.length)];
      for (const count of counts)
        for (const engine of turn) {
          const rate = await within((directory) => commits(engine, directory, count, ms));
          add(`durable commits/s, ${count} ${count === 1 ? 'process' : 'processes'} | ${engine}`, rate);
          process.stdout.write(`round ${round + 1}: ${engine}, ${count}: ${Math.round(rate)} durable commits/s\n`);
        }
      for (const engine of turn) {
        const { one, many } = await within((directory) => gets(engine, directory, ms));
        add(`gets/s of another process | ${engine}`, one);
        add(`gets/s of another process, 100 at a time | ${engine}`, many);
        process.stdout.write(`round ${round + 1}: ${engine}: ${Math.round(one)} and ${Math.round(many)} gets/s\n`);
      }
      if (engines.includes('mangrove'))
        for (const engine of round % 2 === 0 ? ['mangrove', 'mangrove-alone'] : ['mangrove-alone', 'mangrove']) {
          const { open, get, put, again } = await within((directory) => alone(engine, directory, ms));
          add(`open, ms | ${engine}`, open);
          add(`gets/s alone | ${engine}`, get);
          add(`durable commits/s alone | ${engine}`, put);
          if (again !== undefined) add(`second open in the process, ms | ${engine}`, again);
        }
    }
    for (let number = 0; engines.includes('mangrove') && number < Number(options.deaths); number++)
      add('longest wait after a death, ms | mangrove', await within((directory) => death('mangrove', directory)));
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
  const show = (value) => (value >= 100 ? String(Math.round(value)) : value.toFixed(2));
  const cell = (values = []) =>
    values.length === 0 ? '' : `${show(median(values))} (${show(Math.min(...values))} to ${show(Math.max(...values))})`;
  const columns = Object.keys(ENGINES).filter((engine) =>
    [...found.keys()].some((name) => name.endsWith(`| ${engine}`)),
  );
  const rows = new Set([...found.keys()].map((name) => name.split(' | ')[0]));
  const lines = [
    `Node ${process.version}, ${availableParallelism()} cores (${cpus()[0]?.model ?? '?'}), ${options.rounds} rounds of ${options.seconds} s; medians (lowest to highest)`,
    '',
    `| | ${columns.join(' | ')} |`,
    `|---|${'---|'.repeat(columns.length)}`,
    ...[...rows].map(
      (row) => `| ${row} | ${columns.map((engine) => cell(found.get(`${row} | ${engine}`))).join(' | ')} |`,
    ),
  ];
  process.stdout.write(`${lines.join('\n')}\n`);
  if (options.output !== undefined) writeFileSync(options.output, `${lines.join('\n')}\n`);
}

if (process.argv[2] === 'serve') serve();
else await main();
