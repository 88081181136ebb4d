// The order-preserving key codec: golden bytes, round trips, and byte order compared with the
// documented order of values.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fastOf } from '../src/codec/fast.ts';
import { MAX_KEY, compareKeys, encodeBound, keyCodecs, prefixRange, successor } from '../src/codec/keys.ts';
import type { Key, KeyCodec } from '../src/codec/keys.ts';
import type { KvErrorCode } from '../src/base/errors.ts';

const { any } = keyCodecs;
const hex = (bytes: Uint8Array): string => [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let index = 0; index < Math.min(a.length, b.length); index++) {
    if (a[index] !== b[index]) return a[index]! - b[index]!;
  }
  return a.length - b.length;
}

const RANKS = ['null', 'false', 'true', 'number', 'bigint', 'date', 'string', 'binary', 'array'];

function rank(key: Key): number {
  if (key === null) return 0;
  if (typeof key === 'boolean') return key ? 2 : 1;
  if (key instanceof Date) return RANKS.indexOf('date');
  if (Array.isArray(key)) return RANKS.indexOf('array');
  return RANKS.indexOf(typeof key === 'object' ? 'binary' : typeof key);
}

/** The documented order, implemented without bytes. */
function compareValues(a: Key, b: Key): number {
  const difference = rank(a) - rank(b);
  if (difference !== 0) return difference;
  if (Array.isArray(a) && Array.isArray(b)) {
    for (let index = 0; index < Math.min(a.length, b.length); index++) {
      const order = compareValues(a[index] as Key, b[index] as Key);
      if (order !== 0) return order;
    }
    return a.length - b.length;
  }
  if (a instanceof Uint8Array && b instanceof Uint8Array) return compareBytes(a, b);
  if (a instanceof Date && b instanceof Date) return a.getTime() - b.getTime();
  return a! < b! ? -1 : a! > b! ? 1 : 0;
}

const anyString = fc.string({
  unit: fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
  maxLength: 12,
});
const nearString = fc.string({
  unit: fc.constantFrom('\0', 'a', 'b', 'ÿ', '\ud800', '\udc00', '\uffff'),
  maxLength: 4,
});
const nearBytes = fc
  .uint8Array({ maxLength: 4 })
  .map((bytes) => bytes.map((byte) => (byte % 3 === 0 ? 0 : byte % 3 === 1 ? 255 : byte)));
const scalar: fc.Arbitrary<Key> = fc.oneof(
  fc.constant(null),
  fc.boolean(),
  fc.double({ noNaN: true }),
  fc.integer(),
  fc.bigInt(),
  fc.bigInt({ min: -300n, max: 300n }),
  fc.date({ noInvalidDate: true }),
  anyString,
  nearString,
  nearBytes,
);
const anyKey: fc.Arbitrary<Key> = fc.letrec<{ key: Key }>((tie) => ({
  key: fc.oneof({ maxDepth: 3 }, scalar, fc.array(tie('key'), { maxLength: 3 })),
})).key;

function refuses(run: () => unknown, code: KvErrorCode): void {
  assert.throws(run, (error: Error & { code?: string }) => error.code === code);
}

test('keys have the bytes that the format documents', () => {
  const golden: [Key, string][] = [
    [null, '05'],
    [false, '08'],
    [true, '09'],
    [0, '108000000000000000'],
    [-0, '108000000000000000'],
    [1, '10bff0000000000000'],
    [-1, '10400fffffffffffff'],
    [0n, '1880'],
    [1n, '188101'],
    [-1n, '187ffe'],
    [256n, '18820100'],
    [new Date(0), '208000000000000000'],
    ['', '30'],
    ['a\0é€', '306100c3a9e282ac'],
    ['\ud83d\ude00', '30eda0bdedb880'],
    [Uint8Array.of(0, 255), '4000ff'],
    [[], '50'],
    [['a\0', 1], '50306100ff0010bff0000000000000'],
    [[[]], '505000'],
    [[Uint8Array.of(0)], '504000ff00'],
  ];
  for (const [key, bytes] of golden) assert.equal(hex(any.encode(key)), bytes);
});

/** -0 and 0 are the same key, which is decoded as 0. */
function withoutNegativeZero(key: Key): Key {
  return Array.isArray(key) ? key.map(withoutNegativeZero) : key === 0 ? 0 : key;
}

