// The command line tool. Most of its tests are those of `engine/cli`, which run against it too.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { open, valueCodecs } from 'mangrove-kv';
import { CLI, cli } from './support/cli.ts';
import { withPath } from './support/kit.ts';

function ok(args: readonly string[], input?: string | Uint8Array): string {
  const { code, out, err } = cli(args, input);
  assert.deepEqual([code, err], [0, ''], `${args.join(' ')}: ${out}`);
  return Buffer.from(out, 'latin1').toString('utf8');
}

function fails(args: readonly string[], exit: number, kv: string, input?: string): void {
  const { code, err } = cli(args, input);
  assert.equal(code, exit, `${args.join(' ')}: ${err}`);
  assert.ok(err.startsWith(`mangrove: ${kv}: `) && err.trimEnd().split('\n').length === 1, err);
}

test('records are written, read and removed', () => withPath(async (path) => {
  ok(['set', path, '"ada"', '{"born":1815}']);
  ok(['set', path, '-5', '-7.5', '--durability', 'none']);
  ok(['set', path, '[1,{"$date":"2020-01-01"}]', '--collection', 'other'], '{"$map":[[{"$bigint":"7"},{"$bytes":"AP8="}]]}');
  assert.equal(ok(['get', path, '"ada"']), '{"born":1815}\n');
  assert.equal(ok(['scan', path, '--reverse', '--limit', '1', '--keys-only']), '{"key":"ada"}\n');
  assert.equal(ok(['count', path, '--end', '"a"']), '1\n');
  const lines = ok(['dump', path]);
  assert.equal(lines.split('\n').length, 4);
  assert.equal(ok(['del', path, '"ada"']), 'true\n');
  assert.equal(ok(['del', path, '"ada"']), 'false\n');
  fails(['get', path, '"ada"'], 1, 'KV_NOT_FOUND');
  ok(['load', `${path}-copy`], lines);
  assert.equal(ok(['dump', `${path}-copy`]), lines);
  assert.deepEqual(readdirSync(path).sort(), ['data', 'log']);
  const db = await open(path);
  assert.equal(await db.get(-5), -7.5);
  assert.deepEqual(await db.collection('other').get([1, new Date('2020-01-01')]), new Map([[7n, Uint8Array.of(0, 255)]]));
  fails(['set', path, '1', '1'], 1, 'KV_LOCKED');
  assert.equal(ok(['count', path]), '1\n');
  await db.close();
}));

test('a backup is restored, and a damaged database is detected and recovered', () => withPath(async (path) => {
  ok(['load', path], Array.from({ length: 3000 }, (_, key) => `{"key":${key},"value":"value ${key}"}\n`).join(''));
  const report = JSON.parse(ok(['backup', path, `${path}-file`])) as Record<string, unknown>;
  assert.deepEqual([report['entries'], report['collections']], [3000, 1]);
  fails(['backup', path, `${path}-file`], 1, 'KV_EXISTS');
  const stream = cli(['backup', path, '-']);
  assert.equal(stream.code, 0);
  assert.deepEqual(JSON.parse(stream.err), report);
  assert.deepEqual(Buffer.from(stream.out, 'latin1'), readFileSync(`${path}-file`));
  const restored = JSON.parse(ok(['restore', '-', `${path}-restored`], Buffer.from(stream.out, 'latin1'))) as Record<string, unknown>;
  assert.deepEqual({ ...restored, pagesChecked: undefined }, { ...report, pagesChecked: undefined });
  fails(['restore', `${path}-file`, `${path}-restored`], 1, 'KV_EXISTS');
  assert.equal(ok(['dump', `${path}-restored`]), ok(['dump', path]));
  assert.equal((JSON.parse(ok(['verify', path])) as { ok: boolean }).ok, true);
  const data = join(path, 'data');
  const bytes = readFileSync(data);
  const at = bytes.length - 8000;
  bytes[at] = (bytes[at] as number) ^ 1;
  writeFileSync(data, bytes);
  const verified = cli(['verify', path]);
  assert.deepEqual([verified.code, (JSON.parse(verified.out) as { ok: boolean }).ok], [2, false], verified.err);
  const recovered = cli(['recover', path, `${path}-recovered`]);
  assert.equal(recovered.code, 2);
  assert.ok((JSON.parse(recovered.out) as { entries: number }).entries > 1000);
  assert.match(recovered.err, /copying[^]*\nmangrove: KV_CORRUPT: /);
  assert.equal((JSON.parse(ok(['verify', `${path}-recovered`])) as { ok: boolean }).ok, true);
  fails(['recover', path, `${path}-recovered`], 1, 'KV_EXISTS');
}));

test('acknowledged records are there after the loading process is killed', () => withPath(async (path) => {
  const [command, ...args] = CLI as [string, ...string[]];
  const child = spawn(command, [...args, 'load', path, '--ack', '--batch', '5', '--durability', 'relaxed'], { stdio: ['pipe', 'pipe', 'inherit'] });
  for (let key = 0; key < 20; key++) child.stdin.write(`{"key": ${key} ,"value":[${key}]}\n`);
  const acks = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  for (let key = 0; key < 20; key++) assert.equal((await acks.next()).value, String(key));
  child.kill('SIGKILL');
  await once(child, 'exit');
  assert.equal(ok(['count', path]), '20\n');
  fails(['load', path], 1, 'KV_INVALID_ARGUMENT', '{"key":100,"value":1}\n{"key":101}\n');
  assert.equal(ok(['count', path]), '20\n');
}));

