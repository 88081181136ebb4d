// The same command lines through the native tool and that of the package, each on its own databases and then on the other's: the same output, exit
// codes and codes of errors. MANGROVE_NATIVE is the native one.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { CLI, runProgram } from '../test/support/cli.ts';
import { withPath } from '../test/support/kit.ts';

const NATIVE = [process.env['MANGROVE_NATIVE'] ?? 'mangrove'];
const PROGRAMS = { native: NATIVE, js: CLI };
const FIXTURE = readFileSync(new URL('../../engine/cli/tests/fixtures/javascript.jsonl', import.meta.url));

/** Differs from run to run, or by how many blocks a program holds in memory. */
const OWN = /"(?:databaseId|cacheSize|cacheHits|cacheMisses|bytesRead|bytesWritten|bytes|\w+PerSecond)":(?:"\w+"|\d+)/g;

const numbers = [0, -0, 1, -1, 0.1, 1.5, -2.25e-7, 1e15, 1e16, 123_456_789_012_345_680, 1e17, 1e20, 1e21, -1e21, 1.5e22, 1e300, 5e-324, 2 ** 53, 2 ** 53 - 1, 1e-5, 1e-6, 1e-7, 12_345.678e-10];
const VALUES = [
  ...numbers.map((number) => Object.is(number, -0) ? '-0.0' : JSON.stringify(number)), '1E5', '1.0', '-0', '100000000000000000000000', 'null', 'true', '"é\\u0000\\ud83d\\ude00\\n\\u007f\\u2028"', '[]', '{}',
  '[[1,[2,[3]]],{"b":{"10":1,"9":2,"a":3}}]', '{"a":1,"a":2}', '{"__proto__":1,"constructor":{}}', '{"$$price":5,"x":1}', '{"$$$":1}',
  '{"$bytes":"AP8="}', '{"$bytes":"AP8"}', '{"$bytes":7}', '{"$date":"1815-12-10"}', '{"$date":"2020-02-30"}', '{"$date":"2020-02-29T10:00+01:30"}', '{"$date":"1970-01-01T00:00:00.1239Z"}', '{"$date":1e3}', '{"$date":0.5}',
  '{"$date":null}', '{"$date":"+275760-09-13T00:00:00.000Z"}', '{"$date":"-000000-01-01"}', '{"$date":253402300800000}', '{"$date":8639999999999999}', '{"$bigint":"-123456789012345678901234567890"}', '{"$bigint":"-0x1F"}', '{"$bigint":"0"}', '{"$bigint":"-0"}',
  '{"$bigint":"1_0"}', `{"$bigint":"0x1${'0'.repeat(1600)}"}`, '{"$number":"NaN"}', '{"$number":"Infinity"}', '{"$number":"1"}', '{"$utf16":[97,55296]}', '{"$utf16":[55357,56832]}', '{"$utf16":[65536]}', '"\\ud800"',
  '[{"$undefined":true},{"$hole":true}]', '{"$undefined":true}', '{"$hole":true}', '{"$map":[[1,{"$set":[1,"a"]}]]}', '{"$map":[1]}', '{"$regexp":["a+","gi"]}', '{"$regexp":["a"]}', '{"$buffer":["Float64Array","AAAAAAAA8D8="]}',
  '{"$buffer":["Int16Array","AA=="]}', '{"$buffer":["Uint8Array","AA=="]}', '{"$buffer":["DataView","AAE="]}', '{"$boxed":["String","t"]}', '{"$boxed":["Number","t"]}', '{"$boxed":["BigInt",{"$bigint":"1"}]}', '{"$error":{"name":"TypeError","message":"m","cause":{"$undefined":true}}}', '{"$error":{"name":"E"}}', '{"$object":[[{"$utf16":[55296]},1]]}',
  '{"$array":[[1,{"$hole":true}],{"index":1}]}', '{"$array":[4000000000,{"5":1}]}', '{"$array":[[],{"$object":[[{"$utf16":[55296]},1]]}]}', '{"$array":[[],{"length":1}]}', '{"$array":[[],{"$object":[["length",1]]}]}', '{"$array":[-1,{}]}', '{"$array":[[]]}', '{"$array":[[],[]]}',
  '[{"$buffer":["Uint16Array","AAECAw==",2,2]},{"$buffer":["ArrayBuffer",1]},{"$buffer":["DataView",1,1,3]}]', '[{"$bytes":"AAE="},{"$buffer":["Int8Array",1,0,2]}]', '[{"$buffer":["Uint16Array","AAECAw==",1,2]}]', '[{"$buffer":["Uint8Array","AAECAw==",1,4]}]', '[{"$buffer":["Uint8Array",0,0,0]}]',
  '[{"$buffer":["ArrayBuffer",9]}]', '[{"$buffer":["Function","",0,0]}]',
  '{"$object":[["a",1]]}', '[{"a":1},{"$ref":1}]', '{"me":{"$ref":0}}', '[{"$ref":1}]', '{"$what":1}', '{"$a":1,"b":2}', '[1,]', '{"a" 1}', '', 'nul', '01', '1.', '1 2', '"tab\t"', `${'['.repeat(900)}${']'.repeat(900)}`, `${'['.repeat(1100)}${']'.repeat(1100)}`, '['.repeat(5000),
];
const KEYS = ['null', 'false', '5', '-5', '-0.0', '1e300', '{"$bigint":"-300"}', `{"$bigint":"0x${'f'.repeat(300)}"}`, '{"$date":"2020-01-01"}', '{"$date":null}', '""', '"a\\u0000"', '"é😀"', '{"$utf16":[55296]}', '{"$bytes":""}', '{"$bytes":"AAE="}', '[]', '["a",[1,{"$bytes":"AA=="}],"b\\u0000"]', '{"$number":"NaN"}', '{"$number":"-Infinity"}', '{}', '{"$map":[]}', '{"$undefined":true}', `"${'x'.repeat(5000)}"`];

