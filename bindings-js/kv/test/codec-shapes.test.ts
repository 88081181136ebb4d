// What plain data does not exercise: arrays with named properties, views that share bytes, objects
// in a changed environment, classes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { KvError } from '../src/base/errors.ts';
import { valueCodecs } from '../src/codec/values.ts';

const codec = valueCodecs.structured();
const hex = (bytes: Uint8Array): string => [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
const fromHex = (text: string): Uint8Array =>
  Uint8Array.from(text.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
const roundTrip = <T>(value: T): T => codec.decode(codec.encode(value)) as T;

function refusal(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    assert.equal((error as KvError).code, 'KV_INVALID_VALUE');
    return (error as KvError).message;
  }
  return assert.fail('not refused');
}

/** An array with named properties, and with holes where `elements` has them. */
function named(elements: unknown[], names: Record<string, unknown>): unknown[] {
  for (const [name, value] of Object.entries(names)) {
    Object.defineProperty(elements, name, { value, writable: true, enumerable: true, configurable: true });
  }
  return elements;
}

/** Everything that reflection shows of the own enumerable properties, in order. */
function shape(value: unknown): unknown {
  return Array.isArray(value)
    ? [value.length, Object.entries(value).map(([name, element]) => [name, shape(element)])]
    : value;
}

test('arrays keep named properties as structured clone does', () => {
  const match = 'xaby'.match(/(?<l>a)b/) as RegExpMatchArray;
  assert.equal(roundTrip(match).index, 1);
  assert.equal(roundTrip(match).input, 'xaby');
  assert.deepEqual({ ...roundTrip(match).groups }, { l: 'a' });
  const cases = [
    match,
    'ab'.match(/b/),
    named([], { a: 1 }),
    named([1, 2], { length2: 2, '-1': 3, '01': 4, '4294967295': 5, '': 6 }),
    named([1], { __proto__x: 1, map: 2, constructor: 3 }),
    // As many holes as names, so that there are as many properties as elements.
    named([, 1], { a: 1 }),
    named([1, , 2, ,], { a: 1, b: 2 }),
    named(new Array(3), { a: 1, b: 2, c: 3 }),
    named([undefined, undefined], { a: undefined }),
    named([[named([1], { in: 'side' })]], { out: named([], { x: 1 }) }),
  ];
  for (const value of cases) assert.deepEqual(shape(roundTrip(value)), shape(structuredClone(value)));
  const own = JSON.parse('{"__proto__": 7}') as Record<string, unknown>;
  const back = roundTrip(named([1], own));
  assert.deepEqual(Object.entries(back), [
    ['0', 1],
    ['__proto__', 7],
  ]);
  assert.equal(Object.getPrototypeOf(back), Array.prototype);
});

test('any array with holes and named properties comes back unchanged', () => {
  const element = fc.oneof(fc.constant('hole'), fc.constant(undefined), fc.integer());
  const names = fc.dictionary(
    fc.oneof(fc.constantFrom('a', 'index', 'toString', '__proto__', '7', '\ud800'), fc.string({ maxLength: 3 })),
    fc.oneof(fc.integer(), fc.constant(undefined)),
    { maxKeys: 4 },
  );
  fc.assert(
    fc.property(fc.array(element, { maxLength: 5 }), names, (elements, properties) => {
      const value: unknown[] = new Array(elements.length);
      elements.forEach((entry, index) => {
        if (entry !== 'hole') value[index] = entry;
      });
      named(value, properties);
      assert.deepEqual(shape(roundTrip(value)), shape(structuredClone(value)));
    }),
    { numRuns: 3000 },
  );
});

test('references into and out of arrays with named properties are preserved', () => {
  const list = named([], {}) as unknown[] & { self?: unknown; twin?: unknown };
  const shared = { n: 1 };
  list.push(shared, [shared]);
  list.self = list;
  list.twin = shared;
  const back = roundTrip(list);
  assert.equal(back.self, back);
  assert.equal(back.twin, back[0]);
  assert.equal((back[1] as unknown[])[0], back[0]);
});

test('references after an array whose named properties offset its holes are preserved', () => {
  const shared = { n: 1 };
  const value = [named([shared, , [shared]], { a: shared }), shared, Array.from({ length: 20 }, () => ({})), shared];
  const back = roundTrip(value) as [unknown[] & { a: unknown }, unknown, unknown, unknown];
  assert.equal(back[0][0], back[1]);
  assert.equal((back[0][2] as unknown[])[0], back[1]);
  assert.equal(back[0].a, back[1]);
  assert.equal(back[3], back[1]);
});

test('an array of billions with few elements present is small', () => {
  const sparse: unknown[] = [1];
  sparse[4_294_967_294] = 'last';
  const bytes = codec.encode(sparse);
  assert.ok(bytes.length < 100);
  const back = codec.decode(bytes) as unknown[];
  assert.equal(back.length, 4_294_967_295);
  assert.deepEqual(Object.entries(back), [
    ['0', 1],
    ['4294967294', 'last'],
  ]);
  assert.equal(roundTrip(new Array(4_294_967_295)).length, 4_294_967_295);
});

test('arrays and views that were supported before keep their bytes', () => {
  const pool = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8).buffer;
  const golden: [unknown, string][] = [
    [[1, 'a', [2]], '830161618102'],
    [[1, , 3], '8301f003'],
    [new Array(2), '82f0f0'],
    [[undefined], '81f7'],
    [[new Uint8Array(pool, 0, 2), new Uint8Array(pool, 4, 2)], '82420102420506'],
    [[new Uint8Array(pool, 0, 2), new Uint8Array(pool, 2, 2)], '82420102420304'],
    [[pool, new Uint8Array(8)], '82d81b826b41727261794275666665724801020304050607084800000000000000' + '00'],
  ];
  for (const [value, bytes] of golden) assert.equal(hex(codec.encode(value)), bytes);
});

