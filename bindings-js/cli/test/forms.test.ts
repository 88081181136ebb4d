// Keys and values of every kind as JSON, and back.
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { keyCodecs, open, valueCodecs } from 'mangrove-kv';
import { fromForm, parseJson, toForm } from '../src/forms.ts';
import { memberTexts } from '../src/members.ts';
import { fixture, linesIn, run, withPlace } from './support/tool.ts';
import type { Place } from './support/tool.ts';

const read = (text: string): unknown => fromForm(parseJson(text));
const refused = (text: string, kv = 'KV_INVALID_ARGUMENT'): void => assert.throws(() => read(text), { code: kv }, text);

test('scalars round trip', () => {
  for (const text of [
    'null',
    'true',
    '-0.0',
    '1.5',
    '9007199254740991',
    '1e+300',
    '"a\\u0000é"',
    '{"$number":"-Infinity"}',
    '{"$bigint":"-123456789012345678901234567890"}',
    '{"$bigint":"0"}',
    '{"$date":"1969-12-31T23:59:59.999Z"}',
    '{"$date":null}',
    '{"$bytes":"AP8="}',
    '{"$utf16":[97,55357]}',
    `{"$bigint":"-0x1${'0'.repeat(4000)}"}`,
  ])
    assert.equal(toForm(read(text)), text);
  assert.equal(read('{"$bigint":"-0x0f"}'), -15n);
  assert.equal(read('{"$utf16":[97]}'), 'a');
  assert.equal(toForm((1n << 6000n) - 1n).includes('0x'), false);
  assert.equal(toForm(1n << 6000n).includes('0x'), true);
});

test('escapes of lone surrogates are read', () => {
  assert.equal(toForm(read('"\\ud83d"')), '{"$utf16":[55357]}');
  assert.deepEqual(read('["a\\\\\\"\\uDC00é\\n", 1, "\\ud83d\\ude00"]'), ['a\\"\udc00é\n', 1, '😀']);
  assert.deepEqual(read('{"\\\\ud83d": {"a": "\\udc00" , "b" :"\\udbff"}}'), {
    '\\ud83d': { a: '\udc00', b: '\udbff' },
  });
  for (const text of ['{"\\ud83d" : 1}', '"\\ud83"', '"\\ud83d\\x"', '"\\ud83d', '"\\"']) refused(text);
});

test('bad tags are refused', () => {
  for (const text of [
    '{"$bigint":1}',
    '{"$bigint":""}',
    '{"$bigint":"--1"}',
    '{"$bigint":"1_0"}',
    '{"$bigint":"+1"}',
    `{"$bigint":"${'1'.repeat(2001)}"}`,
    '{"$bytes":"?"}',
    '{"$bytes":[]}',
    '{"$date":"x"}',
    '{"$date":0.5}',
    '{"$number":"1"}',
    '{"$utf16":[65536]}',
    '{"$utf16":[-1]}',
  ])
    refused(text);
});

test('deep nesting is refused before it is read', () => {
  refused('['.repeat(1 << 20));
  assert.equal(read('"[[[\\"[["'), '[[["[[');
  refused('[] []');
  refused(`${'['.repeat(1001)}${']'.repeat(1001)}`, 'KV_INVALID_VALUE');
});

test('times are those of ISO 8601 with a zone', () => {
  for (const [text, time] of [
    ['1970-01-01', 0],
    ['1970-01-01T00:00Z', 0],
    ['1970-01-01T01:00+01:00', 0],
    ['1969-12-31T22:30:00-01:30', 0],
    ['2000-02-29T23:59:59.9999Z', Date.UTC(2000, 1, 29, 23, 59, 59, 999)],
    ['+275760-09-13T00:00:00.000Z', 8.64e15],
    ['-271821-04-20T00:00:00Z', -8.64e15],
    ['0000-01-01', Date.UTC(0) - Date.UTC(0) + new Date('0000-01-01').getTime()],
    ['-000001-12-31T23:59:59.999Z', -62167219200001],
  ] as const)
    assert.equal((read(`{"$date":"${text}"}`) as Date).getTime(), time, text);
  for (const text of [
    '',
    '1970',
    '1970-01',
    '1970-13-01',
    '1970-02-29',
    '1970-01-32',
    '1970-1-1',
    '-000000-01-01',
    '1970-01-01T00:00',
    '1970-01-01T24:00Z',
    '1970-01-01T00:60Z',
    '1970-01-01T00:00:60Z',
    '1970-01-01T00:00+24:00',
    '1970-01-01T00:00Z ',
    '+275760-09-13T00:00:00.001Z',
    '01970-01-01',
  ])
    refused(`{"$date":"${text}"}`);
});

