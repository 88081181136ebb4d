// backup, restore, compact, recover, and the key of an encrypted database.
import assert from 'node:assert/strict';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import { filesIn, numbered, reading, run, withPlace } from './support/tool.ts';
import type { Place } from './support/tool.ts';

const versionOf = (db: string): unknown => run(['stat', db]).json()['version'];

test(
  'a backup to a file is restored',
  withPlace((place) => {
    const db = place.loaded('db', numbered(3000));
    run(['set', db, '"large"', `"${'x'.repeat(90_000)}"`]).ok();
    run(['set', db, '1', '2', '--collection', 'other']).ok();
    const [file, copy] = [place.path('file'), place.path('deep/er/copy')];
    const saved = run(['backup', db, file]).json();
    assert.deepEqual(
      [saved['entries'], saved['collections'], saved['version'], saved['bytes']],
      [3002, 2, versionOf(db), statSync(file).size],
    );
    assert.match(String(saved['databaseId']), /^[\da-f]{32}$/);
    const { pagesChecked, ...restored } = run(['restore', file, copy]).json();
    assert.ok((pagesChecked as number) > 0);
    assert.deepEqual(restored, saved);
    assert.equal(run(['dump', copy]).ok(), run(['dump', db]).ok());
    assert.equal(versionOf(copy), versionOf(db));
    run(['verify', copy]).ok();
    assert.deepEqual(
      readdirSync(copy).filter((name) => name !== 'data' && name !== 'log'),
      [],
    );
  }),
);

test(
  'pipes work too',
  withPlace((place) => {
    const db = place.loaded('db', numbered(500));
    const stream = run(['backup', db, '-']);
    assert.deepEqual([stream.code, (JSON.parse(stream.err) as { bytes: number }).bytes], [0, stream.bytes.length]);
    run(['backup', db, place.path('file')]).ok();
    assert.deepEqual(stream.bytes, readFileSync(place.path('file')));
    const copy = place.path('copy');
    assert.equal(run(['restore', '-', copy], stream.bytes).json()['entries'], 500);
    assert.equal(run(['dump', copy]).ok(), run(['dump', db]).ok());
  }),
);

test(
  'progress is shown if asked for',
  withPlace((place) => {
    const db = place.loaded('db', numbered(10));
    const [file, copy] = [place.path('file'), place.path('copy')];
    for (const args of [
      ['backup', db, file],
      ['restore', file, copy],
    ]) {
      const { code, out, err } = run([...args, '--progress']);
      assert.equal(code, 0);
      assert.equal((JSON.parse(out) as { entries: number }).entries, 10);
      assert.ok(err.trimEnd().split('\n').at(-1)?.startsWith('100 %, 10 of 10 records, '), err);
    }
  }),
);