test('keys of every type come back unchanged', () => {
  fc.assert(
    fc.property(anyKey, (key) => {
      assert.deepEqual(any.decode(any.encode(key)), withoutNegativeZero(key));
    }),
    { numRuns: 3000 },
  );
});

test('the order of the bytes is the order of the keys', () => {
  fc.assert(
    fc.property(anyKey, anyKey, (a, b) => {
      const order = Math.sign(compareBytes(any.encode(a), any.encode(b)));
      assert.equal(order, Math.sign(compareValues(a, b)));
      assert.equal(Math.sign(compareKeys(a, b)), order);
    }),
    { numRuns: 10_000 },
  );
  fc.assert(
    fc.property(fc.array(scalar, { maxLength: 3 }), fc.array(scalar, { maxLength: 3 }), (a, b) => {
      assert.equal(Math.sign(compareBytes(any.encode(a), any.encode(b))), Math.sign(compareValues(a, b)));
    }),
    { numRuns: 10_000 },
  );
});

test('different lone surrogates are different keys', () => {
  assert.notEqual(hex(any.encode('\ud800')), hex(any.encode('\ud801')));
  assert.equal(keyCodecs.string.decode(keyCodecs.string.encode('\ud800')), '\ud800');
});

test('big integers of any length keep their order', () => {
  const values = [2n ** 1008n, 2n ** 1008n - 1n, 2n ** 1016n, 2n ** 3000n, 1n, 0n].flatMap((value) => [value, -value]);
  for (const a of values) {
    assert.equal(any.decode(any.encode(a)), a);
    for (const b of values) assert.equal(Math.sign(compareKeys(a, b)), a < b ? -1 : a > b ? 1 : 0);
  }
});

test('values without an order are refused', () => {
  const cyclic: unknown[] = [];
  cyclic.push(cyclic);
  // eslint-disable-next-line no-sparse-arrays
  for (const key of [
    undefined,
    Number.NaN,
    new Date(Number.NaN),
    {},
    () => 0,
    Symbol('s'),
    [1, , 2],
    [undefined],
    cyclic,
    MAX_KEY,
    [MAX_KEY],
  ]) {
    refuses(() => any.encode(key as Key), 'KV_INVALID_KEY');
  }
  refuses(() => any.encode('x'.repeat(70_000)), 'KV_KEY_TOO_LARGE');
  refuses(() => any.encode(new Uint8Array(70_000)), 'KV_KEY_TOO_LARGE');
  refuses(() => any.encode(['x'.repeat(40_000), 'x'.repeat(40_000)]), 'KV_KEY_TOO_LARGE');
});

test('the refusal of a key says what was found and where in the key', () => {
  const cases: [unknown, RegExp][] = [
    [{}, /^an object cannot be a key; keys are null, booleans, numbers/],
    [undefined, /^undefined cannot be a key/],
    [() => 0, /^a function cannot be a key/],
    [new (class Point {})(), /^an instance of Point cannot be a key/],
    [Number.NaN, /^NaN cannot be a key/],
    [new Map(), /^an instance of Map cannot be a key/],
    [['a', {}], /^element \[1\] of the key is an object; keys are/],
    [['a', ['b', [undefined]]], /^element \[1\]\[1\]\[0\] of the key is undefined;/],
    // eslint-disable-next-line no-sparse-arrays
    [[1, , 2], /^element \[1\] of the key is a hole;/],
    [[new Date(Number.NaN)], /^element \[0\] of the key is an invalid Date;/],
    [[MAX_KEY], /^element \[0\] of the key is MAX_KEY;/],
    [MAX_KEY, /^MAX_KEY cannot be a key/],
    [Object.create(null), /^an object cannot be a key/],
  ];
  for (const [key, message] of cases) assert.throws(() => any.encode(key as Key), { code: 'KV_INVALID_KEY', message });
  assert.throws(() => keyCodecs.string.encode({} as unknown as string), {
    message: /^an object cannot be a key; codec string takes strings/,
  });
  assert.throws(() => keyCodecs.uint32.encode(-1), {
    message: /^-1 cannot be a key; codec uint32 takes integers from 0 to 2\^32 - 1/,
  });
  assert.throws(() => keyCodecs.uint32.encode('1' as unknown as number), {
    message: /^a string cannot be a key; codec uint32 takes/,
  });
});

