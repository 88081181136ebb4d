// The codecs to compare: each turns a value into bytes and bytes into a value. Text codecs are
// wrapped in UTF-8.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createRequire } from 'node:module';

// The peers are optional packages; the report names those that are missing. Their native addons are
// off, because browsers have none; `--native` enables them.
if (!process.argv.includes('--native')) {
  process.env.CBOR_NATIVE_ACCELERATION_DISABLED = 'true';
  process.env.MSGPACKR_NATIVE_ACCELERATION_DISABLED = 'true';
}

const textEncoder = new TextEncoder();
const textDecoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function text(stringify, parse) {
  return {
    encode(value) {
      const string = stringify(value);
      // JSON.stringify(undefined) returns undefined.
      if (typeof string !== 'string') throw new TypeError('no text');
      return textEncoder.encode(string);
    },
    decode: (bytes) => parse(textDecoder.decode(bytes)),
  };
}

/**
 * `form`: the encoding, which selects the hand-written hostile bytes. `bundle`: a module that
 * imports just what the codec needs.
 */
export const CODECS = {
  structured: {
    package: 'mangrove-kv',
    about: '`valueCodecs.structured()` of this repository',
    ours: true,
    form: 'cbor',
    bundle: "export { valueCodecs } from './bindings-js/kv/src/codec/values.ts';",
    async load() {
      const { valueCodecs } = await import('mangrove-kv');
      return valueCodecs.structured();
    },
  },
  msgpackr: {
    package: 'msgpackr',
    about: 'MessagePack; `pack` and `unpack`, as they come',
    form: 'msgpack',
    bundle: "export { pack, unpack } from 'msgpackr';",
    async load() {
      const { pack, unpack } = await import('msgpackr');
      return { encode: pack, decode: unpack };
    },
  },
  'msgpackr sc': {
    package: 'msgpackr',
    about: 'MessagePack with extensions; `new Packr({ structuredClone: true, moreTypes: true })`',
    form: 'msgpack',
    bundle: "export { Packr } from 'msgpackr';",
    async load() {
      const { Packr } = await import('msgpackr');
      const packr = new Packr({ structuredClone: true, moreTypes: true });
      return { encode: (value) => packr.pack(value), decode: (bytes) => packr.unpack(bytes) };
    },
  },
  'cbor-x sc': {
    package: 'cbor-x',
    about: 'CBOR with extensions; `new Encoder({ structuredClone: true })`',
    form: 'cbor',
    bundle: "export { Encoder } from 'cbor-x';",
    async load() {
      const { Encoder } = await import('cbor-x');
      const encoder = new Encoder({ structuredClone: true });
      return { encode: (value) => encoder.encode(value), decode: (bytes) => encoder.decode(bytes) };
    },
  },
  msgpack: {
    package: '@msgpack/msgpack',
    about: 'MessagePack; `new Encoder` and `new Decoder` with `useBigInt64: true`',
    form: 'msgpack',
    bundle: "export { Encoder, Decoder } from '@msgpack/msgpack';",
    async load() {
      const { Encoder, Decoder } = await import('@msgpack/msgpack');
      const encoder = new Encoder({ useBigInt64: true });
      const decoder = new Decoder({ useBigInt64: true });
      return { encode: (value) => encoder.encode(value), decode: (bytes) => decoder.decode(bytes) };
    },
  },
  cborg: {
    package: 'cborg',
    about: 'CBOR; `cborg/extended`',
    form: 'cbor',
    bundle: "export { encode, decode } from 'cborg/extended';",
    async load() {
      const { encode, decode } = await import('cborg/extended');
      return { encode: (value) => encode(value), decode: (bytes) => decode(bytes) };
    },
  },
  devalue: {
    package: 'devalue',
    about: 'JSON text; `stringify` and `parse`',
    form: 'json',
    bundle: "export { stringify, parse } from 'devalue';",
    async load() {
      const { stringify, parse } = await import('devalue');
      return text(
        (value) => stringify(value),
        (string) => parse(string),
      );
    },
  },
  superjson: {
    package: 'superjson',
    about: 'JSON text; `stringify` and `parse`',
    form: 'json',
    bundle: "export { stringify, parse } from 'superjson';",
    async load() {
      const { stringify, parse } = await import('superjson');
      return text(stringify, parse);
    },
  },
  seroval: {
    package: 'seroval',
    about: 'JSON text; `toJSON` and `fromJSON`',
    form: 'json',
    bundle: "export { toJSON, fromJSON } from 'seroval';",
    async load() {
      const { toJSON, fromJSON } = await import('seroval');
      return text(
        (value) => JSON.stringify(toJSON(value)),
        (string) => fromJSON(JSON.parse(string)),
      );
    },
  },
  'node:v8': {
    package: 'node',
    about: "V8's own format; `serialize` and `deserialize`, not in browsers",
    form: 'v8',
    async load() {
      const { serialize, deserialize } = await import('node:v8');
      return { encode: serialize, decode: deserialize };
    },
  },
  JSON: {
    package: 'node',
    about: '`JSON.stringify` and `JSON.parse`',
    form: 'json',
    bundle: '',
    async load() {
      return text(JSON.stringify, JSON.parse);
    },
  },
};

const require = createRequire(import.meta.url);

/** Returns the manifest of a codec's package. */
export function manifest(name) {
  const { package: id } = CODECS[name];
  if (id === 'node') return { version: process.versions.node, license: 'MIT' };
  // Packages need not export their manifest, so search upwards from what they do export.
  for (let directory = dirname(require.resolve.paths(id)[0]); ; directory = dirname(directory)) {
    try {
      return JSON.parse(readFileSync(join(directory, 'node_modules', id, 'package.json'), 'utf8'));
    } catch {
      if (directory === dirname(directory)) return undefined;
    }
  }
}
