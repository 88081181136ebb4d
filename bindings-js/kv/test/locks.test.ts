// One opening of a directory at a time: across processes, runtimes, namespaces and threads, with a
// system lock and without one.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openSync, restore } from 'mangrove-kv';
import type { KvError } from 'mangrove-kv';
import { RUNTIMES, runChild, runChildOf } from './support/child.ts';
import type { Child, Surroundings } from './support/child.ts';
import { copyDirectory, code, rejects, withPath, openAlone as open } from './support/kit.ts';

const isLinux = process.platform === 'linux';
const lock = (path: string): string => join(path, 'lock');

/**
 * On this path no program is found that takes locks, so Node and Bun have no system lock. Deno
 * needs no program.
 */
const withoutProgram: Surroundings = { env: { PATH: '/nowhere' } };

interface Outcome {
  readonly code: string | undefined;
  readonly message: string | undefined;
}

async function outcome(child: Child): Promise<Outcome> {
  const [code, message] = [await child.line(), await child.line()];
  await child.ended;
  return { code, message };
}

async function kill(child: Child): Promise<void> {
  child.kill();
  await child.ended;
}

async function remember(path: string): Promise<void> {
  const db = await open(path);
  await db.set('before', 1);
  await db.close();
}

/** Checks that the process that tried has left nothing. */
async function checkUntouched(path: string): Promise<void> {
  const db = await open(path, { lockTimeout: 0 });
  assert.equal(await db.get('held'), 1);
  assert.equal(await db.has(['tried', 0]), false);
  assert.equal((await db.verify()).ok, true);
  await db.close();
}

const NAMESPACES = [
  ['unshare', '--pid', '--fork', '--mount-proc'],
  ['unshare', '--pid', '--fork'],
  ['unshare', '--user', '--map-root-user', '--pid', '--fork', '--mount-proc'],
];

for (const within of NAMESPACES) {
  const [program, ...args] = within as [string, ...string[]];
  const canUnshare = isLinux && spawnSync(program, [...args, 'true']).status === 0;
  const skip = canUnshare ? false : `this system does not permit ${within.join(' ')}`;

  test(`a process in another PID namespace is kept out: ${args.join(' ')}`, { skip }, () =>
    withPath(async (path) => {
      const holder = runChild(['hold', path]);
      assert.equal(await holder.line(), 'open');
      assert.equal((await outcome(runChild(['try', path], { within }))).code, 'KV_LOCKED');
      await kill(holder);
      await checkUntouched(path);
    }),
  );

  test(`a process in another PID namespace keeps others out: ${args.join(' ')}`, { skip }, () =>
    withPath(async (path) => {
      // The holder ends with the program that started it.
      const holder = runChild(['hold', path], { within: [...within, '--kill-child'] });
      assert.equal(await holder.line(), 'open');
      const { code, message } = await outcome(runChild(['try', path]));
      assert.equal(code, 'KV_LOCKED');
      assert.match(String(message), /another container|other process|Deno/);
      await kill(holder);
      // The children of the killed program end a moment later.
      await (await open(path)).close();
      await checkUntouched(path);
    }),
  );

  test(
    `a process in another PID namespace is kept out without system locks: ${args.join(' ')}`,
    { skip: skip || ('Deno' in globalThis && 'Deno has them') },
    () =>
      withPath(async (path) => {
        const holder = runChild(['hold', path], withoutProgram);
        assert.equal(await holder.line(), 'open');
        const absolute = { ...withoutProgram, within: ['/usr/bin/unshare', ...args] };
        assert.equal((await outcome(runChild(['try', path], absolute))).code, 'KV_LOCKED');
        // A process with a system lock does not get in either.
        assert.equal((await outcome(runChild(['try', path], { within }))).code, 'KV_LOCKED');
        await kill(holder);
        await checkUntouched(path);
      }),
  );
}

for (const holding of RUNTIMES) {
  for (const trying of RUNTIMES) {
    test(`${holding} keeps ${trying} out until it is killed`, () =>
      withPath(async (path) => {
        const holder = runChildOf(holding, ['hold', path]);
        assert.equal(await holder.line(), 'open');
        assert.equal((await outcome(runChildOf(trying, ['try', path]))).code, 'KV_LOCKED');
        await kill(holder);
        assert.equal((await outcome(runChildOf(trying, ['try', path]))).code, 'open');
      }));
  }
}