test('views that share bytes share them again', () => {
  const buffer = Uint8Array.from({ length: 64 }, (_, index) => index).buffer;
  const views: Record<string, () => unknown[]> = {
    'the buffer and views': () => [
      buffer,
      new Uint8Array(buffer, 3, 5),
      new DataView(buffer, 1),
      new Uint8Array(buffer, 64),
    ],
    'views and their buffer': () => [
      new Float64Array(buffer, 8, 2),
      new Uint8Array(buffer, 40, 1),
      buffer,
      new Int16Array(buffer, 2),
    ],
    'overlapping views': () => [
      new Uint8Array(buffer, 5, 12),
      new Float64Array(buffer, 16, 2),
      new DataView(buffer, 9, 3),
    ],
  };
  for (const [name, make] of Object.entries(views)) {
    const value = make();
    const back = roundTrip({ before: [value[0]], value, after: {} }) as { before: unknown[]; value: unknown[] };
    const buffers = new Set(
      back.value.map((view) => (view instanceof ArrayBuffer ? view : (view as ArrayBufferView).buffer)),
    );
    assert.equal(buffers.size, 1, name);
    assert.equal(back.before[0], back.value[0], name);
    for (const [index, view] of value.entries()) assert.deepEqual(back.value[index], view, name);
  }
  const [a, b] = roundTrip([new Uint8Array(buffer, 0, 4), new Uint8Array(buffer, 2, 4)]) as [Uint8Array, Uint8Array];
  a[3] = 99;
  assert.equal(b[1], 99);
});

test('only the bytes of its views are stored of a buffer that is not stored itself', () => {
  const secret = new Uint8Array(100).fill(0x77);
  secret.set([1, 2, 3, 4, 5], 13);
  const bytes = codec.encode([
    secret.subarray(13, 16),
    secret.subarray(15, 18),
    Buffer.from('pooled'),
    Buffer.from('by node'),
  ]);
  assert.ok(!bytes.includes(0x77));
  const back = codec.decode(bytes) as Uint8Array[];
  assert.deepEqual(
    back.map((view) => [...view]),
    [[1, 2, 3], [3, 4, 5], [...Buffer.from('pooled')], [...Buffer.from('by node')]],
  );
  assert.notEqual(back[2]!.buffer, back[3]!.buffer);
});