interface Step {
  readonly args: readonly string[];
  readonly input?: string | Uint8Array;
}

/** `DB`, `FILE` and the like become paths of a program's own. */
function compare(path: string, steps: readonly Step[]): void {
  for (const { args, input } of steps) {
    const [native, js] = Object.entries(PROGRAMS).map(([name, program]) => {
      const own = args.map((arg) => /^[A-Z]+\d?$/.test(arg) ? join(path, name, arg) : arg);
      const { code, out, err } = runProgram(program, own, input);
      const error = /^mangrove: (KV_\w+): /m.exec(err)?.[1];
      return { code, error, out: out.replaceAll(OWN, '').replaceAll(join(path, name), '') };
    });
    assert.deepEqual(js, native, args.map((arg) => arg.slice(0, 100)).join(' '));
  }
}

const step = (...args: string[]): Step => ({ args });
const piped = (input: string | Uint8Array, ...args: string[]): Step => ({ input, args });

test('every kind of key and value', { timeout: 600_000 }, () => withPath(async (path) => {
  const lines = VALUES.map((value, index) => `{"key":${index},"value":${value}}`);
  compare(path, [
    ...lines.map((line) => piped(line, 'load', 'DB')),
    ...KEYS.map((key) => piped(`{"key":${key},"value":1}`, 'load', 'KEYS', '--ack')),
    step('scan', 'DB'), step('dump', 'KEYS'), step('scan', 'KEYS', '--reverse', '--keys-only'), step('set', 'DB', '-5', '-7'), step('get', 'DB', '-5'), step('del', 'DB', '-5'),
  ]);
}));

test('codecs, collections and raw bytes', { timeout: 600_000 }, () => withPath(async (path) => {
  const codecs = ['any', 'tuple', 'string', 'utf8', 'bytes', 'uint32', 'int53', 'uint64', 'mine'];
  const keys = ['1', '-1', '4294967295', '1.5', '"a"', '"é"', '{"$utf16":[55296]}', '["a",1]', '{"$bigint":"7"}', '{"$bytes":"AP8="}'];
  const values = ['{"a":[1]}', '"text"', '{"$bytes":"AP8="}', ' { "a" : 1.0 } '];
  const lines = codecs.flatMap((codec) => [`{"collection":"${codec}","keyCodec":"${codec}","valueCodec":"json"}`]);
  compare(path, [
    piped(FIXTURE, 'load', 'FIXTURE', '--batch', '7'), step('dump', 'FIXTURE'), step('stat', 'FIXTURE'), step('verify', 'FIXTURE'),
    piped(lines.join('\n'), 'load', 'DB'), step('dump', 'DB'), piped(lines.join('\n'), 'load', 'DB'),
    ...codecs.map((codec) => piped(keys.map((key) => `{"key":${key},"value":1}`).join('\n'), 'load', 'DB', '--batch', '1', '--collection', codec)),
    ...codecs.flatMap((codec) => keys.slice(0, 5).map((key) => step('set', 'DB', key, '1', '--collection', codec, '--raw', 'utf8'))),
    ...['structured', 'json', 'string', 'bytes', 'own'].flatMap((codec) => [
      piped(`{"keyCodec":"any","valueCodec":"${codec}"}`, 'load', 'DB', '--collection', `v ${codec}`),
      ...values.map((value, index) => step('set', 'DB', String(index), value, '--collection', `v ${codec}`, '--raw', 'hex')),
      step('scan', 'DB', '--collection', `v ${codec}`, '--raw', 'base64'), step('scan', 'DB', '--collection', `v ${codec}`),
    ]),
    ...['utf8', 'hex', 'base64'].flatMap((raw) => [
      step('set', 'DB', '"6162"', '1', '--collection', 'bytes', '--raw', raw), step('scan', 'DB', '--collection', 'bytes', '--raw', raw),
      step('count', 'DB', '--collection', 'bytes', '--prefix', '"61"', '--raw', raw),
    ]),
    step('dump', 'DB'), step('dump', 'DB', '--collection', 'uint32'), step('dump', 'DB', '--collection', 'none'), step('get', 'DB', '1', '--collection', 'none'),
    step('count', 'DB', '--collection', 'none'), step('stat', 'DB'),
  ]);
}));