test(
  'commits since a backup are added to what was restored from it',
  withPlace(async (place) => {
    const db = place.loaded('db', numbered(100));
    const [full, copy] = [place.path('full'), place.path('copy')];
    run(['set', db, '1', '"changed"']).ok();
    run(['backup', db, full, '--since', '1']).fails(1, 'KV_TRUNCATED_FEED');
    assert.equal(existsSync(full), false);
    // Once a program has begun a feed, it includes the tool's commits.
    await (await open(db, { feed: { retainCommits: 100 } })).close();
    const base = String(run(['backup', db, full]).json()['version']);
    run(['restore', full, copy]).ok();
    let version = base;
    for (let round = 0; round < 3; round++) {
      run(['set', db, String(round), '"new"']).ok();
      run(['del', db, String(round + 10)]).ok();
      const file = place.path(`later${round}`);
      const saved = run(['backup', db, file, '--since', version]).json();
      assert.deepEqual([String(saved['base']), saved['commits']], [version, 2]);
      assert.equal(saved['bytes'], statSync(file).size);
      const restored = run(['restore', file, copy, '--incremental', '--progress']);
      assert.ok(restored.err.trimEnd().split('\n').at(-1)?.startsWith('100 %, 2 of 2 commits, '), restored.err);
      const { base: _, ...expected } = saved;
      assert.deepEqual(JSON.parse(restored.out), expected);
      version = String(saved['version']);
    }
    assert.equal(run(['dump', copy]).ok(), run(['dump', db]).ok());
    assert.equal(versionOf(copy), versionOf(db));
    run(['verify', copy]).ok();
    // Incremental backups apply only in order, and only if they are whole.
    const [first, last, other] = [place.path('later0'), place.path('later2'), place.path('other')];
    run(['restore', first, copy, '--incremental']).fails(1, 'KV_INVALID_ARGUMENT');
    run(['restore', full, copy, '--incremental']).fails(1, 'KV_INVALID_ARGUMENT');
    run(['restore', first, place.path('new')]).fails(1, 'KV_INVALID_ARGUMENT');
    run(['restore', full, other]).ok();
    run(['restore', last, other, '--incremental']).fails(1, 'KV_INVALID_ARGUMENT');
    const whole = readFileSync(first);
    writeFileSync(first, whole.subarray(0, -1));
    run(['restore', first, other, '--incremental']).fails(2, 'KV_CORRUPT');
    assert.equal(String(versionOf(other)), base);
    run(['restore', '-', other, '--incremental'], whole).ok();
    assert.deepEqual(
      readdirSync(other).filter((name) => name !== 'data' && name !== 'log'),
      [],
    );
    run(['backup', db, '-', '--since', version]).fails(1, 'KV_INVALID_ARGUMENT');
    const stream = run(['backup', db, '-', '--since', base]);
    assert.deepEqual([stream.code, (JSON.parse(stream.err) as { commits: number }).commits], [0, 6]);
    // Also to a single file.
    const single = place.path('single.mangrove');
    run(['restore', full, place.path('unpacked')]).ok();
    copyFileSync(place.path('unpacked/data'), single);
    run(['restore', '-', single, '--incremental'], stream.bytes).ok();
    assert.equal(run(['dump', single]).ok(), run(['dump', db]).ok());
    assert.deepEqual(
      readdirSync(place.path()).filter((name) => name.startsWith('single')),
      ['single.mangrove'],
    );
  }),
);

test(
  'nothing is replaced',
  withPlace((place) => {
    const db = place.loaded('db', numbered(10));
    const file = place.path('file');
    run(['backup', db, file]).ok();
    const before = readFileSync(file);
    run(['backup', db, file]).fails(1, 'KV_EXISTS');
    assert.deepEqual(readFileSync(file), before);
    run(['set', db, '"new"', '1']).ok();
    run(['restore', file, db]).fails(1, 'KV_EXISTS');
    assert.equal(run(['get', db, '"new"']).ok(), '1\n');
  }),
);

test(
  'damaged, foreign and missing backups are reported and leave nothing',
  withPlace((place) => {
    const db = place.loaded('db', numbered(1000));
    const [file, copy] = [place.path('file'), place.path('copy')];
    run(['backup', db, file]).ok();
    const whole = readFileSync(file);
    const flipped = Uint8Array.from(whole);
    flipped[whole.length >> 1]! ^= 1;
    for (const damaged of [flipped, whole.subarray(0, -1), 'something else', '']) {
      writeFileSync(file, damaged);
      run(['restore', file, copy]).fails(2, 'KV_CORRUPT');
      assert.equal(existsSync(copy), false);
    }
    mkdirSync(copy);
    run(['restore', file, copy]).fails(2, 'KV_CORRUPT');
    assert.deepEqual(readdirSync(copy), [], 'the directory was there before');
    run(['restore', place.path('no file'), copy]).fails(1, 'KV_IO');
    run(['backup', place.path('no database'), file]).fails(1, 'KV_NOT_FOUND');
    run(['backup', db, place.path('no directory/file')]).fails(1, 'KV_IO');
  }),
);