test('any views of two buffers share what they shared before', () => {
  const classes = [Uint8Array, Uint8ClampedArray, Int16Array, Float32Array, Float64Array, BigInt64Array, DataView];
  const view = fc.record({ buffer: fc.nat(1), kind: fc.nat(classes.length), at: fc.nat(6), length: fc.nat(4) });
  fc.assert(
    fc.property(fc.array(view, { maxLength: 8 }), (views) => {
      const buffers = [new ArrayBuffer(96), new ArrayBuffer(96)];
      const value = views.map(({ buffer, kind, at, length }) => {
        const View = classes[kind] as
          | (new (
              of: ArrayBuffer,
              from: number,
              count: number,
            ) => ArrayBufferView)
          | undefined;
        return View === undefined ? buffers[buffer]! : new View(buffers[buffer]!, at * 8, length);
      });
      const back = roundTrip(value);
      const range = (of: ArrayBuffer | ArrayBufferView): [ArrayBufferLike, number, number] =>
        of instanceof ArrayBuffer ? [of, 0, of.byteLength] : [of.buffer, of.byteOffset, of.byteOffset + of.byteLength];
      const meet = (a: ArrayBuffer | ArrayBufferView, b: ArrayBuffer | ArrayBufferView): boolean => {
        const [bufferA, fromA, toA] = range(a);
        const [bufferB, fromB, toB] = range(b);
        return bufferA === bufferB && Math.max(fromA, fromB) < Math.min(toA, toB);
      };
      for (const [i, one] of value.entries()) {
        for (const [j, other] of value.entries()) {
          if (meet(one, other)) {
            const distance = range(one)[1] - range(other)[1];
            assert.equal(range(back[i]!)[0], range(back[j]!)[0]);
            assert.equal(range(back[i]!)[1] - range(back[j]!)[1], distance);
          }
        }
      }
      assert.deepEqual(
        back.map((of) => of.constructor),
        value.map((of) => of.constructor),
      );
      assert.deepEqual(
        back.map((of) => of.byteLength),
        value.map((of) => of.byteLength),
      );
    }),
    { numRuns: 2000 },
  );
});

test('malformed arrays with named properties and malformed views cause KV_CORRUPT', () => {
  const buffer = new ArrayBuffer(16);
  const sparse: unknown[] = [];
  sparse[4_000_000_000] = 1;
  const seeds = [
    named([1, , 2], { a: 1, length2: [] }),
    sparse,
    [buffer, new Uint16Array(buffer, 2), new DataView(buffer)],
    [new Uint8Array(buffer, 0, 8), new Float32Array(buffer, 4)],
  ].map((value) => codec.encode(value));
  fc.assert(
    fc.property(
      fc.constantFrom(...seeds),
      fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }),
      (seed, changes) => {
        const bytes = seed.slice();
        for (const [at, value] of changes) bytes[at % bytes.length] = value;
        try {
          codec.decode(bytes);
        } catch (error) {
          assert.equal((error as KvError).code, 'KV_CORRUPT');
        }
      },
    ),
    { numRuns: 20_000 },
  );
  // A length as a property, references to something that is not a buffer, half elements, other
  // globals.
  for (const bytes of [
    'd81b8365417272617980a1666c656e67746820',
    'd81b83654172726179' + '1b00000001' + '00000000' + 'a0',
    'd81b836541727261798000',
    '8200d81b826b417272617942756666657200',
    '81d81b826b417272617942756666657200',
    '81d81b846a55696e743332417272617942000000' + '01',
    '81d81b846846756e6374696f6e40' + '0000',
  ]) {
    assert.throws(() => codec.decode(fromHex(bytes)), { code: 'KV_CORRUPT' }, bytes);
  }
});