test('ranges', { timeout: 600_000 }, () => withPath(async (path) => {
  const keys = ['1', '2', '-3', '"a"', '"ab"', '"abc"', '["a",1]', '["a",2]', '["a\\u0000"]', '["b"]', '{"$bytes":"AQI="}'];
  const bounds = [['--start', '2'], ['--end', '"ab"'], ['--start', '-3', '--end', '2'], ['--prefix', '"ab"'], ['--prefix', '["a"]'], ['--prefix', '[]'], ['--prefix', '""'], ['--prefix', '{"$bytes":"AQ=="}'], ['--prefix', '5'],
    ['--prefix', '"ab"', '--start', '"abb"'], ['--start', '"b"', '--end', '"a"'], ['--start', '{}'], ['--end', 'x'], ['--start=-5']];
  compare(path, [
    piped(keys.map((key) => `{"key":${key},"value":0}`).join('\n\n \n'), 'load', 'DB'),
    ...bounds.flatMap((options) => [step('count', 'DB', ...options), step('scan', 'DB', ...options, '--reverse'), step('scan', 'DB', ...options, '--limit', '2', '--keys-only')]),
    step('scan', 'DB', '--limit', '0'), step('scan', 'DB', '--limit', '-1'),
  ]);
}));

test('lines that are wrong, and those before them', { timeout: 600_000 }, () => withPath(async (path) => {
  const good = '{"key":1,"value":1}\n{"value":2,"key":2}\n';
  const wrong = ['{"key":3}', '{"value":3}', '{}', '[]', 'x', '{"key":3,"value":3,"other":1}', '{"key":3,"key":4,"value":3}', '{"key":3,"value":3}}', '{"key":3,"value":', '{"keyCodec":"any"}', '{"key":3,"value":3,"keyCodec":"any","valueCodec":"json"}', '{"collection":7,"key":3,"value":3}', '{"collection":null,"key":null,"value":null}', '{"keyCodec":"utf8","valueCodec":"json"}'];
  compare(path, [
    ...wrong.flatMap((line, index) => [piped(`${good}${line}\n`, 'load', `DB${index % 10}`, '--batch', '2', '--ack'), step('dump', `DB${index % 10}`)]),
    piped(Uint8Array.of(0x22, 0xff, 0x22), 'load', 'UTF'), piped('', 'load', 'EMPTY'), step('dump', 'EMPTY'), step('count', 'EMPTY'), piped(good, 'load', 'ACK', '--ack', '--durability', 'relaxed'),
    piped(good, 'load', 'ACK', '--ack', '--durability', 'none'),
  ]);
}));

test('copies, damage and upkeep', { timeout: 600_000 }, () => withPath(async (path) => {
  const lines = Array.from({ length: 4000 }, (_, key) => `{"key":${key},"value":"value ${key} ${'x'.repeat(key % 90)}"}`).join('\n');
  compare(path, [
    piped(lines, 'load', 'DB'), step('backup', 'DB', 'FILE'), step('backup', 'DB', 'FILE'), step('restore', 'FILE', 'COPY'), step('restore', 'FILE', 'COPY'), step('dump', 'COPY'), step('stat', 'COPY'), step('verify', 'COPY'),
    step('restore', 'NONE', 'OTHER'), step('restore', 'DB', 'OTHER'), step('recover', 'DB', 'NEW'), step('recover', 'DB', 'NEW'), step('recover', 'NONE', 'OTHER'), step('verify', 'NEW'), step('dump', 'NEW'),
    piped(lines.replaceAll('x', ''), 'load', 'DB'), step('compact', 'DB'), step('verify', 'DB'), step('stat', 'DB'), step('compact', 'NONE'), step('verify', 'NONE'), step('bench', 'DB'),
  ]);
  // Each reads what the other one wrote.
  for (const [name, program] of Object.entries(PROGRAMS)) {
    const other = join(path, name === 'js' ? 'native' : 'js');
    assert.equal(runProgram(program, ['dump', join(other, 'DB')]).out, runProgram(program, ['dump', join(path, name, 'DB')]).out);
    assert.equal(runProgram(program, ['restore', join(other, 'FILE'), join(path, name, 'SWAPPED')]).code, 0);
    assert.equal(runProgram(program, ['verify', join(path, name, 'SWAPPED')]).code, 0);
  }
}));