test(
  'restore replaces a database on request',
  withPlace((place) => {
    const db = place.loaded('db', numbered(300));
    const file = place.path('file');
    const saved = run(['backup', db, file]).json();
    run(['set', db, '"later"', '1']).ok();
    assert.ok(run(['restore', file, db]).fails(1, 'KV_EXISTS').err.includes('--overwrite'));
    run(['get', db, '"later"']).ok();
    // Files that an interrupted restore left do not matter.
    for (const name of ['data.restoring', 'log.restoring', 'backup.restoring'])
      writeFileSync(place.path(`db/${name}`), 'half of it');
    writeFileSync(place.path('db/notes'), 'mine');
    assert.equal(run(['restore', file, db, '--overwrite']).json()['version'], saved['version']);
    run(['get', db, '"later"']).fails(1, 'KV_NOT_FOUND');
    run(['verify', db]).ok();
    assert.deepEqual(readdirSync(db).sort(), ['data', 'notes']);
    // A damaged or truncated backup changes nothing.
    const [bytes, before] = [readFileSync(file), readFileSync(place.path('db/data'))];
    writeFileSync(file, bytes.subarray(0, -1));
    run(['restore', file, db, '--overwrite']).fails(2, 'KV_CORRUPT');
    assert.deepEqual(readFileSync(place.path('db/data')), before);
    assert.equal(existsSync(place.path('db/data.restoring')), false);
    const fresh = place.path('fresh');
    run(['restore', file, fresh, '--overwrite']).fails(2, 'KV_CORRUPT');
    assert.equal(existsSync(fresh), false);
    writeFileSync(file, bytes);
    run(['restore', file, fresh, '--overwrite']).ok();
    assert.equal(run(['dump', fresh]).ok(), run(['dump', db]).ok());
    run(['restore', file, file, '--overwrite']).fails(1, 'KV_EXISTS');
  }),
);

test(
  'files of another program stay',
  withPlace((place) => {
    const db = place.loaded('db', numbered(10));
    const [file, other] = [place.path('file'), place.path('other')];
    run(['backup', db, file]).ok();
    for (const name of ['data', 'log']) {
      mkdirSync(other);
      writeFileSync(place.path(`other/${name}`), 'columns,of,another,program\n'.repeat(1000));
      const before = filesIn(other);
      assert.ok(run(['restore', file, other, '--overwrite']).fails(2, 'KV_CORRUPT').err.includes('--force'));
      assert.deepEqual(filesIn(other), before, 'not even a lock is left');
      run(['restore', file, other, '--overwrite', '--force']).ok();
      assert.equal(run(['count', other]).ok(), '10\n');
      rmSync(other, { recursive: true });
    }
  }),
);

test(
  'a backup is no database and says so',
  withPlace((place) => {
    const db = place.loaded('db', numbered(10));
    const [file, out] = [place.path('file'), place.path('out')];
    run(['backup', db, file]).ok();
    const before = readFileSync(file);
    for (const args of [
      ...reading(file),
      ['set', file, '1', '2'],
      ['del', file, '1'],
      ['compact', file],
      ['list', file],
      ['load', file],
      ['recover', file, out],
    ]) {
      assert.ok(run(args).fails(1, 'KV_INVALID_ARGUMENT').err.includes('restore '), args.join(' '));
    }
    assert.deepEqual(readFileSync(file), before);
    assert.equal(existsSync(out), false);
  }),
);

/** Records whose values compression makes little smaller. */
function noise(count: number): string {
  let state = 1;
  const word = (): string => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return (state >>> 0).toString(16).padStart(8, '0');
  };
  return Array.from(
    { length: count },
    (_, key) => `{"key":${key},"value":"${Array.from({ length: 30 }, word).join('')}"}\n`,
  ).join('');
}

/** Creates a database in which every block was written twice, so that half of its file is free. */
function hollow(place: Place): string {
  const db = place.loaded('db', noise(10_000));
  run(['load', db], numbered(10_000)).ok();
  return db;
}