test('compact, stat and bench print their figures', () => withPath(async (path) => {
  ok(['load', path], Array.from({ length: 2000 }, (_, key) => `{"key":${key},"value":"${`${key} `.repeat(100)}"}\n`).join(''));
  ok(['load', path], Array.from({ length: 2000 }, (_, key) => `{"key":${key},"value":0}\n`).join(''));
  const compacted = JSON.parse(ok(['compact', path])) as { end: string; fileSizeBefore: number; fileSizeAfter: number };
  assert.ok(compacted.end === 'done' && compacted.fileSizeAfter < compacted.fileSizeBefore, JSON.stringify(compacted));
  const stat = JSON.parse(ok(['stat', path])) as Record<string, unknown>;
  assert.equal(stat['fileSize'], compacted.fileSizeAfter);
  assert.deepEqual(stat['collections'], [{ name: '', count: 2000, keyCodec: 'any', valueCodec: 'structured' }]);
  const figures = JSON.parse(ok(['bench', `${path}-bench`, '--count', '500', '--durability', 'relaxed'])) as Record<string, number>;
  assert.ok((figures['setsPerSecond'] as number) > 0 && figures['count'] === 500);
  assert.equal(existsSync(`${path}-bench`), false);
}));

/** An array with holes where `elements` has them, and named properties. */
function withNames(elements: unknown[], names: Record<string, unknown>): unknown[] {
  return Object.assign(elements, names);
}

test('dump and load keep shared buffers and the structure of arrays', () => withPath(async (path) => {
  const buffer = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8).buffer;
  const sparse: unknown[] = [];
  sparse[4_000_000_000] = 1;
  const values = [
    'xaby'.match(/(?<l>a)b/), withNames([1, , 3], { a: [withNames([], { b: 1 })] }), sparse, withNames([1], { '\ud800': 1 }), withNames([], { $bytes: 1 }),
    [new Uint16Array(buffer, 2, 1), buffer, new DataView(buffer, 1), { kept: new Uint8Array(8) }],
    [new Uint8Array(buffer, 1, 4), new Uint8Array(buffer, 3)], [new Uint8Array(buffer), buffer],
  ];
  const db = await open(path);
  await db.setMany(values.map((value, key) => [key, value]));
  await db.set('names', withNames([1, , 3], { index: 2 }));
  await db.set('views', [new Uint8Array(buffer, 0, 2), new Uint8Array(buffer, 1, 2)]);
  await db.close();
  assert.equal(ok(['get', path, '"names"']), '{"$array":[[1,{"$hole":true},3],{"index":2}]}\n');
  assert.equal(ok(['get', path, '"views"']), '[{"$buffer":["Uint8Array","AQID",0,2]},{"$buffer":["Uint8Array",1,1,2]}]\n');
  ok(['load', `${path}-copy`], ok(['dump', path]));
  // The same bytes mean the same values.
  const raw = async (of: string): Promise<Uint8Array[]> => {
    const opened = await open(of, { readOnly: true });
    const stored: unknown[] = [];
    for await (const value of opened.values()) stored.push(value);
    await opened.close();
    return stored.map((value) => valueCodecs.structured().encode(value));
  };
  assert.deepEqual(await raw(`${path}-copy`), await raw(path));
}));

test('an incremental backup is added to what an earlier one restored', () => withPath(async (path) => {
  const db = await open(path, { feed: { retainCommits: 100 } });
  await db.set(1, 'first');
  await db.close();
  const first = JSON.parse(ok(['backup', path, `${path}-full`])) as { version: number };
  ok(['restore', `${path}-full`, `${path}-copy`]);
  ok(['set', path, '2', '"second"']);
  ok(['backup', path, `${path}-more`, '--since', String(first.version)]);
  ok(['restore', `${path}-more`, `${path}-copy`, '--incremental']);
  assert.equal(ok(['dump', `${path}-copy`]), ok(['dump', path]));
}));

test('wrong usage is explained', () => withPath(async (path) => {
  for (const args of [[], ['none'], ['get', path], ['count', path, '--nonsense'], ['load', path, '--batch', '0'], ['scan', path, 'more'], ['scan', path, '--limit', 'x']]) {
    const { code, out, err } = cli(args);
    assert.deepEqual([code, out], [1, ''], args.join(' '));
    assert.match(err, /Usage: mangrove-kv|For more information, try '--help'/);
  }
  for (const args of [['--help'], ['help', 'load'], ['verify', '--help'], ['--version']]) assert.match(ok(args), /mangrove/i);
  fails(['count', path], 1, 'KV_NOT_FOUND');
  fails(['set', path, '{}', '1'], 1, 'KV_INVALID_KEY');
  fails(['set', path, '1', '{"$what":1}'], 1, 'KV_INVALID_ARGUMENT');
  assert.equal(existsSync(path), false);
}));

test('load acknowledges each record before its input ends', () => withPath(async (path) => {
  const [command, ...first] = CLI as [string, ...string[]];
  const child = spawn(command, [...first, 'load', path, '--ack'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  for (let key = 0; key < 5; key++) {
    child.stdin.write(`{"key":${key},"value":1}\n`);
    assert.equal((await lines.next()).value, String(key));
  }
  const ended = new Promise((resolve) => child.on('close', resolve));
  child.stdin.end();
  assert.equal(await ended, 0);
  assert.equal(cli(['count', path]).out, '5\n');
}));