test('a key that changes while it is encoded is refused', () => {
  const growing: unknown[] = ['a', 'b'];
  Object.defineProperty(growing, 0, {
    enumerable: true,
    get: () => {
      growing.push('c');
      return 'a';
    },
  });
  refuses(() => any.encode(growing as Key), 'KV_INVALID_KEY');
  refuses(() => any.encode(['x', growing] as Key), 'KV_INVALID_KEY');
  const shrinking: unknown[] = ['a', 'b', 'c'];
  Object.defineProperty(shrinking, 0, {
    enumerable: true,
    get: () => {
      shrinking.length = 2;
      return 'a';
    },
  });
  refuses(() => any.encode(shrinking as Key), 'KV_INVALID_KEY');
  const proxy = new Proxy(['a'], { get: (target, name) => (name === 'length' ? 1.5 : Reflect.get(target, name)) });
  refuses(() => any.encode(proxy as Key), 'KV_INVALID_KEY');
  const date = Object.assign(new Date(5), { getTime: () => 'soon' });
  assert.deepEqual(any.encode(date), any.encode(new Date(5)));
  refuses(() => any.encode({ [Symbol.toStringTag]: 'Date', getTime: () => 1 } as unknown as Key), 'KV_INVALID_KEY');
});

test('a getter in a key may encode other keys', () => {
  const key: unknown[] = ['first', 0, 'last'];
  Object.defineProperty(key, 1, {
    enumerable: true,
    get: () => {
      any.encode(['quite', 'another', 'key']);
      keyCodecs.string.encode('and a text that is longer than the key');
      return 'middle';
    },
  });
  assert.deepEqual(any.decode(any.encode(key as Key)), ['first', 'middle', 'last']);
});

test('long elements, elements with zeros and elements at the end of a larger buffer come back', () => {
  const texts = [
    '',
    'a',
    'a\0',
    '\0',
    '\0\0b',
    'x'.repeat(63),
    'x'.repeat(64),
    'x'.repeat(65),
    'x'.repeat(1000),
    'é'.repeat(80),
    `${'x'.repeat(70)}\0é\ud800`,
  ];
  const binaries = texts.map((text) => new TextEncoder().encode(text));
  for (const a of [...texts, ...binaries]) {
    for (const b of [...texts, ...binaries]) {
      for (const key of [[a, b], [[a], b], [[a, [b]]], [a, 1, b, null]])
        assert.deepEqual(any.decode(any.encode(key)), key);
    }
  }
  const { read } = fastOf<Key>(any)!;
  const bytes = any.encode(['a', Uint8Array.of(1), 'b']);
  // What follows looks like an escape, and like the rest of a number.
  const around = Uint8Array.of(9, ...bytes, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0);
  assert.deepEqual(read(around, 1, 1 + bytes.length), ['a', Uint8Array.of(1), 'b']);
  const number = any.encode([5]);
  refuses(() => read(Uint8Array.of(...number, 0, 0), 0, number.length - 1), 'KV_CORRUPT');
  for (let end = 1; end < bytes.length; end++) {
    const cut = (): unknown => read(around, 1, 1 + end);
    try {
      assert.deepEqual(any.encode(cut() as Key), bytes.subarray(0, end));
    } catch (error) {
      assert.equal((error as { code?: string }).code, 'KV_CORRUPT');
    }
  }
});

test('malformed bytes cause KV_CORRUPT and no other error', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 24 }),
      fc.constantFrom(0x10, 0x18, 0x20, 0x30, 0x40, 0x50, 0x00, 0xff),
      (bytes, tag) => {
        for (const input of [bytes, Uint8Array.of(tag, ...bytes)]) {
          try {
            any.decode(input);
          } catch (error) {
            assert.equal((error as { code?: string }).code, 'KV_CORRUPT');
          }
        }
      },
    ),
    { numRuns: 5000 },
  );
});

test('a prefix covers exactly the keys that begin with it', () => {
  const covers = <K>(codec: KeyCodec<K>, prefix: K, key: K): boolean => {
    const { lower, upper } = prefixRange(codec, prefix as never);
    const bytes = codec.encode(key);
    return compareBytes(bytes, lower) >= 0 && (upper === undefined || compareBytes(bytes, upper) < 0);
  };
  fc.assert(
    fc.property(nearString, nearString, (prefix, text) => {
      assert.equal(covers<Key>(any, prefix, text), text.startsWith(prefix));
      assert.equal(covers(keyCodecs.string, prefix, text), text.startsWith(prefix));
    }),
    { numRuns: 3000 },
  );
  fc.assert(
    fc.property(fc.array(scalar, { maxLength: 2 }), fc.array(scalar, { maxLength: 3 }), (prefix, tuple) => {
      const begins = prefix.every(
        (element, index) => index < tuple.length && compareValues(element, tuple[index]!) === 0,
      );
      assert.equal(covers<Key>(any, prefix, tuple), begins);
    }),
    { numRuns: 3000 },
  );
  refuses(() => prefixRange(any, 5), 'KV_INVALID_ARGUMENT');
});