test(
  'compact gives space back and changes nothing else',
  withPlace((place) => {
    const db = hollow(place);
    const [dumped, size] = [run(['dump', db]).ok(), statSync(place.path('db/data')).size];
    const compacted = run(['compact', db, '--progress']);
    assert.match(compacted.err, / bytes moved, the file has /);
    const report = JSON.parse(compacted.out) as Record<string, unknown>;
    const after = statSync(place.path('db/data')).size;
    assert.deepEqual(
      [compacted.code, report['end'], report['fileSizeBefore'], report['fileSizeAfter']],
      [0, 'done', size, after],
    );
    assert.ok(after < size * 0.6, `${after} of ${size}`);
    assert.ok((report['movedSize'] as number) > 0);
    assert.equal(run(['dump', db]).ok(), dumped);
    run(['verify', db]).ok();
    const again = run(['compact', db]).json();
    assert.deepEqual([again['fileSizeAfter'], again['movedSize']], [after, 0]);
    assert.equal(run(['stat', db]).json()['fileSize'], after);
  }),
);

test(
  'a single file stays one when it is compacted',
  withPlace((place) => {
    hollow(place);
    mkdirSync(place.path('single'));
    const file = place.path('single/exported.mangrove');
    renameSync(place.path('db/data'), file);
    const report = run(['compact', file]).json<Record<string, number>>();
    assert.equal(report['fileSizeAfter'], statSync(file).size);
    assert.ok((report['fileSizeAfter'] as number) < (report['fileSizeBefore'] as number));
    assert.equal(readdirSync(place.path('single')).length, 1);
    assert.equal(run(['count', file]).ok(), '10000\n');
  }),
);

test(
  'compact reports damage',
  withPlace((place) => {
    const db = hollow(place);
    const data = place.path('db/data');
    const bytes = readFileSync(data);
    writeFileSync(data, bytes.fill(0x5a, bytes.length >> 3));
    run(['compact', db]).fails(2, 'KV_CORRUPT');
    writeFileSync(data, 'something else');
    run(['compact', db]).fails(2, 'KV_CORRUPT');
    assert.equal(readFileSync(data, 'utf8'), 'something else');
  }),
);

test(
  'commits only in the log are read, verified and recovered',
  withPlace(async (place) => {
    const db = await place.killed('db', 100);
    assert.ok(statSync(place.path('db/log')).size > 0);
    const verified = run(['verify', db]).json();
    assert.deepEqual([verified['ok'], verified['entries']], [true, 100]);
    const before = [readFileSync(place.path('db/data')), readFileSync(place.path('db/log'))];
    const target = place.path('new');
    const recovered = run(['recover', db, target]);
    assert.equal(recovered.code, 0, recovered.err);
    assert.ok(recovered.err.includes('copying') && recovered.err.includes('verifying'));
    const report = JSON.parse(recovered.out) as {
      completeness: string;
      log: { state: string; appliedRecords: number };
      entries: number;
    };
    assert.deepEqual(
      [report.completeness, report.log.state, report.log.appliedRecords, report.entries],
      ['exact', 'intact', 10, 100],
    );
    assert.equal(run(['dump', target]).ok(), run(['dump', db]).ok());
    assert.equal(existsSync(place.path('new/lock')), false);
    assert.deepEqual([readFileSync(place.path('db/data')), readFileSync(place.path('db/log'))], before);
  }),
);

test(
  'losses are reported',
  withPlace(async (place) => {
    const db = await place.killed('db', 100);
    const log = place.path('db/log');
    const bytes = readFileSync(log);
    // After the header of the half, in the first record.
    bytes[1100]! ^= 1;
    writeFileSync(log, bytes);
    assert.ok(run(['verify', db]).fails(2, 'KV_CORRUPT').err.includes(' recover"'));
    const target = place.path('new');
    const recovered = run(['recover', db, target]);
    assert.equal(recovered.code, 2, recovered.err);
    assert.ok(recovered.err.trimEnd().split('\n').at(-1)?.startsWith('mangrove: KV_CORRUPT: '));
    const report = JSON.parse(recovered.out) as {
      completeness: string;
      log: { state: string; lostCommits: number };
      entries: number;
    };
    assert.deepEqual(
      [report.completeness, report.log.state, report.log.lostCommits, report.entries],
      ['salvage', 'damaged', 1, 90],
    );
    run(['verify', target]).ok();
    // An existing target is left alone.
    run(['recover', db, target]).fails(1, 'KV_EXISTS');
    run(['recover', place.path('none'), place.path('other')]).fails(1, 'KV_NOT_FOUND');
    run(['recover', db, place.path('new/data')]).fails(1, 'KV_EXISTS');
    mkdirSync(place.path('foreign'));
    writeFileSync(place.path('foreign/data'), 'something else');
    assert.equal(run(['recover', place.path('foreign'), place.path('other')]).code, 2);
    assert.equal(existsSync(place.path('other/data')), false);
  }),
);

