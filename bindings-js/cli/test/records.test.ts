// The verbs for records and collections do what they say.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { keyCodecs, open, valueCodecs } from 'mangrove-kv';
import { ended, linesIn, linesOf, numbered, run, start, withPlace } from './support/tool.ts';

test(
  'set, get and del',
  withPlace((place) => {
    const db = place.path('deep/er');
    assert.equal(run(['set', db, '"a"', '[1,{"b":null}]']).ok(), '');
    assert.equal(run(['get', db, '"a"']).ok(), '[1,{"b":null}]\n');
    run(['set', db, '-5'], ' {"from": "input"}\n').ok();
    assert.equal(run(['get', db, '-5']).ok(), '{"from":"input"}\n');
    run(['set', db, '-5', '-7.5', '--durability', 'none']).ok();
    assert.equal(run(['get', db, '-5']).ok(), '-7.5\n');
    run(['set', db, '"a"', '1', '--collection', 'other', '--durability', 'relaxed']).ok();
    assert.equal(run(['get', db, '"a"', '--collection', 'other']).ok(), '1\n');
    assert.equal(run(['del', db, '"a"']).ok(), 'true\n');
    assert.equal(run(['del', db, '"a"']).ok(), 'false\n');
    run(['get', db, '"a"']).fails(1, 'KV_NOT_FOUND');
    assert.equal(run(['get', db, '"a"', '--collection', 'other']).ok(), '1\n');
    assert.deepEqual(readdirSync(db).sort(), ['data', 'log'], 'the lock is given back');
  }),
);

test(
  'what the tool writes is what the package reads, and the other way round',
  withPlace(async (place) => {
    const path = place.path('db');
    run(['set', path, '"ada"', '{"born":1815}']).ok();
    run(['set', path, '-5', '-7.5', '--durability', 'none']).ok();
    run(
      ['set', path, '[1,{"$date":"2020-01-01"}]', '--collection', 'other'],
      '{"$map":[[{"$bigint":"7"},{"$bytes":"AP8="}]]}',
    ).ok();
    assert.equal(run(['scan', path, '--reverse', '--limit', '1', '--keys-only']).ok(), '{"key":"ada"}\n');
    assert.equal(run(['count', path, '--end', '"a"']).ok(), '1\n');
    const lines = run(['dump', path]).ok();
    assert.equal(lines.split('\n').length, 4);
    run(['load', `${path}-copy`], lines).ok();
    assert.equal(run(['dump', `${path}-copy`]).ok(), lines);
    const db = await open(path, { share: false });
    assert.equal(await db.get(-5), -7.5);
    assert.deepEqual(
      await db.collection('other').get([1, new Date('2020-01-01')]),
      new Map([[7n, Uint8Array.of(0, 255)]]),
    );
    run(['set', path, '1', '1']).fails(1, 'KV_LOCKED');
    assert.equal(run(['count', path]).ok(), '2\n');
    await db.close();
  }),
);

test(
  'byte order marks and lone surrogates are read',
  withPlace((place) => {
    const db = place.path('db');
    run(['set', db, '1'], '\uFEFF[1]\n').ok();
    run(['load', db], '\uFEFF{"key":2,"value":"\\ud83d"}\r\n{"key":"\\ude00","value":3}\n').ok();
    assert.equal(
      run(['scan', db]).ok(),
      '{"key":1,"value":[1]}\n{"key":2,"value":{"$utf16":[55357]}}\n{"key":{"$utf16":[56832]},"value":3}\n',
    );
    assert.equal(run(['get', db, '"\\ude00"']).ok(), '3\n');
    run(['load', db], '{"key":4,"value":4}\n\uFEFF{"key":5,"value":5}\n').fails(1, 'KV_INVALID_ARGUMENT');
  }),
);