test('bytes in a Buffer are decoded like those of any other array', () => {
  const bytes = codec.encode({ numbers: Float32Array.of(1.5), bytes: Uint8Array.of(1) });
  const buffer = Buffer.from(bytes);
  const back = codec.decode(buffer) as { numbers: Float32Array; bytes: Uint8Array };
  buffer.fill(0);
  assert.deepEqual(back, { numbers: Float32Array.of(1.5), bytes: Uint8Array.of(1) });
  assert.equal(Object.getPrototypeOf(back.bytes), Uint8Array.prototype);
});

/** Runs `run` with a property on `Object.prototype`, and removes it again. */
function withPrototype(name: string, descriptor: PropertyDescriptor, run: () => void): void {
  // eslint-disable-next-line no-extend-native
  Object.defineProperty(Object.prototype, name, { configurable: true, ...descriptor });
  try {
    run();
  } finally {
    delete (Object.prototype as unknown as Record<string, unknown>)[name];
  }
}

test('properties are defined, whatever was added to Object.prototype', () => {
  const value = { shade: 1, list: [{ shade: 2, other: 3 }], map: new Map([['a', { shade: { shade: 4 } }]]) };
  const bytes = codec.encode(value);
  // Decoded before anything was added.
  assert.deepEqual(codec.decode(bytes), value);
  let calls = 0;
  const check = (): void => {
    const back = codec.decode(bytes) as typeof value;
    assert.deepEqual(Object.keys(back), Object.keys(value));
    assert.equal(Object.getOwnPropertyDescriptor(back, 'shade')?.value, 1);
    assert.deepEqual(Object.entries(back.list[0]!), [
      ['shade', 2],
      ['other', 3],
    ]);
    assert.deepEqual(Object.getOwnPropertyDescriptor(back.map.get('a'), 'shade'), {
      value: back.map.get('a')?.shade,
      writable: true,
      enumerable: true,
      configurable: true,
    });
    assert.equal(calls, 0);
  };
  withPrototype(
    'shade',
    {
      set() {
        calls++;
      },
    },
    check,
  );
  withPrototype(
    'shade',
    {
      get: () => {
        calls++;
        return 7;
      },
    },
    check,
  );
  withPrototype('shade', { value: 5, writable: false }, check);
  withPrototype('get', { value: () => 1, writable: true }, check);
  check();
});

test('records with names of Object.prototype come back although it is frozen', () => {
  const value = { toString: 1, constructor: 'c', valueOf: [], hasOwnProperty: null, a: named([1], { toString: 2 }) };
  const bytes = codec.encode(value);
  const names = ['toString', 'constructor', 'valueOf', 'hasOwnProperty'];
  const before = names.map((name) => [name, Object.getOwnPropertyDescriptor(Object.prototype, name)!] as const);
  try {
    // Like `Object.freeze(Object.prototype)`, which could not be undone.
    for (const [name, descriptor] of before)
      Object.defineProperty(Object.prototype, name, { ...descriptor, writable: false });
    const back = codec.decode(bytes) as Record<string, unknown>;
    assert.deepEqual(Object.entries(back).slice(0, 3), [
      ['toString', 1],
      ['constructor', 'c'],
      ['valueOf', []],
    ]);
    assert.deepEqual(Object.entries(back['a'] as object), [
      ['0', 1],
      ['toString', 2],
    ]);
  } finally {
    for (const [name, descriptor] of before) Object.defineProperty(Object.prototype, name, descriptor);
  }
});