test('a tuple prefix does not cover a longer last element that continues with zero', () => {
  const { lower, upper } = prefixRange<Key>(any, ['a']);
  for (const key of [['a\0'], ['a\0b', 1], ['ab'], ['b']]) {
    assert.ok(compareBytes(any.encode(key), upper!) >= 0, JSON.stringify(key));
  }
  for (const key of [['a'], ['a', null], ['a', ['z']], ['a', 'z', 1]]) {
    const bytes = any.encode(key);
    assert.ok(compareBytes(bytes, lower) >= 0 && compareBytes(bytes, upper!) < 0, JSON.stringify(key));
  }
});

test('MAX_KEY sorts after everything, and in a tuple after everything with the same prefix', () => {
  const after = encodeBound<Key>(any, MAX_KEY);
  const afterAda = encodeBound(keyCodecs.tuple<[string, number]>(), ['ada', MAX_KEY]);
  fc.assert(
    fc.property(anyKey, (key) => {
      assert.ok(compareBytes(any.encode(key), after) < 0);
      assert.ok(compareBytes(any.encode(['ada', key]), afterAda) < 0);
    }),
  );
  assert.ok(compareBytes(any.encode(['adb']), afterAda) > 0);
  assert.ok(compareBytes(new Uint8Array(4096).fill(255), encodeBound(keyCodecs.bytes, MAX_KEY)) < 0);
});

test('codecs without tags keep their order and refuse other types', () => {
  const keepsOrder = <K>(codec: KeyCodec<K>, keys: fc.Arbitrary<K>, compare: (a: K, b: K) => number): void => {
    fc.assert(
      fc.property(keys, keys, (a, b) => {
        assert.deepEqual(codec.decode(codec.encode(a)), a);
        assert.equal(Math.sign(compareBytes(codec.encode(a), codec.encode(b))), Math.sign(compare(a, b)));
      }),
    );
  };
  keepsOrder(keyCodecs.uint32, fc.nat(0xffff_ffff), (a, b) => a - b);
  keepsOrder(keyCodecs.int53, fc.maxSafeInteger(), (a, b) => (a < b ? -1 : a > b ? 1 : 0));
  keepsOrder(keyCodecs.uint64, fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (a, b) => (a < b ? -1 : a > b ? 1 : 0));
  keepsOrder(keyCodecs.bytes, fc.uint8Array(), compareBytes);
  keepsOrder(keyCodecs.string, anyString, (a, b) => (a < b ? -1 : a > b ? 1 : 0));
  keepsOrder(keyCodecs.utf8, fc.string({ unit: 'binary' }), (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  refuses(() => keyCodecs.utf8.encode('\ud800'), 'KV_INVALID_KEY');
  refuses(() => keyCodecs.uint32.encode(-1), 'KV_INVALID_KEY');
  refuses(() => keyCodecs.uint32.encode(2 ** 32), 'KV_INVALID_KEY');
  refuses(() => keyCodecs.int53.encode(1.5), 'KV_INVALID_KEY');
  refuses(() => keyCodecs.uint64.encode(-1n), 'KV_INVALID_KEY');
  refuses(() => keyCodecs.string.encode(5 as unknown as string), 'KV_INVALID_KEY');
  refuses(() => keyCodecs.tuple<[string]>().encode('a' as unknown as [string]), 'KV_INVALID_KEY');
  refuses(() => keyCodecs.uint32.decode(Uint8Array.of(1)), 'KV_CORRUPT');
});

test('the successor is the least key after all with a prefix', () => {
  assert.deepEqual(successor(Uint8Array.of(1, 255)), Uint8Array.of(2));
  assert.deepEqual(successor(Uint8Array.of(1, 2)), Uint8Array.of(1, 3));
  assert.equal(successor(Uint8Array.of(255)), undefined);
});