test(
  'scan and count',
  withPlace((place) => {
    const db = place.loaded('db', numbered(10));
    const keys = (...options: string[]): unknown[] => {
      const found = linesIn<{ key: unknown }>(run(['scan', db, '--keys-only', ...options]).ok()).map(({ key }) => key);
      if (!options.includes('--reverse') && !options.includes('--limit'))
        assert.equal(run(['count', db, ...options]).ok(), `${found.length}\n`);
      return found;
    };
    assert.equal(keys().length, 10);
    assert.deepEqual(keys('--start', '7'), [7, 8, 9]);
    assert.deepEqual(keys('--end', '2'), [0, 1]);
    assert.deepEqual(keys('--start', '-3.5', '--end', '1e0'), [0]);
    assert.deepEqual(keys('--start', '5', '--end', '2'), []);
    assert.deepEqual(keys('--start', '"text"'), []);
    assert.deepEqual(keys('--reverse', '--limit', '2'), [9, 8]);
    assert.deepEqual(keys('--reverse', '--start', '3', '--end', '5'), [4, 3]);
    assert.deepEqual(keys('--limit', '0'), []);
    assert.equal(run(['scan', db, '--limit', '1']).ok(), '{"key":0,"value":"value 0"}\n');
    assert.equal(run(['scan', db, '--limit', '1', '--keys-only']).ok(), '{"key":0}\n');
  }),
);

test(
  'prefixes',
  withPlace((place) => {
    const keys = ['["a",1]', '["a",2]', '["a\\u0000"]', '["b"]', '"ab"', '"abc"', '"b"', '{"$bytes":"AQI="}'];
    const db = place.loaded('db', keys.map((key) => `{"key":${key},"value":0}\n`).join(''));
    const count = (...options: string[]): string => run(['count', db, ...options]).ok();
    assert.equal(count('--prefix', '["a"]'), '2\n');
    assert.equal(count('--prefix', '[]'), '4\n');
    assert.equal(count('--prefix', '"ab"'), '2\n');
    assert.equal(count('--prefix', '""'), '3\n');
    assert.equal(count('--prefix', '{"$bytes":"AQ=="}'), '1\n');
    assert.equal(count('--prefix', '"ab"', '--start', '"abb"'), '1\n');
    assert.equal(count('--prefix', '"ab"', '--start', '"a"', '--end', '"abb"'), '1\n');
    run(['count', db, '--prefix', '5']).fails(1, 'KV_INVALID_ARGUMENT');
  }),
);

test(
  'stat names collections and codecs',
  withPlace((place) => {
    const db = place.loaded(
      'db',
      `{"key":1,"value":1}
{"collection":"raw","keyCodec":"bytes","valueCodec":"bytes"}
{"collection":"own","keyCodec":"mine","valueCodec":"json"}`,
    );
    const stat = run(['stat', db]).json();
    assert.equal(stat['entries'], 1);
    assert.equal(stat['version'], stat['durableVersion']);
    assert.ok((stat['fileSize'] as number) > 0);
    assert.deepEqual(stat['collections'], [
      { name: '', count: 1, keyCodec: 'any', valueCodec: 'structured' },
      { name: 'own', count: 0, keyCodec: 'mine', valueCodec: 'json' },
      { name: 'raw', count: 0, keyCodec: 'bytes', valueCodec: 'bytes' },
    ]);
  }),
);

test(
  'stat shows every figure of the package, including new ones',
  withPlace(async (place) => {
    const path = place.loaded('db', numbered(10));
    const stat = run(['stat', path]).json();
    const db = await open(path, { readOnly: true });
    const figures = Object.keys(await db.stats());
    await db.close();
    // Indexes are shown with their collections; the others are of this process, or follow from another figure.
    const apart = ['indexes', 'maxExpiringKeySize', 'memorySize', 'logSize'];
    const shown = [...figures.filter((name) => !apart.includes(name)), 'logFileSize', 'oldestSnapshot'];
    assert.deepEqual(Object.keys(stat).sort(), [...new Set(shown)].sort());
    assert.equal(stat['recoveredFromOlder'], false);
    assert.equal(stat['oldestSnapshot'], null);
    const unclosed = run(['stat', await place.killed('unclosed', 100)]).json();
    assert.ok((unclosed['logFileSize'] as number) > 0);
  }),
);

