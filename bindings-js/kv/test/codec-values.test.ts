// The value codecs. `structured` must keep what structured clone keeps: each case is compared with
// `structuredClone`.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { KvErrorCode } from '../src/base/errors.ts';
import { valueCodecs } from '../src/codec/values.ts';

const codec = valueCodecs.structured();
const hex = (bytes: Uint8Array): string => [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
const roundTrip = (value: unknown): unknown => codec.decode(codec.encode(value));

function refuses(run: () => unknown, code: KvErrorCode): void {
  assert.throws(run, (error: Error & { code?: string }) => error.code === code);
}

class Point {
  x = 1;
  #hidden = 2;
  get y(): number {
    return this.#hidden;
  }
}

const sparse: unknown[] = [1];
sparse[3] = undefined;
const withProto = JSON.parse('{"__proto__": {"polluted": 1}, "a": 2}') as object;

const CASES: Record<string, unknown> = {
  null: null,
  booleans: [true, false],
  undefined: { a: undefined, b: [undefined] },
  integers: [
    0,
    1,
    23,
    24,
    255,
    256,
    65_535,
    65_536,
    2 ** 32 - 1,
    2 ** 32,
    2 ** 53 - 1,
    -1,
    -24,
    -25,
    -256,
    -(2 ** 53 - 1),
  ],
  'large numbers': [2 ** 53, 2 ** 60, 1e300, -1e300],
  fractions: [0.5, 0.1, -0.1, 1.5e-10, Math.PI],
  'special numbers': [-0, Number.NaN, Infinity, -Infinity],
  bigints: [0n, 5n, -1n, -256n, 2n ** 64n, -(2n ** 64n), 2n ** 500n],
  strings: ['', 'a', 'x'.repeat(23), 'x'.repeat(24), 'x'.repeat(48), 'x'.repeat(300), 'x'.repeat(70_000)],
  'unicode strings': ['é', '€', '😀', '\0', '\ufeffbom', 'é'.repeat(30), '日本語'.repeat(100)],
  'lone surrogates': ['\ud800', 'a\udc00b', '\ud800\ud800\udc00', '\ud83d\ude00\ud800'],
  dates: [
    new Date(0),
    new Date(-1),
    new Date(1_234_567_890_123),
    new Date(8.64e15),
    new Date(-8.64e15),
    new Date(4_399_696_987_712_105),
  ],
  map: new Map<unknown, unknown>([
    ['a', 1],
    [{ k: 1 }, new Map()],
    [1, undefined],
  ]),
  set: new Set([1, 'a', null, undefined]),
  'regular expressions': [/a\/b/giu, /^$/],
  'typed arrays': [
    new Uint8Array([1, 2]),
    new Uint8ClampedArray([255]),
    new Int8Array([-1]),
    new Uint16Array([1, 65_535]),
    new Int16Array([-2]),
    new Uint32Array([2 ** 32 - 1]),
    new Int32Array([-(2 ** 31)]),
    new Float32Array([1.5]),
    new Float64Array([Math.PI]),
    new BigInt64Array([-5n]),
    new BigUint64Array([2n ** 64n - 1n]),
  ],
  'array buffer': new Uint8Array([1, 2, 3]).buffer,
  'data view': new DataView(new ArrayBuffer(3)),
  'boxed primitives': [Object(1), Object('s'), Object(false), Object(5n)],
  objects: { a: 1, b: { c: [1, { d: null }] }, '': 0, ключ: 1 },
  'class instance': new Point(),
  'numeric keys': { 2: 'b', 1: 'a' },
  'own __proto__': withProto,
  'sparse array': sparse,
  'only holes': new Array(5),
  'object without prototype': Object.assign(Object.create(null) as object, { a: 1 }),
};

for (const [name, value] of Object.entries(CASES)) {
  test(`structured keeps ${name} as structured clone does`, () => {
    assert.deepStrictEqual(roundTrip(value), structuredClone(value));
  });
}

test('an invalid date stays invalid', () => {
  const back = roundTrip(new Date(Number.NaN));
  assert.ok(back instanceof Date && Number.isNaN(back.getTime()));
});

test('holes stay holes', () => {
  const back = roundTrip(sparse) as unknown[];
  assert.equal(1 in back, false);
  assert.equal(3 in back, true);
});

test('own __proto__ stays a property and pollutes nothing', () => {
  const back = roundTrip(withProto) as object;
  assert.equal(Object.getPrototypeOf(back), Object.prototype);
  assert.equal(({} as { polluted?: number }).polluted, undefined);
});

test('errors keep class, message, stack and cause', () => {
  for (const ErrorClass of [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError]) {
    const error = new ErrorClass('what', { cause: new TypeError('why') });
    const back = roundTrip(error) as Error;
    assert.equal(back.constructor, ErrorClass);
    assert.equal(back.message, 'what');
    assert.equal(back.stack, error.stack);
    assert.equal((back.cause as Error).message, 'why');
  }
  class Custom extends Error {
    override name = 'Custom';
  }
  assert.equal((roundTrip(new Custom('x')) as Error).name, 'Error');
});

test('shared references and cycles come back', () => {
  const shared = { n: 1 };
  const back = roundTrip([shared, shared, new Map([[shared, new Set([shared])]])]) as [
    object,
    object,
    Map<object, Set<object>>,
  ];
  assert.equal(back[0], back[1]);
  assert.ok(back[2].get(back[0])?.has(back[0]));
  const cyclic: Record<string, unknown> = { list: [new Date(0), /x/, new Uint8Array(1), Object(1)] };
  cyclic['self'] = cyclic;
  const map = new Map<string, unknown>();
  map.set('map', map);
  cyclic['map'] = map;
  const error = new Error('e');
  error.cause = error;
  cyclic['error'] = error;
  const cycle = roundTrip(cyclic) as typeof cyclic;
  assert.equal(cycle['self'], cycle);
  assert.equal((cycle['map'] as typeof map).get('map'), cycle['map']);
  assert.equal((cycle['error'] as Error).cause, cycle['error']);
});

test('each value is decoded fresh', () => {
  const bytes = codec.encode({ list: [1], buffer: Uint8Array.of(1) });
  const first = codec.decode(bytes) as { list: number[]; buffer: Uint8Array };
  first.list.push(2);
  first.buffer[0] = 9;
  assert.deepEqual(codec.decode(bytes), { list: [1], buffer: Uint8Array.of(1) });
});

test('a view stores only its part of the buffer', () => {
  const part = new Uint8Array([1, 2, 3, 4]).subarray(1, 3);
  assert.deepEqual(roundTrip(part), Uint8Array.of(2, 3));
  assert.deepEqual(roundTrip(Buffer.from('hi')), new Uint8Array([104, 105]));
});

test('values without a stored form are refused', () => {
  const values = [
    undefined,
    () => 0,
    Symbol('s'),
    {
      f() {
        /* method */
      },
    },
    new WeakMap(),
    new WeakSet(),
    Promise.resolve(),
    new Blob([]),
    [Symbol.iterator],
    new Map([[() => 0, 1]]),
    new SharedArrayBuffer(1),
    new Uint8Array(new SharedArrayBuffer(1)),
  ];
  for (const value of values) refuses(() => codec.encode(value), 'KV_INVALID_VALUE');
  // A refusal leaves the encoder usable.
  assert.equal(roundTrip('next'), 'next');
});

test('nesting is limited, and the limit itself works', () => {
  const nest = (depth: number): unknown => {
    let value: unknown = 1;
    for (let level = 0; level < depth; level++) value = level % 2 === 0 ? [value] : { value };
    return value;
  };
  assert.deepEqual(roundTrip(nest(1000)), nest(1000));
  refuses(() => codec.encode(nest(1001)), 'KV_INVALID_VALUE');
  let sets: unknown = 1;
  for (let level = 0; level < 1000; level++) sets = new Set([sets]);
  assert.deepEqual(codec.encode(roundTrip(sets)), codec.encode(sets));
});

test('a getter may encode another value meanwhile', () => {
  const value = {
    get inner(): Uint8Array {
      return codec.encode({ a: 1 });
    },
  };
  const back = roundTrip(value) as { inner: Uint8Array };
  assert.deepEqual(codec.decode(back.inner), { a: 1 });
});

test('a getter may change its container', () => {
  const list: unknown[] = [
    {
      get a() {
        list.length = 1;
        return 1;
      },
    },
    2,
    3,
  ];
  assert.deepEqual(roundTrip(list), structuredClone([{ a: 1 }, , ,]));
  const growing: unknown[] = [
    {
      get a() {
        growing.push(9);
        return 1;
      },
    },
    2,
  ];
  assert.deepEqual(roundTrip(growing), [{ a: 1 }, 2]);
  const map = new Map<unknown, unknown>([
    [
      'a',
      {
        get a() {
          map.delete('b');
          map.set('c', 1);
          return 1;
        },
      },
    ],
    ['b', 2],
  ]);
  assert.deepEqual(
    roundTrip(map),
    new Map<unknown, unknown>([
      ['a', { a: 1 }],
      ['b', 2],
    ]),
  );
});

test('an object that only claims a class is refused, never stored as something else', () => {
  for (const name of [
    'Number',
    'String',
    'Boolean',
    'BigInt',
    'Map',
    'Set',
    'Date',
    'RegExp',
    'ArrayBuffer',
    'Promise',
  ]) {
    class Pretender {
      readonly flags = '';
      get [Symbol.toStringTag](): string {
        return name;
      }
    }
    refuses(() => codec.encode({ in: new Pretender() }), 'KV_INVALID_VALUE');
  }
  class Renamed extends Uint8Array {
    override get [Symbol.toStringTag](): 'Uint8Array' {
      return 'Float64Array' as 'Uint8Array';
    }
  }
  assert.deepEqual(roundTrip(new Renamed([1, 2, 3])), new Uint8Array([1, 2, 3]));
  const boxed = Object.assign(Object(1) as object, { valueOf: () => 2 });
  assert.deepEqual(Number(roundTrip(boxed)), 1);
});

test('a transferred buffer is refused', () => {
  const buffer = new ArrayBuffer(8);
  const view = new Uint8Array(buffer);
  structuredClone(buffer, { transfer: [buffer] });
  refuses(() => codec.encode(buffer), 'KV_INVALID_VALUE');
  refuses(() => codec.encode({ view }), 'KV_INVALID_VALUE');
});

test('values are encoded as CBOR', () => {
  const golden: [unknown, string][] = [
    [{ a: [1, -1, 'é'] }, 'a1616183012062c3a9'],
    [1.5, 'fa3fc00000'],
    [0.1, 'fb3fb999999999999a'],
    [-0, 'fa80000000'],
    [new Date(1000), 'c101'],
    [5n, 'c24105'],
    [new Set([1]), 'd901028101'],
    [new Map([[1, 2]]), 'd90103a10102'],
    [Uint8Array.of(7), '4107'],
    [new Uint16Array([1]), 'd845420100'],
    ['\ud800', 'd9011143eda080'],
  ];
  for (const [value, bytes] of golden) assert.equal(hex(codec.encode(value)), bytes);
});

test('any plain data comes back equal', () => {
  const data = fc.anything({ withBigInt: true, withTypedArray: true, withSparseArray: true });
  fc.assert(
    fc.property(
      data.filter((value) => value !== undefined),
      (value) => {
        assert.deepStrictEqual(roundTrip(value), structuredClone(value));
      },
    ),
    { numRuns: 2000 },
  );
});

// Compared by their encoding, because not every runtime's `deepStrictEqual` pairs map keys that are
// equal objects.
test('any maps and sets come back equal', () => {
  const data = fc.anything({ withBigInt: true, withMap: true, withSet: true });
  fc.assert(
    fc.property(
      data.filter((value) => value !== undefined),
      (value) => {
        assert.deepStrictEqual(codec.encode(roundTrip(value)), codec.encode(structuredClone(value)));
      },
    ),
    { numRuns: 2000 },
  );
});

// Tested separately, because `deepStrictEqual` never considers two invalid dates equal.
test('every date comes back to the millisecond', () => {
  fc.assert(
    fc.property(fc.date({ noInvalidDate: true }), (date) => {
      assert.equal((roundTrip(date) as Date).getTime(), date.getTime());
    }),
    { numRuns: 5000 },
  );
});

test('mutated bytes give a value or KV_CORRUPT', () => {
  const seeds = Object.values(CASES)
    .map((value) => codec.encode(value))
    .filter((bytes) => bytes.length < 4000);
  fc.assert(
    fc.property(
      fc.constantFrom(...seeds),
      fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }),
      fc.nat(),
      (seed, changes, cut) => {
        const bytes = seed.slice();
        for (const [at, value] of changes) bytes[at % bytes.length] = value;
        try {
          codec.decode(cut % 4 === 0 ? bytes.subarray(0, cut % bytes.length) : bytes);
        } catch (error) {
          assert.equal((error as { code?: string }).code, 'KV_CORRUPT');
        }
      },
    ),
    { numRuns: 20_000 },
  );
});

