// A failure has a code and a stable exit code, and changes nothing. What only reads changes nothing either.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  lstatSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import process from 'node:process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import {
  MAIN,
  ended,
  filesIn,
  fixture,
  linesIn,
  linesOf,
  numbered,
  reading,
  run,
  start,
  withPlace,
} from './support/tool.ts';

test(
  'wrong usage is explained',
  withPlace((place) => {
    const db = place.path('db');
    for (const args of [
      [],
      ['frobnicate'],
      ['get'],
      ['get', db],
      ['get', db, '1', '2'],
      ['count', db, '--nonsense'],
      ['scan', db, 'more'],
      ['scan', db, '--limit', '-1'],
      ['scan', db, '--limit', 'x'],
      ['set', db, '1', '1', '--durability', 'maybe'],
      ['load', db, '--batch', '0'],
      ['bench', db, '--count', '0'],
      ['get', db, '1', '--raw', 'ebcdic'],
    ]) {
      const { code, out, err } = run(args);
      assert.deepEqual([code, out], [1, ''], args.join(' '));
      assert.match(err, /Usage: mangrove-kv|For more information, try '--help'/);
    }
    for (const args of [
      ['--help'],
      ['--version'],
      ['verify', '--help'],
      ['help', 'load'],
      ['archive', '--help'],
      ['restore', '--at', '--help'],
    ])
      assert.match(run(args).ok(), /mangrove/i);
    assert.ok(run(['verify', '--help']).ok().includes('2 damage was found'));
    assert.ok(run(['restore', '--help']).ok().includes('--at'));
    run(['load', db, '--ack', '--durability', 'none']).fails(1, 'KV_INVALID_ARGUMENT');
    run(['restore', '--', '--at', db]).fails(1, 'KV_IO');
    assert.equal(existsSync(db), false);
  }),
);

test(
  'missing databases are not created',
  withPlace((place) => {
    const db = place.path('db');
    for (const args of [
      ['get', db, '1'],
      ['del', db, '1'],
      ['scan', db],
      ['count', db],
      ['stat', db],
      ['verify', db],
      ['dump', db],
      ['compact', db],
      ['backup', db, place.path('file')],
      ['backup', db, place.path('file'), '--since', '1'],
    ]) {
      run(args).fails(1, 'KV_NOT_FOUND');
    }
    run(['set', db, 'text', '1']).fails(1, 'KV_INVALID_ARGUMENT');
    run(['set', db, '1', 'text']).fails(1, 'KV_INVALID_ARGUMENT');
    run(['set', db, '{}', '1']).fails(1, 'KV_INVALID_KEY');
    run(['set', db, '1', '{"$undefined":true}']).fails(1, 'KV_INVALID_VALUE');
    assert.equal(existsSync(db), false);
    place.loaded('db', '');
    assert.equal(run(['scan', db]).ok(), '');
    assert.equal(run(['count', db]).ok(), '0\n');
    run(['scan', db, '--collection', 'c']).fails(1, 'KV_NOT_FOUND');
    run(['get', db, '1', '--collection', 'c']).fails(1, 'KV_NOT_FOUND');
    assert.equal(run(['del', db, '1', '--collection', 'c']).ok(), 'false\n');
    assert.ok(run(['stat', db]).ok().includes('"collections":[]'), 'asking creates no collection');
  }),
);

test(
  'a file whose creation was interrupted, and paths that are no database files',
  withPlace((place) => {
    const empty = place.path('empty');
    writeFileSync(empty, '');
    mkdirSync(place.path('directory/data'), { recursive: true });
    for (const verb of ['count', 'verify', 'dump', 'compact']) {
      const { err } = run([verb, empty]).fails(1, 'KV_NOT_FOUND');
      assert.ok(err.includes(empty), err);
      run([verb, place.path('directory')]).fails(1, 'KV_IO');
      run([verb, place.path('empty/deeper')]).fails(1, 'KV_IO');
    }
    assert.equal(statSync(empty).size, 0);
  }),
);