test(
  'verify reports what it checked',
  withPlace((place) => {
    const db = place.loaded('db', numbered(5000));
    const report = run(['verify', db]).json();
    assert.deepEqual([report['ok'], report['entries'], report['problems']], [true, 5000, []]);
    assert.ok((report['pagesChecked'] as number) > 3);
  }),
);

test(
  'dump tells collections apart',
  withPlace((place) => {
    const db = place.loaded('db', '{"key":1,"value":1}\n{"collection":"a \\"b\\"","key":2,"value":2}\n');
    assert.equal(
      run(['dump', db]).ok(),
      '{"collection":"","key":1,"value":1}\n{"collection":"a \\"b\\"","key":2,"value":2}\n',
    );
    const one = run(['dump', db, '--collection', 'a "b"']).ok();
    assert.equal(one, '{"key":2,"value":2}\n');
    assert.equal(run(['dump', db, '--collection', '']).ok(), '{"key":1,"value":1}\n');
    const copy = place.path('copy');
    run(['load', copy, '--collection', 'c'], one).ok();
    assert.equal(run(['scan', copy, '--collection', 'c']).ok(), '{"key":2,"value":2}\n');
    run(['dump', db, '--collection', 'c']).fails(1, 'KV_NOT_FOUND');
  }),
);

test(
  'load batches and acknowledges',
  withPlace((place) => {
    const db = place.path('db');
    const lines = '{"key":[1, "a"],"value":0}\n\n  \r\n{"key":null,"value":null}\r\n{"value":0,"key":{"$bigint":"7"}}';
    const acks = '[1, "a"]\nnull\n{"$bigint":"7"}\n';
    assert.equal(run(['load', db, '--ack', '--batch', '2'], lines).ok(), acks);
    assert.equal(run(['count', db]).ok(), '3\n');
    const version = (path: string): unknown => run(['stat', path]).json()['version'];
    assert.equal(version(db), 2, 'two batches are two commits');
    const large = place.path('large');
    run(['load', large, '--durability', 'none'], numbered(2500)).ok();
    assert.deepEqual([run(['count', large]).ok(), version(large)], ['2500\n', 3]);
    run(['load', db]).ok();
    assert.equal(version(db), 2, 'nothing to load is no commit');
    assert.equal(run(['load', place.path('relaxed'), '--ack', '--durability', 'relaxed'], lines).ok(), acks);
  }),
);

test(
  'a program can wait for each acknowledgement',
  withPlace(async (place) => {
    for (const options of [['--batch', '1'], []]) {
      const db = place.path(`db ${options.length}`);
      const child = start(['load', db, '--ack', ...options]);
      const [next, end] = [linesOf(child), ended(child)];
      for (let key = 0; key < 5; key++) {
        child.stdin.write(`{"key":${key},"value":1}\n`);
        assert.equal(await next(), String(key));
      }
      // Also in the middle of a line.
      child.stdin.write('{"key":5,"value":1}\n{"key":6,');
      assert.equal(await next(), '5');
      child.stdin.write('"value":1}\n');
      assert.equal(await next(), '6');
      child.stdin.end();
      assert.equal(await end, 0);
      assert.equal(run(['count', db]).ok(), '7\n');
    }
  }),
);

test(
  'acknowledged records are there after the loading process is killed',
  withPlace(async (place) => {
    const path = place.path('db');
    const child = start(['load', path, '--ack', '--batch', '5', '--durability', 'relaxed']);
    const [next, end] = [linesOf(child), ended(child)];
    for (let key = 0; key < 20; key++) child.stdin.write(`{"key": ${key} ,"value":[${key}]}\n`);
    for (let key = 0; key < 20; key++) assert.equal(await next(), String(key));
    child.kill('SIGKILL');
    await end;
    assert.equal(run(['count', path]).ok(), '20\n');
    run(['load', path], '{"key":100,"value":1}\n{"key":101}\n').fails(1, 'KV_INVALID_ARGUMENT');
    assert.equal(run(['count', path]).ok(), '20\n');
  }),
);