test('hostile lengths allocate nothing', () => {
  for (const bytes of [
    '9b001fffffffffffff',
    'bb001fffffffffffff',
    '5b001fffffffffffff',
    '7b001fffffffffffff',
    '9affffffff',
    'd901035affffffff',
  ]) {
    refuses(() => codec.decode(Uint8Array.from(Buffer.from(bytes, 'hex'))), 'KV_CORRUPT');
  }
});

test('json, string and bytes do what their names say', () => {
  assert.deepEqual(valueCodecs.json().decode(valueCodecs.json().encode({ a: [1, null] })), { a: [1, null] });
  refuses(() => valueCodecs.json().encode(undefined), 'KV_INVALID_VALUE');
  assert.equal(valueCodecs.string.decode(valueCodecs.string.encode('é')), 'é');
  refuses(() => valueCodecs.string.encode(1 as unknown as string), 'KV_INVALID_VALUE');
  const source = Uint8Array.of(1, 2);
  const copy = valueCodecs.bytes.encode(source);
  source[0] = 9;
  assert.deepEqual(copy, Uint8Array.of(1, 2));
  refuses(() => valueCodecs.bytes.encode('x' as unknown as Uint8Array), 'KV_INVALID_VALUE');
});

test('similar property names stay distinct', () => {
  const names = [
    'abc',
    'adc',
    'aéc',
    'aec',
    'a\u0000c',
    'a',
    'aa',
    'é',
    '',
    'x'.repeat(23),
    `${'x'.repeat(11)}y${'x'.repeat(11)}`,
    'x'.repeat(24),
    'constructor',
    '__proto__',
    '\ud800',
  ];
  const records = names.flatMap((first) =>
    names.map((second) =>
      Object.fromEntries([
        [first, 1],
        [second, 2],
      ]),
    ),
  );
  const encoded = records.map((record) => codec.encode(record));
  for (const [index, bytes] of encoded.entries())
    assert.deepEqual(Object.entries(codec.decode(bytes) as object), Object.entries(records[index]!));
});

test('a value that cannot be decoded leaves nothing behind for the next one', () => {
  const shared = { deep: [[[{}]]] };
  const value = [shared, shared, { name: 'x' }];
  const bytes = codec.encode(value);
  for (let length = 0; length < bytes.length; length++) {
    refuses(() => codec.decode(bytes.subarray(0, length)), 'KV_CORRUPT');
    const [first, second, third] = codec.decode(bytes) as [object, object, object];
    assert.deepEqual([first, second, third], value);
    assert.equal(first, second);
  }
});

test('references to any of few or many objects come back', () => {
  for (const count of [1, 7, 8, 9, 10, 100]) {
    const objects = Array.from({ length: count }, (_, index) => ({ index }));
    const decoded = codec.decode(codec.encode([objects, [...objects].reverse()])) as [object[], object[]];
    assert.deepEqual(decoded, [objects, [...objects].reverse()]);
    for (const [index, object] of decoded[0].entries()) assert.equal(decoded[1][count - 1 - index], object);
  }
});