test(
  'hostile lines undo their batch',
  withPlace((place) => {
    const db = place.path('db');
    const lines = [
      '{',
      '[]',
      'null',
      '{}',
      '{"key":1}',
      '{"value":1}',
      '{"key":1,"value":1,"more":1}',
      '{"key":1,"key":2,"value":1}',
      '{"key":1,"value":1} {}',
      '{"key":1,"value":1,"keyCodec":"any"}',
      '{"collection":5,"key":1,"value":1}',
      Buffer.from('{"key":1,"value":"\xff"}', 'latin1'),
      '{"key":1,"value":"\0"}',
      `{"key":1,"value":${'['.repeat(1 << 20)}`,
      `{"key":1,"value":${'['.repeat(5000)}${']'.repeat(5000)}}`,
    ];
    for (const line of lines) {
      const input = Buffer.concat([
        Buffer.from('{"key":1,"value":1}\n{"key":2,"value":2}\n{"key":3,"value":3}\n'),
        Buffer.from(line),
      ]);
      const failed = run(['load', db, '--batch', '2', '--ack'], input).fails(1, 'KV_INVALID_ARGUMENT');
      assert.ok(failed.err.includes(': line 4: '), failed.err);
      assert.equal(failed.out, '1\n2\n', 'only what is durable is echoed');
      assert.equal(run(['scan', db, '--keys-only']).ok(), '{"key":1}\n{"key":2}\n');
    }
    run(['load', db], '{"keyCodec":"utf8","valueCodec":"json"}').fails(1, 'KV_CODEC_MISMATCH');
    run(['load', db], `{"key":"${'k'.repeat(5000)}","value":1}`).fails(1, 'KV_KEY_TOO_LARGE');
    run(['load', db], '{"key":{},"value":1}').fails(1, 'KV_INVALID_KEY');
    run(['load', db], '{"key":1,"value":{"$undefined":true}}').fails(1, 'KV_INVALID_VALUE');
    assert.equal(run(['count', db]).ok(), '2\n');
  }),
);

test(
  'damage',
  withPlace((place) => {
    const db = place.loaded('db', numbered(20_000));
    const data = place.path('db/data');
    const whole = readFileSync(data);
    const report = (): { pagesChecked: number; problems: { page?: number }[] } => {
      const { out } = run(['verify', db]).fails(2, 'KV_CORRUPT');
      const found = JSON.parse(out) as {
        ok: boolean;
        pagesChecked: number;
        problems: { code: string; page?: number }[];
      };
      assert.deepEqual([found.ok, found.problems[0]?.code], [false, 'KV_CORRUPT']);
      return found;
    };
    // With a damaged block in the middle, the rest can be read.
    writeFileSync(data, Buffer.from(whole).fill(0x5a, whole.length >> 1, (whole.length >> 1) + 4096));
    const found = report();
    assert.ok(found.pagesChecked > 0 && typeof found.problems[0]?.page === 'number');
    run(['scan', db]).fails(2, 'KV_CORRUPT');
    run(['dump', db]).fails(2, 'KV_CORRUPT');
    const recovered = run(['recover', db, place.path('recovered')]);
    assert.equal(recovered.code, 2);
    assert.ok((JSON.parse(recovered.out) as { entries: number }).entries > 1000);
    assert.match(recovered.err, /copying[^]*\nmangrove: KV_CORRUPT: /);
    run(['verify', place.path('recovered')]).ok();
    run(['recover', db, place.path('recovered')]).fails(1, 'KV_EXISTS');
    writeFileSync(data, whole.subarray(0, whole.length >> 1));
    report();
    writeFileSync(data, Buffer.from(whole).fill(0x77, 0, 16_384));
    report();
    writeFileSync(data, 'something else');
    report();
    run(['set', db, '1', '1']).fails(2, 'KV_CORRUPT');
    assert.equal(readFileSync(data, 'utf8'), 'something else', 'it is left as it is');
    // Nothing stops the tool, whatever the bytes.
    const bytes = readFileSync(fixture('javascript.mangrove'));
    for (let at = 0; at < bytes.length; at += 970) {
      bytes[at]! ^= 0x10;
      writeFileSync(data, bytes);
      for (const verb of ['verify', 'dump']) {
        const { code, err } = run([verb, db]);
        assert.ok(code === 0 || (code === 2 && err.startsWith('mangrove: KV_CORRUPT: ')), `${at}: ${err}`);
      }
      bytes[at]! ^= 0x10;
    }
  }),
);