test('a lock file whose holder is gone locks no one out', { skip: !isLinux && 'it must be a lock file of Linux' }, () =>
  withPath(async (path) => {
    await remember(path);
    const holder = runChild(['hold', path]);
    assert.equal(await holder.line(), 'open');
    const copy = `${path}-copy`;
    copyDirectory(path, copy);
    assert.ok(existsSync(lock(copy)));
    const content = JSON.parse(readFileSync(lock(path), 'utf8')) as object;
    // The lock file was copied with the directory.
    await (await open(copy, { lockTimeout: 0 })).close();
    assert.equal(existsSync(lock(copy)), false);
    await kill(holder);
    assert.ok(existsSync(lock(path)));
    for (const changed of [
      {},
      { boot: 'before the power was cut' },
      { pid: process.pid, started: '1' },
      { host: 'another host' },
      { pid: 1, namespace: 'pid:[1]' },
    ]) {
      writeFileSync(lock(path), JSON.stringify({ ...content, ...changed }));
      await (await open(path, { lockTimeout: 0 })).close();
      assert.equal(existsSync(lock(path)), false);
    }
    for (const nonsense of ['', '{', '{"pid":1}', '[]', 'null']) {
      writeFileSync(lock(path), nonsense);
      const longAgo = new Date(Date.now() - 60_000);
      utimesSync(lock(path), longAgo, longAgo);
      await (await open(path, { lockTimeout: 0 })).close();
      assert.equal(existsSync(lock(path)), false);
    }
    // A process without a system lock may be about to write it.
    writeFileSync(lock(path), '{');
    await rejects(open(path, { lockTimeout: 0 }), 'KV_LOCKED');
  }),
);

/** What a holder without a system lock writes, as far as it says where the holder is. */
function holderHere(path: string): Record<string, unknown> {
  const [directory, namespace] = [String(statSync(path, { bigint: true }).ino), readNamespace()];
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return {
    pid: process.pid,
    started: '',
    host: hostname(),
    boot,
    namespace,
    directory,
    runtime: 'Node',
    system: false,
  };
}

function readNamespace(): string {
  return spawnSync('readlink', ['/proc/self/ns/pid']).stdout.toString().trim();
}

const needsFallback = {
  skip: (!isLinux && 'it reads /proc') || ('Deno' in globalThis && 'Deno always has system locks'),
};

test('without system locks, the lock file keeps others out', needsFallback, () =>
  withPath(async (path) => {
    await remember(path);
    const tries = async (): Promise<Outcome> => outcome(runChild(['try', path], withoutProgram));
    const holder = runChild(['hold', path], withoutProgram);
    assert.equal(await holder.line(), 'open');
    assert.equal((await tries()).code, 'KV_LOCKED');
    await rejects(open(path, { lockTimeout: 0 }), 'KV_LOCKED');
    const copy = `${path}-copy`;
    copyDirectory(path, copy);
    assert.equal((await outcome(runChild(['try', copy], withoutProgram))).code, 'open');
    await kill(holder);
    assert.equal((await tries()).code, 'open', 'it was killed');
  }),
);