test('a value that changes while it is encoded is stored well-formed or refused', () => {
  const turning =
    (...values: unknown[]): (() => unknown) =>
    () =>
      values.length > 1 ? values.shift() : values[0];
  const error = Object.defineProperties(new Error('e'), {
    name: { get: turning('TypeError', 'Nonsense') },
    stack: { get: turning('text', 5) },
  });
  assert.ok(roundTrip(error) instanceof Error);
  const pattern = Object.defineProperty(/a/g, 'flags', { value: 5 });
  assert.equal(String(roundTrip(pattern)), '/a/g');
  const proxied = (length: unknown): unknown =>
    new Proxy([1, 2], { get: (target, name) => (name === 'length' ? length : Reflect.get(target, name)) });
  assert.deepEqual(roundTrip(proxied(2)), [1, 2]);
  for (const length of [1.5, -1, 'x', Number.NaN, 2 ** 32, {}])
    assert.match(
      refusal(() => codec.encode([proxied(length)])),
      /an array with an invalid length at \[0\]/,
    );
  const buffer = new ArrayBuffer(8);
  const views = [
    new Uint8Array(buffer, 0, 8),
    {
      get gone() {
        structuredClone(buffer, { transfer: [buffer] });
        return 1;
      },
    },
    3,
  ];
  assert.deepEqual(roundTrip(views), [new Uint8Array(8), { gone: 1 }, 3]);
});

test('a refusal says where in the value the problem is', () => {
  const cases: [unknown, RegExp][] = [
    [() => 0, /^a function cannot be stored/],
    [{ list: [0, { 'a b': Symbol('s') }] }, /^a symbol at \.list\[1\]\["a b"\] cannot be stored/],
    [
      {
        map: new Map([
          [
            'k',
            {
              run() {
                /* method */
              },
            },
          ],
        ]),
      },
      /^a function at \.map\.entries\(\)\[0\]\[1\]\.run cannot/,
    ],
    [new Map([[() => 0, 1]]), /^a function at \.entries\(\)\[0\]\[0\] cannot/],
    [[new Set([1, new WeakMap()])], /^an object of class WeakMap at \[0\]\.values\(\)\[1\] cannot/],
    [named([1], { extra: () => 0 }), /^a function at \.extra cannot/],
    [new Error('e', { cause: { f: () => 0 } }), /^a function at \.cause\.f cannot/],
  ];
  for (const [value, message] of cases)
    assert.match(
      refusal(() => codec.encode(value)),
      message,
    );
  const deep: unknown[] = [];
  deep.push(deep.concat([[]]));
  let nested: unknown = 1;
  for (let level = 0; level < 2000; level++) nested = { level: nested };
  assert.ok(refusal(() => codec.encode(nested)).length < 500);
  // What a getter throws is passed on unchanged.
  const own = new RangeError('mine');
  assert.throws(
    () =>
      codec.encode([
        {
          get a() {
            throw own;
          },
        },
      ]),
    (error) => error === own,
  );
});

test('strict values exclude instances of classes', () => {
  const strict = valueCodecs.structured({ strict: true });
  assert.equal(strict.id, codec.id);
  class Point {
    x = 1;
  }
  class Names extends Map<string, number> {}
  class List extends Array<number> {}
  class Problem extends Error {}
  const cases: [unknown, RegExp][] = [
    [new Point(), /^an instance of Point cannot be stored with strict values/],
    [{ shapes: [{}, new Point()] }, /^an instance of Point at \.shapes\[1\] cannot be stored with strict values/],
    [[new Names()], /^an instance of Names at \[0\]/],
    [[new List()], /^an instance of List at \[0\]/],
    [[new Problem('p')], /^an instance of Problem at/],
    [[Buffer.from('b')], /^an instance of Buffer at \[0\]/],
    [Object.create({ inherited: 1 }), /^an object with a prototype of its own cannot/],
    [[new AggregateError([])], /^an instance of AggregateError at/],
  ];
  for (const [value, message] of cases) {
    assert.match(
      refusal(() => strict.encode(value)),
      message,
    );
    assert.doesNotThrow(() => codec.encode(value));
  }
  const fine = [
    1,
    'a',
    null,
    {},
    Object.create(null),
    [],
    new Map(),
    new Set(),
    new Date(0),
    /a/,
    new TypeError('t'),
    new Error('e'),
    Object(1),
    new ArrayBuffer(1),
    new Uint8Array(1),
    new DataView(new ArrayBuffer(1)),
    new BigInt64Array(1),
    'ab'.match(/b/),
    JSON.parse('{"constructor": 1}'),
  ];
  for (const value of fine) assert.deepEqual(strict.encode(value), codec.encode(value));
});