test(
  'collections of bytes',
  withPlace((place) => {
    const db = place.path('db');
    run(['load', db, '--raw', 'utf8'], '{"keyCodec":"bytes","valueCodec":""}\n{"key":"k","value":"é"}\n').ok();
    run(['set', db, '{"$bytes":"/w=="}', '{"$bytes":""}']).ok();
    run(['set', db, '"feff"', '"00"', '--raw', 'hex']).ok();
    const scan = (...options: string[]): string => run(['scan', db, ...options]).ok();
    assert.equal(
      scan(),
      '{"key":{"$bytes":"aw=="},"value":{"$bytes":"w6k="}}\n{"key":{"$bytes":"/v8="},"value":{"$bytes":"AA=="}}\n{"key":{"$bytes":"/w=="},"value":{"$bytes":""}}\n',
    );
    assert.equal(
      scan('--raw', 'utf8'),
      '{"key":"k","value":"é"}\n{"key":{"$bytes":"/v8="},"value":"\\u0000"}\n{"key":{"$bytes":"/w=="},"value":""}\n',
    );
    assert.equal(scan('--raw', 'hex', '--start', '"fe"', '--limit', '1'), '{"key":"feff","value":"00"}\n');
    assert.equal(run(['get', db, '"aw=="', '--raw', 'base64']).ok(), '"w6k="\n');
    for (const form of ['utf8', 'hex', 'base64']) {
      const copy = place.path(form);
      run(['load', copy, '--raw', form], run(['dump', db, '--raw', form]).ok()).ok();
      assert.equal(run(['dump', copy]).ok(), run(['dump', db]).ok());
    }
    run(['set', db, '"a"', '"b"']).fails(1, 'KV_INVALID_KEY');
    run(['set', db, '"abc"', '"b"', '--raw', 'hex']).fails(1, 'KV_INVALID_KEY');
    run(['set', db, '{"$bytes":""}', '1', '--raw', 'utf8']).fails(1, 'KV_INVALID_VALUE');
  }),
);

test(
  'collections without codecs, as native programs make them',
  withPlace((place) => {
    const db = place.loaded(
      'db',
      '{"keyCodec":"","valueCodec":""}\n{"key":{"$bytes":"AQ=="},"value":{"$bytes":"Ag=="}}\n',
    );
    assert.deepEqual(run(['list', db]).json(), { name: '', count: 1, keyCodec: '', valueCodec: '' });
    assert.equal(run(['get', db, '"01"', '--raw', 'hex']).ok(), '"02"\n');
    assert.equal(run(['del', db, '"01"', '--raw', 'hex']).ok(), 'true\n');
    assert.equal(run(['dump', db]).ok(), '{"collection":"","keyCodec":"","valueCodec":""}\n');
  }),
);

test(
  'bench prints figures and leaves nothing',
  withPlace((place) => {
    const db = place.path('db');
    const figures = run(['bench', db, '--count', '3000', '--value-bytes', '9']).json<Record<string, number>>();
    assert.equal(figures['count'], 3000);
    for (const figure of ['setsPerSecond', 'getsPerSecond', 'scannedPerSecond', 'fileSize'])
      assert.ok((figures[figure] as number) > 0, figure);
    assert.equal(existsSync(db), false);
    assert.ok(
      (run(['bench', db, '--count', '500', '--durability', 'relaxed']).json<Record<string, number>>()[
        'setsPerSecond'
      ] as number) > 0,
    );
    place.loaded('db', '{"key":1,"value":1}');
    run(['bench', db]).fails(1, 'KV_EXISTS');
    assert.equal(run(['count', db]).ok(), '1\n');
  }),
);

test(
  'long names of verbs',
  withPlace((place) => {
    const db = place.path('db');
    run(['import', db], numbered(3)).ok();
    assert.equal(run(['delete', db, '1']).ok(), 'true\n');
    assert.equal(run(['stats', db]).ok(), run(['stat', db]).ok());
    assert.equal(run(['export', db]).ok(), run(['dump', db]).ok());
    for (const verb of ['delete', 'stats', 'import', 'export', 'list', 'rename']) {
      assert.ok(run(['--help']).ok().includes(verb), verb);
      assert.ok(run(['help', verb]).ok().includes('Usage'), verb);
    }
  }),
);