test('a lock file alone is judged by its content', needsFallback, () =>
  withPath(async (path) => {
    await remember(path);
    const here = holderHere(path);
    const longAgo = new Date(Date.now() - 3_600_000);
    const inAnHour = new Date(Date.now() + 3_600_000);
    // The holder, the time of its last sign of life, the outcome without a system lock, and the
    // outcome with one.
    const cases: [Record<string, unknown>, Date, string, string][] = [
      [{}, longAgo, 'KV_LOCKED', 'KV_LOCKED'],
      [{ pid: 2 ** 22 + 1 }, new Date(), 'open', 'open'],
      [{ started: 'another' }, new Date(), 'open', 'open'],
      [{ directory: '1' }, new Date(), 'open', 'open'],
      // Elsewhere, where process ids mean nothing here.
      [{ namespace: 'pid:[1]' }, new Date(), 'KV_LOCKED', 'KV_LOCKED'],
      [{ namespace: 'pid:[1]' }, longAgo, 'open', 'open'],
      [{ boot: 'another' }, new Date(), 'KV_LOCKED', 'KV_LOCKED'],
      [{ boot: 'another' }, longAgo, 'open', 'open'],
      [{ host: 'elsewhere' }, inAnHour, 'KV_LOCKED', 'KV_LOCKED'],
      // A container of this kernel with a name of its own.
      [{ host: 'elsewhere' }, longAgo, 'open', 'open'],
      [{ host: 'elsewhere', namespace: 'pid:[1]' }, longAgo, 'open', 'open'],
      [{ host: 'elsewhere', boot: 'another' }, inAnHour, 'KV_LOCKED', 'KV_LOCKED'],
      [{ host: 'elsewhere', boot: 'another' }, longAgo, 'KV_LOCKED', 'open'],
      // It had a lock that this process cannot query.
      [{ host: 'elsewhere', system: true }, longAgo, 'KV_LOCKED', 'open'],
      [{ system: true }, longAgo, 'KV_LOCKED', 'open'],
    ];
    for (const [changed, sign, alone, withSystem] of cases) {
      for (const [expected, surroundings] of [
        [alone, withoutProgram],
        [withSystem, {}],
      ] as const) {
        writeFileSync(lock(path), JSON.stringify({ ...here, ...changed }));
        utimesSync(lock(path), sign, sign);
        const { code, message } = await outcome(runChild(['try', path], surroundings));
        assert.equal(code, expected, JSON.stringify({ changed, sign, surroundings }));
        if ('host' in changed && code === 'KV_LOCKED' && sign === longAgo)
          assert.match(
            String(message),
            /the host elsewhere, which gives no sign of life; .*takeOver.* mangrove-kv unlock /,
          );
      }
    }
    // A process is about to write into it, or was and is gone.
    for (const [sign, expected] of [
      [inAnHour, 'KV_LOCKED'],
      [longAgo, 'open'],
    ] as const) {
      writeFileSync(lock(path), '');
      utimesSync(lock(path), sign, sign);
      assert.equal((await outcome(runChild(['try', path], withoutProgram))).code, expected);
    }
  }),
);

/** Leaves a lock file whose holder is in another machine. */
function leaveLock(path: string, changed: Record<string, unknown>, sign: Date): void {
  writeFileSync(lock(path), JSON.stringify({ ...holderHere(path), host: 'elsewhere', boot: 'another', ...changed }));
  utimesSync(lock(path), sign, sign);
}

test('takeOver opens what a holder of another machine has left, and nothing else', needsFallback, () =>
  withPath(async (path) => {
    await remember(path);
    const longAgo = new Date(Date.now() - 3_600_000);
    leaveLock(path, {}, longAgo);
    assert.deepEqual(await outcome(runChild(['takeOver', path, 'refusal'], withoutProgram)), {
      code: 'KV_LOCKED',
      message: 'not retryable',
    });
    for (const how of ['open', 'openSync']) {
      for (const system of [false, true]) {
        leaveLock(path, { system }, longAgo);
        assert.equal(
          (await outcome(runChild(['takeOver', path, how], withoutProgram))).code,
          'open',
          `${how} ${system}`,
        );
        assert.equal(existsSync(lock(path)), false);
      }
    }
    leaveLock(path, {}, new Date());
    assert.deepEqual(await outcome(runChild(['takeOver', path, 'open'], withoutProgram)), {
      code: 'KV_LOCKED',
      message: 'retryable',
    });
    const holder = runChild(['hold', path], withoutProgram);
    rmSync(lock(path));
    assert.equal(await holder.line(), 'open');
    assert.equal(
      (await outcome(runChild(['takeOver', path, 'open'], withoutProgram))).code,
      'KV_LOCKED',
      'its holder runs',
    );
    await kill(holder);
  }),
);

test('who waits for another holder hears after a second which one it is, and waits for two by default', () =>
  withPath(async (path) => {
    const holder = runChild(['hold', path]);
    assert.equal(await holder.line(), 'open');
    const heard: KvError[] = [];
    const order: string[] = [];
    await Promise.all([
      assert
        .rejects(open(path, { onBlocked: (error) => heard.push(error) }), code('KV_LOCKED'))
        .then(() => order.push('by default')),
      assert
        .rejects(open(path, { lockTimeout: 6_000, onBlocked: (error) => heard.push(error) }), code('KV_LOCKED'))
        .then(() => order.push('six seconds')),
      assert
        .rejects(open(path, { lockTimeout: 0, onBlocked: () => assert.fail('it did not wait') }), code('KV_LOCKED'))
        .then(() => order.push('at once')),
    ]);
    assert.deepEqual(order, ['at once', 'by default', 'six seconds']);
    assert.deepEqual(
      heard.map((error) => [error.code, /is open in process \d+/.test(error.message)]),
      [
        ['KV_LOCKED', true],
        ['KV_LOCKED', true],
      ],
    );
    const failure = new Error('of the callback');
    await assert.rejects(
      open(path, {
        onBlocked: () => {
          throw failure;
        },
      }),
      failure,
    );
    await assert.rejects(open(path, { onBlocked: 1 as never }), code('KV_INVALID_ARGUMENT'));
    await kill(holder);
    await checkUntouched(path);
  }));

