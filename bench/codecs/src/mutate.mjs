// Hostile inputs: some written by hand for the format, and mutations of the codec's encodings.
import { DATA, random } from './data.mjs';
import { VALUES } from './values.mjs';

const hex = (text) => new Uint8Array(Buffer.from(text, 'hex'));
const utf8 = (text) => new TextEncoder().encode(text);
const PROTOTYPE_KEY = '`__proto__` as a key';
const repeat = (byte, count) => new Uint8Array(count).fill(byte);

/** The names are the rows of a table. A form omits what it cannot express. */
const BY_HAND = {
  cbor: {
    'array of 2^32 - 1': hex('9affffffff'),
    'array of 2^24 - 1, nothing in it': hex('9a00ffffff'),
    'bytes of 2^31 - 1': hex('5a7fffffff'),
    'text of 2^31 - 1': hex('7a7fffffff'),
    'map of 2^32 - 1': hex('baffffffff'),
    'array 100,000 deep': repeat(0x81, 100_000),
  },
  msgpack: {
    'array of 2^32 - 1': hex('ddffffffff'),
    'array of 2^24 - 1, nothing in it': hex('dd00ffffff'),
    'bytes of 2^31 - 1': hex('c67fffffff'),
    'text of 2^31 - 1': hex('db7fffffff'),
    'map of 2^32 - 1': hex('dfffffffff'),
    'array 100,000 deep': repeat(0x91, 100_000),
  },
  json: {
    'array 100,000 deep': repeat(0x5b, 100_000),
  },
  v8: {
    'array of 2^32 - 1': hex('ff0f41ffffffff0f'),
    'array of 2^24 - 1, nothing in it': hex('ff0f61ffffff07'),
    'text of 2^31 - 1': hex('ff0f22ffffffff07'),
    'array 100,000 deep': Uint8Array.from([0xff, 0x0f, ...Array.from({ length: 100_000 }, () => [0x41, 1]).flat()]),
  },
};

/** Overwrites what may be a length, a position or a key. */
const LENGTHS = [
  hex('ffffffff'),
  hex('7fffffff'),
  hex('00ffffff'),
  hex('04000000'),
  hex('ffffffff0f'),
  utf8('4294967295'),
  utf8('"__proto__"'),
];

/** Key of the same length, replaced in the codec's encoding. */
function prototypeKey(codec) {
  const bytes = Buffer.from(codec.encode({ underline: { polluted: 1 } }));
  const from = bytes.indexOf('underline');
  if (from < 0) throw new Error('the key does not stand in the bytes');
  bytes.write('__proto__', from);
  return new Uint8Array(bytes);
}

function seeds(codec) {
  const values = [
    ...Object.values(VALUES).flatMap((group) => Object.values(group).map((make) => make())),
    ...Object.values(DATA).map(([first]) => first),
  ];
  return values.flatMap((value) => {
    try {
      const bytes = new Uint8Array(codec.encode(value));
      return bytes.length < 2500 ? [bytes] : [];
    } catch {
      return [];
    }
  });
}

function mutate(seed, next) {
  const below = (limit) => Math.floor(next() * limit);
  const bytes = seed.slice();
  for (let changes = 1 + below(3); changes > 0; changes--) {
    const at = below(bytes.length);
    const kind = next();
    if (kind < 0.4) bytes[at] = below(256);
    else if (kind < 0.6) bytes[at] ^= 1 << below(8);
    else if (kind < 0.8) bytes[at] = bytes[below(bytes.length)];
    else bytes.set(LENGTHS[below(LENGTHS.length)].subarray(0, bytes.length - at), at);
  }
  return next() < 0.15 ? bytes.subarray(0, below(bytes.length)) : bytes;
}

/** Returns `count` mutated encodings, and those written by hand, which have names. */
export function* inputs(codec, form, count) {
  for (const [name, bytes] of Object.entries(BY_HAND[form])) yield { name, bytes };
  yield { name: PROTOTYPE_KEY, bytes: prototypeKey(codec) };
  const next = random(2);
  const all = seeds(codec);
  for (let index = 0; index < count; index++) yield { bytes: mutate(all[index % all.length], next) };
}

export const BY_HAND_NAMES = [...Object.keys(BY_HAND.cbor), PROTOTYPE_KEY];
