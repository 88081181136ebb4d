// How the tool reads and writes the keys and values of a collection: by the ids of its stored codecs.
import { Buffer } from 'node:buffer';
import { KvError, keyCodecs, valueCodecs } from 'mangrove-kv';
import type { CollectionOptions, Key, KeyCodec, ValueCodec } from 'mangrove-kv';
import { within } from './failure.ts';
import { fromForm, parseJson, toForm } from './forms.ts';
import type { Json } from './forms.ts';
import { withoutId } from 'mangrove-kv/internal/tool';

/** Codecs of a collection that was created without naming any. */
export const DEFAULT_CODECS = { keyCodec: 'any', valueCodec: 'structured' } as const;

/** How strings stand for bytes. */
export const RAW_FORMS = ['utf8', 'hex', 'base64'] as const;
export type RawForm = (typeof RAW_FORMS)[number];

/** Reads and writes keys or values. */
interface Shape<T> {
  /** What the package stores it with. */
  readonly codec: () => T;
  /** Returns what `codec` encodes, from the text and what it is as JSON. */
  read(json: Json, text: string): unknown;
  /** JSON of what `codec` has decoded. */
  show(decoded: unknown): string;
}

const byForm = <T>(codec: T): Shape<T> => ({ codec: () => codec, read: fromForm, show: toForm });

const KEYS: { readonly [id: string]: KeyCodec<never> } = {
  any: keyCodecs.any,
  tuple: keyCodecs.tuple(),
  string: keyCodecs.string,
  utf8: keyCodecs.utf8,
  uint32: keyCodecs.uint32,
  int53: keyCodecs.int53,
  uint64: keyCodecs.uint64,
} as unknown as { readonly [id: string]: KeyCodec<never> };

/** A collection without a codec, or with one that is not the package's, holds bytes. */
function bytesOf<T>(id: string, what: 'key' | 'value', form: RawForm | undefined): Shape<T> {
  const codec = { id, encode: (bytes: Uint8Array) => bytes, decode: (bytes: Uint8Array) => new Uint8Array(bytes) };
  return {
    codec: () => (id === '' ? withoutId(codec) : codec) as T,
    read: (json) => {
      const value = fromForm(json);
      const bytes =
        value instanceof Uint8Array
          ? value
          : typeof value === 'string' && form !== undefined
            ? readRaw(form, value)
            : undefined;
      if (bytes !== undefined) return bytes;
      const wanted =
        form === undefined
          ? '{"$bytes":…}, unless --raw says how strings stand for bytes'
          : 'bytes in the form that --raw names, or {"$bytes":…}';
      throw new KvError(
        what === 'key' ? 'KV_INVALID_KEY' : 'KV_INVALID_VALUE',
        `this cannot be a ${what} of this collection, which takes ${wanted}`,
      );
    },
    show: (decoded) => (form === undefined ? toForm(decoded) : showRaw(form, decoded as Uint8Array)),
  };
}

function readRaw(form: RawForm, text: string): Uint8Array | undefined {
  const bytes = Buffer.from(text, form);
  const isWhole =
    form === 'utf8'
      ? !/\p{Surrogate}/u.test(text)
      : bytes.toString(form) === (form === 'hex' ? text.toLowerCase() : text);
  return isWhole ? new Uint8Array(bytes) : undefined;
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function showRaw(form: RawForm, bytes: Uint8Array): string {
  if (form !== 'utf8') return JSON.stringify(Buffer.from(bytes).toString(form));
  try {
    return JSON.stringify(decoder.decode(bytes));
  } catch {
    return toForm(bytes);
  }
}

/** JSON that is stored as JSON has no tags, and stays as it is written. */
const jsonText: Shape<ValueCodec<unknown>> = {
  codec: () => ({
    id: 'json',
    encode: (text) => Buffer.from(text as string),
    decode: (bytes) => {
      const text = decoder.decode(bytes);
      JSON.parse(text);
      // JSON strings write a line break as \n, so these line breaks are between tokens.
      return text.replaceAll(/[\n\r]/g, ' ');
    },
  }),
  read: (_, text) => text.trim(),
  show: (decoded) => decoded as string,
};

/** Strings without lone surrogates, as UTF-8. */
const plainText: Shape<ValueCodec<unknown>> = {
  ...byForm(valueCodecs.string as ValueCodec<unknown>),
  read: (json) => {
    const value = fromForm(json);
    if (typeof value === 'string' && !/\p{Surrogate}/u.test(value)) return value;
    throw new KvError(
      'KV_INVALID_VALUE',
      'this cannot be a value of this collection, which takes a string without lone surrogates',
    );
  },
};

/** Reads and writes a collection with these codecs. */
export class Codecs {
  readonly #key: Shape<KeyCodec<unknown>>;
  readonly #value: Shape<ValueCodec<unknown>>;

  constructor(
    { keyCodec, valueCodec }: { readonly keyCodec: string; readonly valueCodec: string },
    raw: RawForm | undefined,
  ) {
    this.#key = Object.hasOwn(KEYS, keyCodec)
      ? byForm(KEYS[keyCodec] as unknown as KeyCodec<unknown>)
      : bytesOf(keyCodec, 'key', raw);
    this.#value =
      valueCodec === 'structured'
        ? byForm(valueCodecs.structured())
        : valueCodec === 'json'
          ? jsonText
          : valueCodec === 'string'
            ? plainText
            : bytesOf(valueCodec, 'value', raw);
  }

  /** Options with which a collection is opened. */
  get options(): CollectionOptions<unknown, unknown> {
    return { key: this.#key.codec(), value: this.#value.codec() };
  }

  key(text: string, place = 'the key'): unknown {
    return within(place, () => this.#key.read(parseJson(text), text));
  }

  value(text: string): unknown {
    return within('the value', () => this.#value.read(parseJson(text), text));
  }

  /** As `key` and `value`, of what is parsed already. */
  record(key: Json, value: Json, valueText: string): [key: unknown, value: unknown] {
    return [
      within('the key', () => this.#key.read(key, '')),
      within('the value', () => this.#value.read(value, valueText)),
    ];
  }

  /** Fails if a record cannot be stored. */
  check(key: unknown, value: unknown): void {
    within('the key', () => this.#key.codec().encode(key));
    within('the value', () => this.#value.codec().encode(value));
  }

  showKey(key: unknown): string {
    return this.#key.show(key);
  }

  showValue(value: unknown): string {
    return this.#value.show(value);
  }

  /** A key that creating a collection can store and remove again. */
  get someKey(): unknown {
    const id = this.#key.codec().id;
    const keys: { readonly [id: string]: Key } = {
      any: 0,
      tuple: [],
      string: '',
      utf8: '',
      uint32: 0,
      int53: 0,
      uint64: 0n,
    };
    return Object.hasOwn(keys, id) ? keys[id] : new Uint8Array();
  }

  get someValue(): unknown {
    const id = this.#value.codec().id;
    return id === 'structured' ? 0 : id === 'json' ? '0' : id === 'string' ? '' : new Uint8Array();
  }
}