test('the verb unlock gives a database free', needsFallback, () =>
  withPath(async (path) => {
    await remember(path);
    const tool = fileURLToPath(new URL('../../cli/dist/mangrove-kv.js', import.meta.url));
    const unlock = (...args: string[]) =>
      spawnSync(process.execPath, [tool, 'unlock', ...args], { env: { PATH: '/nowhere' }, encoding: 'utf8' });
    leaveLock(path, {}, new Date());
    assert.match(unlock(path).stderr, /^mangrove: KV_LOCKED: .*the host elsewhere/);
    assert.ok(existsSync(lock(path)));
    leaveLock(path, {}, new Date(Date.now() - 3_600_000));
    assert.equal((await outcome(runChild(['try', path], withoutProgram))).code, 'KV_LOCKED');
    const { status, stderr } = unlock(path);
    assert.deepEqual({ status, stderr }, { status: 0, stderr: '' });
    assert.equal((await outcome(runChild(['try', path], withoutProgram))).code, 'open');
    assert.match(unlock(`${path}-missing`).stderr, /^mangrove: KV_NOT_FOUND: /);
    assert.match(unlock().stderr, /^mangrove: KV_INVALID_ARGUMENT: usage: /);
  }),
);

test('a writer whose lock was taken away stops before it acknowledges or overwrites anything', needsFallback, () =>
  withPath(async (path) => {
    const overtaken = runChild(['goOn', path], withoutProgram);
    assert.equal(await overtaken.line(), 'open');
    rmSync(lock(path));
    assert.equal((await outcome(runChild(['try', path], withoutProgram))).code, 'open');
    writeFileSync(`${path}-go`, '');
    assert.equal(await overtaken.line(), 'KV_LOCKED', 'strict');
    assert.equal(await overtaken.line(), 'KV_LOCKED', 'relaxed');
    await overtaken.ended;
    const db = await open(path);
    assert.equal(await db.get('held'), 1);
    assert.equal(await db.count({ prefix: ['tried'] }), 30);
    assert.equal((await db.verify()).ok, true);
    await db.close();
  }),
);

test('openSync does not wait for its own thread', () =>
  withPath(async (path) => {
    const first = openSync(path);
    // The wait would never end.
    assert.throws(() => openSync(path, { lockTimeout: Infinity }), code('KV_LOCKED'));
    assert.throws(() => openSync(`${path}/../database`, { lockTimeout: Infinity }), /in this thread/);
    first.close();
    openSync(path).close();
    const asynchronous = await open(path);
    assert.throws(() => openSync(path, { lockTimeout: Infinity }), code('KV_LOCKED'));
    await asynchronous.close();
    const inWorker = await open(path, { thread: 'worker' });
    assert.throws(() => openSync(path, { lockTimeout: Infinity }), code('KV_LOCKED'));
    await inWorker.close();
    openSync(path).close();
  }));

test('a database that replaces another is locked with it', () =>
  withPath(async (path) => {
    await remember(path);
    const db = await open(path);
    const backup = await new Response(db.backup()).blob();
    await db.close();
    // Each restore finds the directory unlocked, or as another one left it.
    const restorations = Array.from({ length: 4 }, () =>
      restore(path, backup, { overwrite: true }).then(
        () => 'done',
        (error: { code: string }) => error.code,
      ),
    );
    const opened = open(path).then(async (database) => {
      const value = await database.get('before');
      await database.set('after', 1);
      await database.close();
      return value;
    });
    assert.equal(await opened, 1);
    for (const result of await Promise.all(restorations)) assert.match(result, /^(done|KV_LOCKED)$/);
    await (await open(path, { lockTimeout: 0 })).close();
  }));

test('a failed open leaves nothing', () =>
  withPath(async (path) => {
    mkdirSync(path);
    await rejects(open(path, { worker: new URL('file:///missing.js'), thread: 'worker' }), 'KV_UNSUPPORTED');
    assert.equal(existsSync(join(path, 'data')), false);
    assert.equal(existsSync(lock(path)), false);
  }));