test(
  'collections are listed and renamed',
  withPlace((place) => {
    const db = place.path('db');
    run(['set', db, '1', '2']).ok();
    run(['set', db, '1', '2', '--collection', 'a']).ok();
    const line = (name: string): string => `{"name":"${name}","count":1,"keyCodec":"any","valueCodec":"structured"}\n`;
    assert.equal(run(['list', db]).ok(), line('') + line('a'));
    assert.equal(run(['rename', db, 'a', 'b']).ok(), 'true\n');
    assert.equal(run(['rename', db, 'a', 'b']).ok(), 'false\n');
    assert.equal(run(['list', db]).ok(), line('') + line('b'));
    assert.equal(run(['get', db, '1', '--collection', 'b']).ok(), '2\n');
    run(['set', db, '1', '2', '--collection', 'a']).ok();
    run(['rename', db, 'a', 'b']).fails(1, 'KV_EXISTS');
    run(['rename', db, '', 'c']).fails(1, 'KV_INVALID_ARGUMENT');
    run(['rename', db, 'a', '']).fails(1, 'KV_INVALID_ARGUMENT');
    run(['list', place.path('none')]).fails(1, 'KV_NOT_FOUND');
  }),
);

test(
  'a failed load leaves no empty database',
  withPlace((place) => {
    const db = place.path('db');
    run(['load', db], '{"id":1}').fails(1, 'KV_INVALID_ARGUMENT');
    assert.equal(existsSync(db), false);
    // An existing directory stays, with its contents.
    mkdirSync(db);
    writeFileSync(place.path('db/notes'), 'mine');
    run(['load', db], '{"id":1}').fails(1, 'KV_INVALID_ARGUMENT');
    assert.deepEqual(readdirSync(db), ['notes']);
    // So do records that an earlier batch stored, and someone else's empty database.
    run(['load', db, '--batch', '1'], '{"key":1,"value":1}\n{}').fails(1, 'KV_INVALID_ARGUMENT');
    assert.equal(run(['count', db]).ok(), '1\n');
    const empty = place.loaded('empty', '');
    run(['load', empty], '{}').fails(1, 'KV_INVALID_ARGUMENT');
    assert.equal(run(['count', empty]).ok(), '0\n');
  }),
);

test(
  'a line says what is missing',
  withPlace((place) => {
    const db = place.path('db');
    for (const [line, missing] of [
      ['{}', 'key'],
      ['{"id":1,"name":"ada"}', 'key'],
      ['{"value":1}', 'key'],
      ['{"key":1}', 'value'],
      ['{"key":1,"keyCodec":"any"}', 'value'],
      ['{"keyCodec":"any"}', 'valueCodec'],
      ['{"valueCodec":"any"}', 'keyCodec'],
    ] as const) {
      const { err } = run(['load', db], line).fails(1, 'KV_INVALID_ARGUMENT');
      assert.ok(err.includes(`"${missing}" is missing`), `${line}: ${err}`);
    }
  }),
);

/** A database with 200 records and an index of them. */
async function indexed(path: string): Promise<string> {
  run(['load', path, '--collection', 'a'], numbered(200)).ok();
  await declare(path);
  return path;
}

async function declare(path: string): Promise<void> {
  const db = await open(path);
  await db.collection('a', { indexes: { 'by key': { key: (_, key) => [key, 0] } } }).buildIndexes();
  await db.close();
}

const listed = (count: number): unknown => [{ name: 'by key', version: 1, unique: false, complete: true, count }];
const firstListed = (db: string): Record<string, unknown> =>
  linesIn(run(['list', db]).ok())[0] as Record<string, unknown>;