test(
  'changes run beside a process that shares the database, but not beside one that does not',
  { skip: process.platform !== 'linux' },
  withPlace(async (place) => {
    const db = place.path('db');
    const holder = start(['load', db, '--ack', '--batch', '1']);
    const [next, end] = [linesOf(holder), ended(holder)];
    holder.stdin.write('{"key":1,"value":1}\n');
    await next();
    const writing = [
      ['set', db, '2', '2'],
      ['del', db, '2'],
      ['compact', db],
    ];
    for (const args of writing) {
      const { code, err } = run(args);
      assert.deepEqual([code, err], [0, `attached to process ${holder.pid}, which has the database open\n`]);
    }
    run(['recover', db, place.path('new')]).fails(1, 'KV_LOCKED');
    holder.stdin.end();
    assert.equal(await end, 0);
    assert.equal(run(['get', db, '1']).ok(), '1\n');
    const alone = await open(db, { share: false });
    for (const args of [...writing, ['recover', db, place.path('new')]]) run(args).fails(1, 'KV_LOCKED');
    await alone.close();
    // What a dead process, and one of another directory, have left locks nothing.
    const lock = place.path('db/lock');
    const text = (path: string): string => (existsSync(path) ? readFileSync(path, 'utf8').trim() : '');
    const hold = (pid: number, directory: string, system: boolean): void =>
      writeFileSync(
        lock,
        JSON.stringify({
          pid,
          started: '',
          host: text('/proc/sys/kernel/hostname'),
          boot: text('/proc/sys/kernel/random/boot_id'),
          namespace: readlinkSync('/proc/self/ns/pid'),
          directory,
          system,
        }),
      );
    const own = String(statSync(db).ino);
    hold(process.pid, own, false);
    for (const args of writing) run(args).fails(1, 'KV_LOCKED');
    assert.equal(run(['get', db, '1']).ok(), '1\n');
    assert.ok(existsSync(lock));
    // Beside an operating-system lock it only informs.
    hold(process.pid, own, true);
    assert.equal(run(['del', db, '3']).ok(), 'false\n');
    for (const [pid, directory] of [
      [holder.pid as number, own],
      [process.pid, '1'],
    ] as const) {
      hold(pid, directory, false);
      assert.equal(run(['get', db, '1']).ok(), '1\n');
      assert.ok(existsSync(lock), 'readers leave it');
      assert.equal(run(['del', db, '2']).ok(), 'false\n');
      assert.equal(existsSync(lock), false);
    }
    writeFileSync(lock, '');
    run(['set', db, '1', '2']).fails(1, 'KV_LOCKED');
  }),
);

test(
  'one writes to a single file at a time',
  { skip: process.platform === 'win32' },
  withPlace(async (place) => {
    const file = place.path('exported.mangrove');
    copyFileSync(fixture('javascript.mangrove'), file);
    const holder = start(['load', file, '--ack', '--batch', '1']);
    const [next, end] = [linesOf(holder), ended(holder)];
    holder.stdin.write('{"key":1,"value":1}\n');
    await next();
    for (const args of [
      ['set', file, '1', '2'],
      ['compact', file],
    ])
      run(args).fails(1, 'KV_LOCKED');
    holder.stdin.end();
    assert.equal(await end, 0);
    run(['set', file, '1', '2']).ok();
  }),
);