function crc32(bytes: Uint8Array): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb8_8320 : crc >>> 1;
  }
  return ~crc >>> 0;
}

/** Clears the flag by which a superblock says that the database was closed. */
function openSuperblocks(data: Buffer): void {
  for (const at of [0, 2048, 4096, 6144]) {
    data[at + 153] = 0;
    data.writeUInt32LE(crc32(data.subarray(at, at + 508)), at + 508);
  }
}

test(
  'an exported file that was not closed',
  withPlace((place) => {
    const db = place.loaded('db', numbered(50));
    const exported = place.path('exported.mangrove');
    copyFileSync(place.path('db/data'), exported);
    assert.equal(run(['count', exported]).ok(), '50\n');
    const data = readFileSync(exported);
    openSuperblocks(data);
    writeFileSync(exported, data);
    // Reading a closed export leaves no log beside it.
    assert.equal(existsSync(`${exported}.log`), false);
    for (const verb of ['verify', 'count', 'dump']) {
      const { err } = run([verb, exported]).fails(2, 'KV_CORRUPT');
      assert.ok(err.includes('"log" is missing') && err.includes(' recover"'), err);
    }
    const target = place.path('new');
    const recovered = run(['recover', exported, target]);
    assert.equal(recovered.code, 2, recovered.err);
    const report = JSON.parse(recovered.out) as { completeness: string; log: { state: string } };
    assert.deepEqual([report.completeness, report.log.state], ['reconstructed', 'missing']);
    assert.equal(run(['dump', target]).ok(), run(['dump', db]).ok());
  }),
);

const MARKER = 'c0nfid3nt1al';

