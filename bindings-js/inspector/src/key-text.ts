// Converts keys to text and text to keys, as typed into the fields of a range.
import { MAX_KEY, compareKeys } from 'mangrove-kv';
import type { Bounds, Key } from 'mangrove-kv';
import { keyText as quotedText } from 'mangrove-kv/internal';

const DATE = /^\d{4}-\d\d-\d\d(T[\d:.]+Z)?$/;

function fromHex(text: string): Uint8Array {
  const digits = text.replace(/^0x|\s/g, '');
  if (!/^(?:[0-9a-f]{2})*$/i.test(digits))
    throw new Error('Bytes are written in pairs of hexadecimal digits, such as 0aff.');
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** Displayed text of a key: a key that is a string has no quotes. */
export function keyText(key: unknown): string {
  return typeof key === 'string' ? key : quotedText(key);
}

/** Parses a number, bigint, date, array or quoted string; any other text is taken as it is. */
function parseAny(text: string): Key {
  if (/^-?\d+n$/.test(text)) return BigInt(text.slice(0, -1));
  if (DATE.test(text)) return new Date(text);
  try {
    const value = JSON.parse(text) as unknown;
    if (value === null || typeof value !== 'object' || Array.isArray(value)) return value as Key;
  } catch {
    // A string without quotes.
  }
  return text;
}

function parseNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || Number.isNaN(value)) throw new Error(`“${text}” is not a number.`);
  return value;
}

/** Parses the text of a key for a collection with this key codec. */
export function parseKey(codec: string, text: string): Key {
  switch (codec) {
    case 'string':
    case 'utf8':
      return text;
    case 'bytes':
      return fromHex(text);
    case 'uint32':
    case 'int53':
      return parseNumber(text);
    case 'uint64':
      return BigInt(text.replace(/n$/, ''));
    case 'tuple': {
      const value = parseAny(text);
      return Array.isArray(value) ? (value as Key[]) : [value];
    }
    default:
      return parseAny(text);
  }
}

/** The fields of a range; an empty field is no bound. */
export interface RangeTexts {
  readonly prefix: string;
  readonly from: string;
  readonly to: string;
}

type AnyBounds = Bounds<Key>;

/**
 * Parses the fields of a range. A tuple matches a text prefix if its first element starts with it.
 */
export function parseRange(codec: string, { prefix, from, to }: RangeTexts): AnyBounds {
  const range: AnyBounds = {};
  if (from !== '') range.gte = parseKey(codec, from);
  if (to !== '') {
    const key = parseKey(codec, to);
    // Includes all tuples that start with it.
    range.lte = Array.isArray(key) ? ([...(key as Key[]), MAX_KEY] as unknown as Key) : key;
  }
  if (prefix === '') return range;
  const key = parseKey(codec, prefix);
  const first = Array.isArray(key) && key.length === 1 ? (key as Key[])[0] : undefined;
  if (codec === 'tuple' && typeof first === 'string' && !prefix.trim().startsWith('[')) {
    return narrow(range, [first], [`${first}\uffff`]);
  }
  if (typeof key === 'string' || Array.isArray(key) || key instanceof Uint8Array)
    return { ...range, prefix: key as never };
  return { ...range, gte: key };
}

/** Narrows a range to a prefix: the later lower bound applies, and both upper bounds. */
function narrow(range: AnyBounds, gte: Key, lt: Key): AnyBounds {
  const { gte: typed } = range;
  const isLater = typed === undefined || (typed !== MAX_KEY && compareKeys(typed as Key, gte) < 0);
  return isLater ? { ...range, gte, lt } : { ...range, lt };
}