test(
  'readers of the output may stop early',
  withPlace(async (place) => {
    const db = place.loaded('db', numbered(50_000));
    for (const args of [
      ['scan', db],
      ['dump', db],
      ['backup', db, '-'],
    ]) {
      const child = start(args);
      let err = '';
      child.stderr.setEncoding('utf8').on('data', (piece: string) => {
        err += piece;
      });
      child.stdout.once('data', () => child.stdout.destroy());
      assert.deepEqual([await ended(child), err], [0, ''], args.join(' '));
    }
    // Loading succeeds whether or not anyone reads the keys.
    const copy = place.path('copy');
    const child = start(['load', copy, '--ack', '--batch', '10']);
    child.stdout.destroy();
    child.stdin.end(numbered(100));
    assert.equal(await ended(child), 0);
    assert.equal(run(['count', copy]).ok(), '100\n');
  }),
);

test(
  'a full disk is not mistaken for a reader that left',
  { skip: process.platform !== 'linux' },
  withPlace(async (place) => {
    const db = place.loaded('db', numbered(10));
    const child = spawn(
      process.execPath,
      [
        ...('Deno' in globalThis ? ['run', '--allow-all', '--no-lock', '--node-modules-dir=manual'] : []),
        MAIN,
        'scan',
        db,
      ],
      { stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe'] },
    );
    let err = '';
    child.stderr?.setEncoding('utf8').on('data', (piece: string) => {
      err += piece;
    });
    const code = await new Promise((resolve) => child.once('close', resolve));
    assert.equal(code, 1);
    assert.ok(err.startsWith('mangrove: KV_IO: '), err);
  }),
);

function readEverything(db: string): void {
  for (const args of reading(db)) {
    const { code, err } = run(args);
    assert.equal(code, 0, `${args.join(' ')}: ${err}`);
  }
}

test(
  'not a byte is changed by what only reads',
  withPlace(async (place) => {
    place.loaded('closed', numbered(3000));
    await place.killed('log', 100);
    mkdirSync(place.path('single'));
    copyFileSync(place.path('closed/data'), place.path('single/exported.mangrove'));
    mkdirSync(place.path('unclosed'));
    for (const [from, to] of [
      ['data', 'e.mangrove'],
      ['log', 'e.mangrove.log'],
    ])
      copyFileSync(place.path(`log/${from}`), place.path(`unclosed/${to}`));
    // A checkpoint, followed by records.
    place.loaded('both', numbered(500));
    const db = await open(place.path('both'));
    await db.delete(3);
    cpSync(place.path('both'), place.path('copied'), {
      recursive: true,
      filter: (path) => !lstatSync(path).isSocket(),
    });
    await db.close();
    assert.ok(statSync(place.path('copied/log')).size > 0);
    for (const [name, path] of [
      ['closed', 'closed'],
      ['log', 'log'],
      ['copied', 'copied'],
      ['single', 'single/exported.mangrove'],
      ['unclosed', 'unclosed/e.mangrove'],
    ] as const) {
      const before = filesIn(place.path(name));
      readEverything(place.path(path));
      assert.deepEqual(filesIn(place.path(name)), before, `${name} was changed`);
    }
    assert.equal(run(['count', place.path('copied')]).ok(), '499\n');
    assert.equal(run(['count', place.path('unclosed/e.mangrove')]).ok(), '100\n');
  }),
);

test(
  'damaged files stay unchanged',
  withPlace(async (place) => {
    const db = await place.killed('db', 100);
    const bytes = readFileSync(place.path('db/log'));
    bytes[1100]! ^= 1;
    writeFileSync(place.path('db/log'), bytes);
    const before = filesIn(db);
    for (const args of reading(db)) run(args).fails(2, 'KV_CORRUPT');
    assert.deepEqual(filesIn(db), before);
  }),
);

/** Rewrites every key with values that compression makes little smaller. */
async function commit(db: Database, round: number, count: number): Promise<void> {
  let state = round + 1;
  await db.setMany(
    Array.from({ length: count }, (_, key) => {
      const value = new Uint8Array(244);
      new DataView(value.buffer).setUint32(0, round);
      for (let at = 4; at < value.length; at++) {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
        value[at] = state >>> 24;
      }
      return [key, value];
    }),
  );
}

test(
  'an open writer blocks no reader',
  withPlace(async (place) => {
    const path = place.loaded('db', numbered(1000));
    const writer = await open(path, { share: false });
    // Only in the log, and still visible.
    await writer.set(7, 'new');
    assert.equal(run(['get', path, '7']).ok(), '"new"\n');
    readEverything(path);
    const [file, copy] = [place.path('file'), place.path('copy')];
    run(['backup', path, file]).ok();
    run(['restore', file, copy]).ok();
    assert.equal(run(['dump', copy]).ok(), run(['dump', path]).ok());
    run(['set', path, '1', '2']).fails(1, 'KV_LOCKED');
    await writer.close();
    assert.equal(run(['get', path, '7']).ok(), '"new"\n');
  }),
);

test(
  'incremental backups beside a writer',
  withPlace(async (place) => {
    const path = place.path('db');
    const writer = await open(path, { feed: { retainCommits: 100 } });
    await commit(writer, 0, 10);
    const [full, later, copy] = [place.path('full'), place.path('later'), place.path('copy')];
    const since = String(run(['backup', path, full]).json()['version']);
    await commit(writer, 1, 10);
    await commit(writer, 2, 10);
    const saved = run(['backup', path, later, '--since', since]).json();
    assert.deepEqual([saved['commits'], saved['version']], [2, (await writer.stats()).version]);
    run(['restore', full, copy]).ok();
    run(['restore', later, copy, '--incremental']).ok();
    assert.equal(run(['dump', copy]).ok(), run(['dump', path]).ok());
    assert.equal(run(['backup', path, place.path('early'), '--since', '0']).code, 1);
    await writer.close();
  }),
);

/** A process that rewrites a database without pausing. */
const WRITER = `
const { open } = await import(process.argv[2]);
const db = await open(process.argv[3], { cacheBytes: 1 << 20 });
console.log('open');
for (let round = 1; ; round++) {
  await db.setMany(Array.from({ length: 300 }, (_, key) => [key, [round, ...crypto.getRandomValues(new Uint32Array(50))]]));
}`;

test(
  'beside a busy writer the output is one state, or the tool reports that it is not',
  withPlace(async (place) => {
    const path = place.path('db');
    run(['load', path], Array.from({ length: 300 }, (_, key) => `{"key":${key},"value":[0]}\n`).join('')).ok();
    const script = place.path('writer.mjs');
    writeFileSync(script, WRITER);
    const runtime = 'Deno' in globalThis ? ['run', '--allow-all', '--no-lock'] : [];
    const writer = spawn(process.execPath, [...runtime, script, import.meta.resolve('mangrove-kv'), path], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const gone = new Promise((resolve) => writer.once('close', resolve));
    await new Promise((resolve) => writer.stdout.once('data', resolve));
    let whole = 0;
    for (let attempt = 0; attempt < 12; attempt++) {
      const verb = ['scan', 'verify', 'count', 'dump'][attempt % 4] as string;
      const read = run([verb, path]);
      if (read.code !== 0) {
        read.fails(1, 'KV_STALE');
        continue;
      }
      whole++;
      const lines = linesIn(read.out);
      if (verb === 'verify') assert.equal(lines[0]?.['ok'], true);
      else if (verb === 'count') assert.deepEqual(lines, [300]);
      else assert.equal(new Set(lines.map(({ value }) => (value as number[])[0])).size, 1, verb);
    }
    writer.kill('SIGKILL');
    await gone;
    assert.ok(whole > 3, String(whole));
  }),
);

test(
  'output that a writer overtakes says so',
  withPlace(async (place) => {
    const path = place.path('db');
    const writer = await open(path, { cacheBytes: 1 << 20 });
    await commit(writer, 0, 20_000);
    await writer.close();
    for (const verb of ['scan', 'dump']) {
      const db = await open(path, { cacheBytes: 1 << 20 });
      const child = start([verb, path]);
      const end = ended(child);
      await new Promise((resolve) => child.stdout.once('readable', resolve));
      for (let round = 1; round < 12; round++) await commit(db, round, 20_000);
      await db.close();
      let [out, err] = ['', ''];
      child.stderr.setEncoding('utf8').on('data', (piece: string) => {
        err += piece;
      });
      child.stdout.setEncoding('utf8').on('data', (piece: string) => {
        out += piece;
      });
      assert.equal(await end, 1, `${verb}: ${err}`);
      assert.ok(err.startsWith('mangrove: KV_STALE: ') && err.includes('incomplete'), err);
      assert.ok(out.endsWith('\n') && out.split('\n').length < 20_000);
    }
  }),
);

test(
  'no permission to write is needed to read',
  { skip: process.platform === 'win32' || (process.getuid?.() === 0 && !existsSync('/usr/bin/setpriv')) },
  withPlace(async (place) => {
    const db = await place.killed('db', 100);
    mkdirSync(place.path('js'));
    const exported = place.path('js/exported.mangrove');
    copyFileSync(fixture('javascript.mangrove'), exported);
    const directories = [db, place.path('js')];
    const before = directories.map(filesIn);
    chmodSync(place.path(), 0o755);
    for (const directory of directories) {
      for (const name of Object.keys(filesIn(directory))) chmodSync(`${directory}/${name}`, 0o444);
      chmodSync(directory, 0o555);
    }
    // As another user where the tests run as root.
    const options = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
    const tool = (...args: string[]): Promise<{ code: number | null; err: string }> =>
      new Promise((resolve, reject) => {
        const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'ignore', 'pipe'], ...options });
        let err = '';
        child.stderr.setEncoding('utf8').on('data', (piece: string) => {
          err += piece;
        });
        child.once('error', reject).once('close', (code) => resolve({ code, err }));
      });
    try {
      for (const args of [
        ...reading(db),
        ...['scan', 'count', 'stat', 'verify', 'dump'].map((verb) => [verb, exported]),
      ]) {
        const { code, err } = await tool(...args);
        assert.equal(code, 0, `${args.join(' ')}: ${err}`);
      }
      for (const args of [
        ['set', db, '1', '1'],
        ['del', db, '1'],
        ['compact', db],
        ['set', exported, '1', '1'],
      ]) {
        const { code, err } = await tool(...args);
        assert.equal(code, 1, args.join(' '));
        assert.ok(err.startsWith('mangrove: KV_IO: '), err);
      }
    } finally {
      for (const directory of directories) chmodSync(directory, 0o755);
    }
    assert.deepEqual(directories.map(filesIn), before);
  }),
);