function withKeys(place: Place): (...args: string[]) => ReturnType<typeof run> {
  const files: Record<string, string | Uint8Array> = {
    key: new Uint8Array(32).fill(7),
    hex: `${'07'.repeat(32)}\n`,
    other: new Uint8Array(32).fill(8),
    phrase: 'correct horse\n',
    short: new Uint8Array(31).fill(7),
    empty: '\n',
    bytes: Uint8Array.of(0xff, 0xfe),
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(place.path(name), content);
  // Arguments that begin with @ are paths.
  return (...args) =>
    run(args.map((argument) => (argument.startsWith('@') ? place.path(argument.slice(1)) : argument)));
}

const holdsMarker = (path: string): boolean =>
  (statSync(path).isFile() ? [path] : readdirSync(path).map((name) => `${path}/${name}`)).some((file) =>
    readFileSync(file).includes(MARKER),
  );

test(
  'every verb takes the key of an encrypted database',
  withPlace((place) => {
    const tool = withKeys(place);
    const value = `"${MARKER}"`;
    tool('--key-file', '@key', 'set', '@db', value, value).ok();
    assert.equal(holdsMarker(place.path('db')), false);
    for (const key of ['@key', '@hex']) assert.equal(tool('get', '@db', value, '--key-file', key).ok().trim(), value);
    for (const verb of ['scan', 'stat', 'verify', 'list']) tool(verb, '@db', '--key-file', '@key').ok();
    assert.equal(tool('count', '@db', '--key-file', '@key').ok().trim(), '1');
    const dumped = tool('dump', '@db', '--key-file', '@key').ok();
    run(['load', place.path('loaded'), '--key-file', place.path('other')], dumped).ok();
    assert.equal(holdsMarker(place.path('loaded')), false);
    assert.equal(tool('count', '@loaded', '--key-file', '@other').ok().trim(), '1');
    const saved = tool('backup', '@db', '@backup', '--key-file', '@key').json();
    assert.deepEqual([saved['entries'], saved['collections']], [1, 1]);
    assert.equal(holdsMarker(place.path('backup')), false);
    tool('restore', '@backup', '@restored').fails(1, 'KV_WRONG_KEY');
    tool('restore', '@backup', '@restored', '--key-file', '@other').fails(1, 'KV_WRONG_KEY');
    tool('restore', '@backup', '@restored', '--key-file', '@key').ok();
    assert.equal(holdsMarker(place.path('restored')), false);
    assert.equal(tool('recover', '@db', '@recovered', '--key-file', '@key').code, 0);
    assert.equal(holdsMarker(place.path('recovered')), false);
    assert.equal(tool('count', '@recovered', '--key-file', '@key').ok().trim(), '1');
    tool('bench', '@bench', '--count', '10', '--key-file', '@key').ok();
  }),
);

test(
  'wrong, missing and needless keys are refused',
  withPlace((place) => {
    const tool = withKeys(place);
    tool('set', '@db', '1', '2', '--key-file', '@key').ok();
    tool('get', '@db', '1').fails(1, 'KV_WRONG_KEY');
    tool('set', '@db', '1', '3').fails(1, 'KV_WRONG_KEY');
    tool('get', '@db', '1', '--key-file', '@other').fails(1, 'KV_WRONG_KEY');
    tool('get', '@db', '1', '--passphrase-file', '@phrase').fails(1, 'KV_WRONG_KEY');
    for (const file of ['@short', '@empty'])
      tool('get', '@db', '1', '--key-file', file).fails(1, 'KV_INVALID_ARGUMENT');
    tool('get', '@db', '1', '--key-file', '@missing').fails(1, 'KV_IO');
    for (const file of ['@empty', '@bytes'])
      tool('get', '@db', '1', '--passphrase-file', file).fails(1, 'KV_INVALID_ARGUMENT');
    tool('get', '@db', '1', '--passphrase-file', '@phrase', '--key-file', '@key').fails(1, 'KV_INVALID_ARGUMENT');
    tool('set', '@plain', '1', '2').ok();
    tool('get', '@plain', '1', '--key-file', '@key').fails(1, 'KV_NOT_ENCRYPTED');
    tool('change-key', '@plain', '--new-key-file', '@key').fails(1, 'KV_NOT_ENCRYPTED');
    assert.equal(tool('get', '@db', '1', '--key-file', '@key').ok().trim(), '2');
  }),
);

test(
  'a key is changed for a passphrase and back',
  withPlace((place) => {
    const tool = withKeys(place);
    tool('set', '@db', '1', '2', '--key-file', '@key').ok();
    tool('change-key', '@db', '--key-file', '@key', '--new-passphrase-file', '@phrase', '--memory-kib', '64').ok();
    tool('get', '@db', '1', '--key-file', '@key').fails(1, 'KV_WRONG_KEY');
    assert.equal(tool('get', '@db', '1', '--passphrase-file', '@phrase').ok().trim(), '2');
    tool('change-key', '@db', '--passphrase-file', '@phrase', '--new-key-file', '@other').ok();
    tool('get', '@db', '1', '--passphrase-file', '@phrase').fails(1, 'KV_WRONG_KEY');
    assert.equal(tool('get', '@db', '1', '--key-file', '@other').ok().trim(), '2');
  }),
);

test(
  'everything is encrypted anew under the same key',
  withPlace((place) => {
    const tool = withKeys(place);
    tool('set', '@db', '1', '2', '--key-file', '@key').ok();
    tool('set', '@plain', '1', '2').ok();
    tool('reencrypt', '@plain').fails(1, 'KV_NOT_ENCRYPTED');
    tool('reencrypt', '@db').fails(1, 'KV_WRONG_KEY');
    const data = (): Buffer => readFileSync(place.path('db/data'));
    const before = data().subarray(168, 240);
    tool('reencrypt', '@db', '--key-file', '@key').ok();
    assert.notDeepEqual(data().subarray(168, 240), before);
    assert.equal(data()[164], 1, 'no previous key is left');
    assert.equal(tool('get', '@db', '1', '--key-file', '@key').ok().trim(), '2');
    tool('verify', '@db', '--key-file', '@key').ok();
  }),
);
