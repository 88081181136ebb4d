// Values whose round trip is compared with structured clone, in groups. Each use creates a new one.

const nest = (depth) => {
  let value = 1;
  for (let level = 0; level < depth; level++) value = level % 2 === 0 ? [value] : { value };
  return value;
};

class Point {
  x = 1;
  #y = 2;
  get y() {
    return this.#y;
  }
}

class Tagged {
  tagged = 1;
  get [Symbol.toStringTag]() {
    return 'Number';
  }
}

class CustomError extends Error {
  name = 'CustomError';
}

const with3 = (array) => {
  for (let index = 0; index < 3; index++) array[index] = typeof array[0] === 'bigint' ? BigInt(index + 1) : index + 1;
  return array;
};

const typedArrays = [
  Uint8Array,
  Uint8ClampedArray,
  Int8Array,
  Uint16Array,
  Int16Array,
  Uint32Array,
  Int32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
];

export const VALUES = {
  primitives: {
    'undefined': () => undefined,
    'undefined in objects and arrays': () => ({ a: undefined, b: [undefined, 1] }),
    'null': () => null,
    'booleans': () => [true, false],
    'integers to 2^53': () => [
      0,
      23,
      24,
      255,
      256,
      65_535,
      65_536,
      2 ** 31,
      2 ** 32,
      2 ** 53 - 1,
      -1,
      -24,
      -25,
      -256,
      -(2 ** 31),
      -(2 ** 53 - 1),
    ],
    'fractions and large numbers': () => [0.5, 0.1, -1.5e-10, Math.PI, 2 ** 53, 2 ** 64, 1e300, 5e-324],
    '-0': () => [-0],
    'NaN': () => [Number.NaN],
    'Infinity': () => [Infinity, -Infinity],
    'bigint, small': () => [0n, 5n, -1n],
    'bigint, 64 bits': () => [2n ** 63n - 1n, -(2n ** 63n), 2n ** 64n - 1n],
    'bigint, 500 bits': () => [2n ** 500n, -(2n ** 500n) - 1n],
    'strings': () => ['', 'a', 'é', '€', '😀', '\0', 'x'.repeat(300), '日本語'.repeat(100)],
    'string that begins with U+FEFF': () => '\ufeffbom',
    'strings with lone surrogates': () => ['\ud800', 'a\udc00b', '\ud83d\ude00\ud800'],
  },
  objects: {
    'nested objects and arrays': () => ({ a: 1, b: { c: [1, { d: null }, []] }, '': {}, ключ: 'x', 'a b': 0 }),
    'keys that are numbers, order of keys': () => ({ b: 1, 2: 'b', a: 2, 1: 'a' }),
    'own `__proto__`': () => JSON.parse('{"__proto__": {"polluted": 1}, "a": 2}'),
    'own `constructor`, `prototype`, `toString`': () => ({
      constructor: 1,
      prototype: 2,
      toString: 3,
      hasOwnProperty: 4,
    }),
    'object without prototype': () => Object.assign(Object.create(null), { bare: 1 }),
    'class instance (fields only)': () => new Point(),
    'getter (its value)': () => ({
      get computed() {
        return 1;
      },
    }),
    'key that is a symbol (left out)': () => ({ plain: 1, [Symbol.for('b')]: 2 }),
    'sparse array': () => {
      const array = [1];
      array[3] = undefined;
      return array;
    },
    'array of holes': () => new Array(5),
    'array with a named property': () => Object.assign([1, 2], { name: 'x' }),
    'shared reference': () => {
      const shared = { n: 1 };
      return [shared, { shared }, shared];
    },
    'cycle': () => {
      const value = { list: [] };
      value.list.push(value);
      return value;
    },
    'array that a getter makes longer meanwhile': () => {
      const array = [];
      array.push({
        get longer() {
          return array.length < 3 ? array.push(0) : 0;
        },
      });
      return array;
    },
    'Map that a getter makes longer meanwhile': () => {
      const map = new Map();
      return map.set('a', {
        get longer() {
          return map.size < 3 ? map.set(map.size, 0).size : 0;
        },
      });
    },
    'class instance with `Symbol.toStringTag`': () => new Tagged(),
    'nested 500 deep': () => nest(500),
    'nested 1,000 deep': () => nest(1000),
    'nested 1,200 deep': () => nest(1200),
  },
  classes: {
    'Date': () => [new Date(0), new Date(1_234_567_890_123), new Date(-1)],
    'Date, far from 1970': () => [new Date(8.64e15), new Date(4_399_696_987_712_105)],
    'Date, invalid': () => new Date(Number.NaN),
    'RegExp': () => [/a\/b/giu, /^$/],
    'Map': () =>
      new Map([
        ['a', 1],
        [1, 'b'],
        [null, undefined],
      ]),
    'Map with objects as keys': () =>
      new Map([
        [{ k: 1 }, new Map()],
        [[1], 2],
      ]),
    'Map in itself': () => {
      const map = new Map();
      return map.set('self', map);
    },
    'Set': () => new Set([1, 'a', null, undefined, { a: 1 }, new Set([1])]),
    'boxed primitives': () => [Object(1), Object('text'), Object(false), Object(5n)],
    'Error, its subclasses': () =>
      [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError].map(
        (Class) => new Class('what'),
      ),
    'Error with cause': () => new RangeError('what', { cause: new TypeError('why') }),
    'Error, class of its own (an Error)': () => new CustomError('its own'),
  },
  bytes: {
    ...Object.fromEntries(typedArrays.map((Class) => [Class.name, () => with3(new Class(3))])),
    'Float32Array, Float64Array: NaN, -0': () => [
      Float32Array.of(Number.NaN, -0, Infinity),
      Float64Array.of(Number.NaN, -0, -Infinity),
    ],
    'ArrayBuffer': () => with3(new Uint8Array(3)).buffer,
    'DataView': () => new DataView(with3(new Uint8Array(3)).buffer),
    'ArrayBuffer, resizable': () => new ArrayBuffer(2, { maxByteLength: 8 }),
    'typed array twice': () => {
      const array = Uint16Array.of(1, 2);
      return [array, array];
    },
  },
  'buffers under views': {
    'part of a buffer, with all of the buffer': () => Uint8Array.of(1, 2, 3, 4).subarray(1, 3),
    'views that share a buffer': () => {
      const buffer = new ArrayBuffer(8);
      return [new Uint8Array(buffer), new Float64Array(buffer)];
    },
  },
};

/** Values that structured clone refuses. */
export const REFUSED = {
  'function': () => [() => 0],
  'object with a method': () => ({ a: 1, f() {} }),
  'symbol': () => ({ a: Symbol('s') }),
  'WeakMap': () => [new WeakMap()],
  'Promise': () => [Promise.resolve(1)],
};
