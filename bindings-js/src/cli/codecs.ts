// Keys and values of a collection between JSON and what its codecs take, by the ids that are stored with it.
import { Buffer } from 'node:buffer';
import { keyCodecs } from '../codec/keys.ts';
import type { Key, KeyCodec } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import { KvError } from '../errors.ts';
import { inside, invalid } from './failure.ts';
import { DateForm, describe, formOf, fromBase64, isWellFormed, showBigint, showBytes, showDate, showNumber, showText } from './form.ts';
import type { Form } from './form.ts';
import { parse, print } from './json.ts';
import type { Json } from './json.ts';
import { decodeStructured, encodeStructured } from './structured.ts';

/** How strings stand for bytes where there is no codec of the package. */
export type Raw = 'utf8' | 'hex' | 'base64' | undefined;

/** Codecs of a collection that names none when it is created. */
export const DEFAULT_CODECS = ['any', 'structured'] as const;

/** What a key may be: those of the package's codecs, or bytes. */
type AnyKey = Key | Uint8Array;

export interface CliCodecs {
  readonly key: KeyCodec<AnyKey>;
  /** Values are JSON. */
  readonly value: ValueCodec<string>;
  parseKey(json: string): AnyKey;
  /** A key without a check of its bytes, as prefixes are. */
  readKey(json: string): AnyKey;
  showKey(key: AnyKey): string;
}

const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return utf8Decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

function readRaw(raw: Raw, form: Form): Uint8Array | undefined {
  const value = form.kind === 'scalar' ? form.value : undefined;
  if (value instanceof Uint8Array) return value;
  if (typeof value !== 'string' || raw === undefined) return undefined;
  if (raw === 'utf8') return isWellFormed(value) ? utf8Encoder.encode(value) : undefined;
  if (raw === 'base64') return fromBase64(value);
  return /^(?:[\da-fA-F]{2})*$/.test(value) ? new Uint8Array(Buffer.from(value, 'hex')) : undefined;
}

function showRaw(raw: Raw, bytes: Uint8Array): Json {
  if (raw === 'base64') return Buffer.from(bytes).toString('base64');
  if (raw === 'hex') return Buffer.from(bytes).toString('hex');
  return (raw === 'utf8' ? decodeUtf8(bytes) : undefined) ?? showBytes(bytes);
}

const RAW_WANTED = 'bytes in the form that --raw names, or {"$bytes":…}';
const BYTES_WANTED = '{"$bytes":…}, unless --raw says how strings stand for bytes';

function toKey(form: Form): Key {
  if (form.kind === 'array') return form.elements.map((element) => toKey(formOf(element)));
  if (form.kind !== 'scalar') throw new KvError('KV_INVALID_KEY', `${describe(form)} cannot be a key`);
  return form.value instanceof DateForm ? new Date(form.value.ms) : form.value;
}

function fromKey(key: AnyKey): Json {
  if (Array.isArray(key)) return key.map(fromKey);
  if (key instanceof Date) return showDate(key.getTime());
  if (key instanceof Uint8Array) return showBytes(key);
  if (typeof key === 'bigint') return showBigint(key);
  if (typeof key === 'number') return showNumber(key);
  if (typeof key === 'string') return showText(key);
  return key as null | boolean;
}

function ownKeyCodec(id: string): KeyCodec<AnyKey> | undefined {
  if (id === 'tuple') return keyCodecs.tuple() as unknown as KeyCodec<AnyKey>;
  if (id === 'bytes' || !Object.hasOwn(keyCodecs, id)) return undefined;
  return keyCodecs[id as 'any'] as unknown as KeyCodec<AnyKey>;
}

function jsonValues(id: string): ValueCodec<string> {
  return {
    id,
    encode(text) {
      parse(text, true);
      // Stored as it is written: JSON that is JSON has no tags.
      return utf8Encoder.encode(text.trim());
    },
    decode(bytes) {
      const text = decodeUtf8(bytes);
      try {
        parse(text ?? '', true);
      } catch {
        throw new KvError('KV_CORRUPT', 'a stored value is not one of codec json');
      }
      // Inside a string a line break is written \n, so that these are between tokens.
      return (text as string).trim().replaceAll(/[\n\r]/g, ' ');
    },
  };
}

function valuesOf(id: string, raw: Raw): ValueCodec<string> {
  if (id === 'structured') return { id, encode: (text) => encodeStructured(parse(text)), decode: (bytes) => print(decodeStructured(bytes)) };
  if (id === 'json') return jsonValues(id);
  const refuse = (form: Form, wanted: string): never => {
    throw new KvError('KV_INVALID_VALUE', `${describe(form)} cannot be a value of this collection, which takes ${wanted}`);
  };
  if (id !== 'string') {
    return {
      id,
      encode(text) {
        const form = formOf(parse(text));
        return readRaw(raw, form) ?? refuse(form, raw === undefined ? BYTES_WANTED : RAW_WANTED);
      },
      decode: (bytes) => print(showRaw(raw, bytes)),
    };
  }
  return {
    id,
    encode(text) {
      const form = formOf(parse(text));
      const isText = form.kind === 'scalar' && typeof form.value === 'string' && isWellFormed(form.value);
      return isText ? utf8Encoder.encode(form.value as string) : refuse(form, 'a string without lone surrogates');
    },
    decode(bytes) {
      const text = decodeUtf8(bytes);
      if (text === undefined) throw new KvError('KV_CORRUPT', 'a stored value is not one of codec string');
      return print(text);
    },
  };
}

export function codecsOf(keyId: string, valueId: string, raw: Raw): CliCodecs {
  const own = ownKeyCodec(keyId);
  const key: KeyCodec<AnyKey> = own ?? { id: keyId, encode: (bytes) => bytes as Uint8Array, decode: (bytes) => bytes.slice() };
  const readKey = (json: string): AnyKey => {
    const form = formOf(parse(json));
    if (own !== undefined) return toKey(form);
    const bytes = readRaw(raw, form);
    if (bytes !== undefined) return bytes;
    const wanted = raw === undefined ? BYTES_WANTED : RAW_WANTED;
    throw new KvError('KV_INVALID_KEY', `${describe(form)} cannot be a key of this collection, which takes ${wanted}`);
  };
  return {
    key,
    value: valuesOf(valueId, raw),
    readKey,
    parseKey: (json) => inside('the key', () => {
      const parsed = readKey(json);
      key.encode(parsed);
      return parsed;
    }),
    showKey: (shown) => print(own === undefined ? showRaw(raw, shown as Uint8Array) : fromKey(shown)),
  };
}

export function checkRaw(raw: string | undefined): Raw {
  if (raw === undefined || raw === 'utf8' || raw === 'hex' || raw === 'base64') return raw;
  throw invalid(`--raw has to be utf8, hex or base64, not ${raw}`);
}