test(
  'under the permission model of Node, backup and what only reads flush nothing',
  { skip: 'Deno' in globalThis || 'Bun' in globalThis },
  withPlace(async (place) => {
    const db = place.loaded('db', numbered(100));
    const file = place.path('file');
    const root = fileURLToPath(new URL('../../..', import.meta.url));
    const flags = [
      process.versions.node.startsWith('20.') ? '--experimental-permission' : '--permission',
      '--no-warnings',
      `--allow-fs-read=${root}*`,
      `--allow-fs-read=${place.path('*')}`,
      `--allow-fs-write=${place.path('*')}`,
    ];
    const tool = (...args: string[]): Promise<{ code: number | null; out: string; err: string }> =>
      new Promise((resolve) => {
        const child = spawn(process.execPath, [...flags, MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
        let [out, err] = ['', ''];
        child.stdout.setEncoding('utf8').on('data', (piece: string) => {
          out += piece;
        });
        child.stderr.setEncoding('utf8').on('data', (piece: string) => {
          err += piece;
        });
        child.once('close', (code) => resolve({ code, out, err }));
      });
    const saved = await tool('backup', db, file);
    assert.deepEqual([saved.code, saved.err], [0, '']);
    assert.deepEqual(await tool('count', db), { code: 0, out: '100\n', err: '' });
    run(['restore', file, place.path('copy')]).ok();
    assert.equal(run(['dump', place.path('copy')]).ok(), run(['dump', db]).ok());
  }),
);