test(
  'indexes are listed with their collection',
  withPlace(async (place) => {
    const path = await indexed(place.path('db'));
    const [collection] = run(['stat', path]).json<{ collections: unknown[] }>().collections;
    assert.deepEqual(collection, firstListed(path));
    assert.deepEqual(firstListed(path)['indexes'], listed(200));
  }),
);

test(
  'writes to a collection with indexes are refused and change nothing',
  withPlace(async (place) => {
    const db = await indexed(place.path('db'));
    const before = run(['dump', db]).ok();
    assert.ok(run(['set', db, '7', '1', '--collection', 'a']).fails(1, 'KV_INDEX_MISMATCH').err.includes('by key'));
    // All lines or none up to the one that fails.
    run(['load', db, '--collection', 'a'], before).fails(1, 'KV_INDEX_MISMATCH');
    run(['load', db, '--collection', 'a'], '{"key":1000,"value":1}\n').fails(1, 'KV_INDEX_MISMATCH');
    assert.equal(run(['dump', db]).ok(), before);
    run(['verify', db]).ok();
    // Other collections can be written to.
    run(['set', db, '7', '1', '--collection', 'other']).ok();
    assert.equal(run(['get', db, '7', '--collection', 'other']).ok(), '1\n');
  }),
);

test(
  'removing, compacting and renaming leave an index right',
  withPlace(async (place) => {
    const db = await indexed(place.path('db'));
    assert.equal(run(['del', db, '0', '--collection', 'a']).ok(), 'true\n');
    assert.deepEqual(firstListed(db)['indexes'], listed(199));
    run(['verify', db]).ok();
    run(['compact', db]).ok();
    assert.deepEqual(firstListed(db)['indexes'], listed(199));
    run(['verify', db]).ok();
    run(['rename', db, 'a', 'b']).ok();
    assert.deepEqual([firstListed(db)['name'], firstListed(db)['indexes']], ['b', listed(199)]);
    run(['verify', db]).ok();
  }),
);

test(
  'copies have the records without the index',
  withPlace(async (place) => {
    const db = await indexed(place.path('db'));
    const [file, restored, salvaged] = [place.path('file'), place.path('restored'), place.path('salvaged')];
    run(['backup', db, file]).ok();
    run(['restore', file, restored]).ok();
    assert.equal(run(['recover', db, salvaged]).code, 0);
    for (const copy of [restored, salvaged]) {
      assert.equal(run(['dump', copy]).ok(), run(['dump', db]).ok());
      assert.equal(firstListed(copy)['indexes'], undefined);
      run(['verify', copy]).ok();
      // It takes writes until it is declared again.
      run(['set', copy, '100000', '1', '--collection', 'a']).ok();
      await declare(copy);
      assert.deepEqual(firstListed(copy)['indexes'], listed(201));
      run(['set', copy, '100000', '2', '--collection', 'a']).fails(1, 'KV_INDEX_MISMATCH');
      run(['verify', copy]).ok();
    }
  }),
);

test(
  'new collections have the codecs of the package',
  withPlace(async (place) => {
    const path = place.path('db');
    run(['set', path, '"a"', '{"b":[1.5,-0.0]}']).ok();
    run(['set', path, '7', '"x"', '--collection', 'c']).ok();
    const db = await open(path, {
      key: { ...keyCodecs.bytes, id: 'any' },
      value: { ...valueCodecs.bytes, id: 'structured' },
    });
    const other = db.collection('c', {
      key: { ...keyCodecs.bytes, id: 'any' },
      value: { ...valueCodecs.bytes, id: 'structured' },
    });
    assert.deepEqual(await db.first(), [
      new TextEncoder().encode('0a'),
      Uint8Array.of(0xa1, 0x61, 0x62, 0x82, 0xfa, 0x3f, 0xc0, 0, 0, 0xfa, 0x80, 0, 0, 0),
    ]);
    assert.deepEqual(await other.first(), [
      Uint8Array.of(0x10, 0xc0, 0x1c, 0, 0, 0, 0, 0, 0),
      Uint8Array.of(0x61, 0x78),
    ]);
    await db.close();
  }),
);