test('the members of an object are as they are written', () => {
  assert.deepEqual(
    [...(memberTexts(' { "a" : [1, "}" , {"b":2}] ,"\\u0063":-1e5 } ') as Map<string, string>)],
    [
      ['a', '[1, "}" , {"b":2}]'],
      ['c', '-1e5'],
    ],
  );
  assert.deepEqual([...(memberTexts(`{"a":${' '.repeat(200)}1}`) as Map<string, string>)], [['a', '1']]);
  assert.deepEqual([...(memberTexts('{}') as Map<string, string>)], []);
  for (const text of ['[]', '1', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}']) assert.equal(memberTexts(text), undefined);
});

/** As lines of `show`, numbers being equal if their doubles are, however written. */
function sameLines(shown: string, expected: string): void {
  const [left, right] = [shown.trimEnd().split('\n'), expected.trimEnd().split('\n')];
  assert.equal(left.length, right.length);
  for (const [at, line] of left.entries())
    if (line !== right[at]) assert.deepStrictEqual(JSON.parse(line), JSON.parse(right[at] as string));
}

/** Copies the fixture into a directory, as Node has it. */
function unpacked(place: Place): string {
  mkdirSync(place.path('js'));
  copyFileSync(fixture('javascript.mangrove'), place.path('js/data'));
  return place.path('js');
}

interface Stored {
  readonly name: string;
  readonly keyCodec: string;
  readonly valueCodec: string;
}

/** Names, codecs and records of every collection, as the engine has them. */
async function contents(path: string): Promise<unknown[]> {
  const db = await open(path, { readOnly: true });
  const all = linesIn<Stored>(run(['list', path]).ok()).map(async ({ name, keyCodec, valueCodec }) => {
    const as = (id: string) => ({
      id,
      encode: (bytes: Uint8Array) => bytes,
      decode: (bytes: Uint8Array) => Buffer.from(bytes).toString('hex') as never,
    });
    return [
      name,
      keyCodec,
      valueCodec,
      await db
        .collection(name, { key: as(keyCodec), value: as(valueCodec) })
        .entries()
        .toArray(),
    ];
  });
  const found = await Promise.all(all);
  await db.close();
  return found;
}

test(
  'every kind of key and value is shown',
  withPlace((place) => {
    const db = unpacked(place);
    const expected = readFileSync(fixture('javascript.jsonl'), 'utf8');
    sameLines(run(['dump', db]).ok(), expected);
    // The printed form of a key finds it.
    for (const line of expected.split('\n').filter((each) => each.startsWith('{"collection":"",'))) {
      const { key, value } = memberPair(line);
      assert.equal(run(['get', db, key]).ok(), `${value}\n`, line);
    }
  }),
);

function memberPair(line: string): { readonly key: string; readonly value: string } {
  const members = memberTexts(line) as Map<string, string>;
  return { key: members.get('key') as string, value: members.get('value') as string };
}

test(
  'dumps are loaded byte for byte',
  withPlace(async (place) => {
    const db = unpacked(place);
    const copy = place.path('copy');
    run(['load', copy, '--batch', '7'], run(['dump', db]).ok()).ok();
    const [original, loaded] = [await contents(db), await contents(copy)];
    assert.ok(original.length > 5);
    assert.deepEqual(loaded, original);
    assert.equal(run(['dump', copy]).ok(), run(['dump', db]).ok());
    // Also a single collection, under another name.
    run(['load', copy, '--collection', 'json 2'], run(['dump', db, '--collection', 'json']).ok()).ok();
    const named = (of: unknown[], name: string): unknown[] =>
      (of.find((each) => (each as unknown[])[0] === name) as unknown[]).slice(1);
    assert.deepEqual(named(await contents(copy), 'json 2'), named(original, 'json'));
  }),
);

test(
  'a single exported file is a database',
  withPlace((place) => {
    const file = place.path('from the browser.mangrove');
    copyFileSync(fixture('javascript.mangrove'), file);
    sameLines(run(['dump', file]).ok(), readFileSync(fixture('javascript.jsonl'), 'utf8'));
    run(['verify', file]).ok();
    run(['set', file, '"new"', '1']).ok();
    assert.equal(run(['get', file, '"new"']).ok(), '1\n');
    assert.equal(readdirSync(place.path()).length, 1, 'nothing lies beside it');
    const db = unpacked(place);
    assert.equal(run(['count', `${db}/data`]).ok(), run(['count', db]).ok());
  }),
);

test(
  'every verb takes an exported file',
  withPlace((place) => {
    const file = place.path('exported.mangrove');
    copyFileSync(fixture('javascript.mangrove'), file);
    const whole = readFileSync(file);
    const count = Number(run(['count', file]).ok());
    assert.ok(count > 0);
    const lines = (verb: string): number => run([verb, file]).ok().trimEnd().split('\n').length;
    assert.equal(lines('scan'), count);
    assert.ok(lines('dump') > count);
    assert.equal(run(['stat', file]).json()['fileSize'], whole.length);
    run(['verify', file]).ok();
    const [backup, restored, recovered] = [place.path('backup'), place.path('restored'), place.path('recovered')];
    run(['backup', file, backup]).ok();
    run(['restore', backup, restored]).ok();
    assert.equal(run(['recover', file, recovered]).code, 0);
    for (const copy of [restored, recovered]) assert.equal(run(['dump', copy]).ok(), run(['dump', file]).ok());
    assert.ok(readFileSync(file).equals(whole), 'so far it was only read');
    run(['set', file, '"new"', '1', '--collection', 'another']).ok();
    run(['compact', file]).ok();
    assert.equal(run(['load', file, '--ack'], '{"key":"new","value":2}').ok(), '"new"\n');
    assert.equal(run(['get', file, '"new"', '--collection', 'another']).ok(), '1\n');
    assert.equal(run(['del', file, '"new"']).ok(), 'true\n');
    assert.equal(run(['count', file]).ok(), `${count}\n`);
    run(['restore', backup, file]).fails(1, 'KV_EXISTS');
    run(['bench', file]).fails(1, 'KV_EXISTS');
    run(['verify', file]).ok();
    assert.equal(readdirSync(place.path()).includes('exported.mangrove.log'), false);
  }),
);

/** An array with holes where `elements` has them, and named properties. */
const withNames = (elements: unknown[], names: Record<string, unknown>): unknown[] => Object.assign(elements, names);

test(
  'dump and load keep shared buffers and the structure of arrays',
  withPlace(async (place) => {
    const path = place.path('db');
    const { buffer } = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
    const sparse: unknown[] = [];
    sparse[4_000_000_000] = 1;
    const values = [
      'xaby'.match(/(?<l>a)b/),
      withNames([1, , 3], { a: [withNames([], { b: 1 })] }),
      sparse,
      withNames([1], { '\ud800': 1 }),
      withNames([], { $bytes: 1 }),
      [new Uint16Array(buffer, 2, 1), buffer, new DataView(buffer, 1), { kept: new Uint8Array(8) }],
      [new Uint8Array(buffer, 1, 4), new Uint8Array(buffer, 3)],
      [new Uint8Array(buffer), buffer],
    ];
    const db = await open(path);
    await db.setMany(values.map((value, key) => [key, value]));
    await db.set('names', withNames([1, , 3], { index: 2 }));
    await db.set('views', [new Uint8Array(buffer, 0, 2), new Uint8Array(buffer, 1, 2)]);
    await db.close();
    assert.equal(run(['get', path, '"names"']).ok(), '{"$array":[[1,{"$hole":true},3],{"index":2}]}\n');
    assert.equal(
      run(['get', path, '"views"']).ok(),
      '[{"$buffer":["Uint8Array","AQID",0,2]},{"$buffer":["Uint8Array",1,1,2]}]\n',
    );
    run(['load', `${path}-copy`], run(['dump', path]).ok()).ok();
    // The same bytes mean the same values.
    assert.deepEqual(await contents(`${path}-copy`), await contents(path));
  }),
);

test(
  'a value of every kind that JavaScript has survives dump and load',
  withPlace(async (place) => {
    const path = place.path('db');
    const cyclic: Record<string, unknown> = { list: [] };
    cyclic['self'] = cyclic;
    (cyclic['list'] as unknown[]).push(cyclic['list'], cyclic);
    const shared = { a: 1 };
    const values: unknown[] = [
      null,
      true,
      0,
      -0,
      NaN,
      Infinity,
      1.5,
      2 ** 53,
      '',
      'é😀',
      'a\ud800b',
      0n,
      -(1n << 8000n),
      new Date(0),
      new Date(NaN),
      [],
      {},
      [1, [2]],
      [undefined, null],
      [1, , 3],
      { u: undefined, $bytes: 1, $$: 2, 'a\ud800': 3 },
      Object.defineProperty({}, '__proto__', { value: 1, enumerable: true }),
      Uint8Array.of(0, 255),
      Uint8Array.of(1).buffer,
      new DataView(Uint8Array.of(3, 4).buffer),
      new Uint8ClampedArray([1]),
      new Int8Array([-1]),
      new Uint16Array([1, 2]),
      new Int16Array([-2]),
      new Uint32Array([3]),
      new Int32Array([-3]),
      new BigUint64Array([4n]),
      new BigInt64Array([-4n]),
      new Float32Array([1.5, NaN]),
      new Float64Array([0.1]),
      new Map<unknown, unknown>([
        ['k', 1],
        [{ o: 1 }, new Map()],
      ]),
      new Set([1, 'a', [2]]),
      /a\/b/giu,
      Object('boxed'),
      Object(1),
      Object(false),
      Object(5n),
      new TypeError('bad'),
      new RangeError('m', { cause: undefined }),
      new Error('m', { cause: [shared, shared] }),
      cyclic,
      [shared, new Date(0), shared, Uint8Array.of(1), /x/, new Set([shared])],
    ];
    const db = await open(path);
    await db.setMany(values.map((value, key) => [key, value]));
    await db.close();
    run(['load', `${path}-copy`], run(['dump', path]).ok()).ok();
    assert.deepEqual(await contents(`${path}-copy`), await contents(path));
    const copy = await open(`${path}-copy`, { readOnly: true });
    const found = await copy.values().toArray();
    await copy.close();
    assert.equal(found.length, values.length);
    const encode = (value: unknown): Uint8Array => valueCodecs.structured().encode(value);
    for (const [at, value] of values.entries()) {
      assert.deepEqual(encode(found[at]), encode(value), `the value ${at}`);
      if (!(value instanceof Date) && !Number.isNaN(value)) assert.deepEqual(found[at], value, `the value ${at}`);
    }
  }),
);

test(
  'keys and values that cannot be stored',
  withPlace((place) => {
    const db = place.path('db');
    for (const [key, kv] of [
      ['{}', 'KV_INVALID_KEY'],
      ['{"$number":"NaN"}', 'KV_INVALID_KEY'],
      ['[1,{"$date":null}]', 'KV_INVALID_KEY'],
      ['{"$map":[]}', 'KV_INVALID_KEY'],
      ['{"$date":"today"}', 'KV_INVALID_ARGUMENT'],
      ['[', 'KV_INVALID_ARGUMENT'],
      ['1e999', 'KV_INVALID_ARGUMENT'],
      [`"${'x'.repeat(5000)}"`, 'KV_KEY_TOO_LARGE'],
      [`${'['.repeat(66)}${']'.repeat(66)}`, 'KV_INVALID_KEY'],
      ['['.repeat(100_000), 'KV_INVALID_ARGUMENT'],
    ] as const)
      run(['set', db, key, '1']).fails(1, kv);
    for (const [value, kv] of [
      ['{"$undefined":true}', 'KV_INVALID_VALUE'],
      ['[{"$undefined":1}]', 'KV_INVALID_ARGUMENT'],
      ['{"$hole":true}', 'KV_INVALID_VALUE'],
      ['[{"$hole":false}]', 'KV_INVALID_ARGUMENT'],
      ['{"$unknown":1}', 'KV_INVALID_ARGUMENT'],
      ['{"$bytes":"","b":1}', 'KV_INVALID_ARGUMENT'],
      ['{"$ref":0}', 'KV_INVALID_ARGUMENT'],
      ['[{"$ref":1}]', 'KV_INVALID_ARGUMENT'],
      ['{"$map":[1]}', 'KV_INVALID_ARGUMENT'],
      ['{"$map":[[1,2,3]]}', 'KV_INVALID_ARGUMENT'],
      ['{"$set":{}}', 'KV_INVALID_ARGUMENT'],
      ['{"$object":[[1,2]]}', 'KV_INVALID_ARGUMENT'],
      ['{"$regexp":["a"]}', 'KV_INVALID_ARGUMENT'],
      ['{"$buffer":["Float64Array","AAAA"]}', 'KV_INVALID_ARGUMENT'],
      ['{"$buffer":["Uint8Array","AAAA"]}', 'KV_INVALID_ARGUMENT'],
      ['{"$boxed":["Number","1"]}', 'KV_INVALID_ARGUMENT'],
      ['{"$error":{"name":"Mine"}}', 'KV_INVALID_ARGUMENT'],
      ['{"$error":{"name":"Error","code":1}}', 'KV_INVALID_ARGUMENT'],
      ['{"\\ud800":1}', 'KV_INVALID_ARGUMENT'],
      [`${'['.repeat(1001)}${']'.repeat(1001)}`, 'KV_INVALID_VALUE'],
      ['{"$what":1}', 'KV_INVALID_ARGUMENT'],
    ] as const)
      run(['set', db, '1', value]).fails(1, kv);
    assert.equal(run(['count', db]).ok(), '0\n', 'only the long key was found out by the database');
    // The deepest nesting allowed, in the form that takes the most JSON.
    const deepest = `${'{"$map":[[1,'.repeat(1000)}1${']]}'.repeat(1000)}`;
    run(['set', db, '1', deepest]).ok();
    assert.equal(run(['get', db, '1']).ok(), `${deepest}\n`);
    run(['set', db, '1', '2', '--collection', 'n'.repeat(256)]).fails(1, 'KV_INVALID_ARGUMENT');
  }),
);

test(
  'records that are not of their codec are damage',
  withPlace(async (place) => {
    for (const [key, value] of [
      ['any', 'structured'],
      ['tuple', 'json'],
      ['string', 'string'],
      ['utf8', 'json'],
      ['uint32', 'json'],
      ['int53', 'json'],
      ['uint64', 'json'],
      ['bytes', 'structured'],
      ['bytes', 'json'],
      ['bytes', 'string'],
    ] as const) {
      const path = place.path(`${key} ${value}`);
      // Written as bytes, under the names of other codecs.
      const db = await open(path, { key: { ...keyCodecs.bytes, id: key }, value: { ...valueCodecs.bytes, id: value } });
      await db.set(Uint8Array.of(0xff), Uint8Array.of(0xff));
      await db.close();
      run(['scan', path]).fails(2, 'KV_CORRUPT');
    }
  }),
);
