// Encoded keys as strings with one character for each byte. Strings compare, hash and live in memory better than arrays of bytes.
import { SHORT } from '../codec/bytes.ts';
import { encodeKey } from '../wire/codecs.ts';
import type { Target } from '../wire/collection-target.ts';
import type { ByteRange } from '../wire/protocol.ts';
import type { Span } from './sorted-entries.ts';

/** Ends the index key in a name. What follows a zero byte of the key itself is greater. */
const END = '\0\x01';
const AFTER_END = '\0\x02';
const ESCAPED_ZERO = '\0\xff';

/** Engines limit the arguments of a call. Keys have fewer bytes; the bound after all keys has more. */
const MAX_ARGUMENTS = 8192;

export function nameOf(bytes: Uint8Array): string {
  // Not by `+=`, which makes strings of two parts: they take more memory and are slower to compare.
  if (bytes.length <= MAX_ARGUMENTS) return String.fromCharCode.apply(undefined, bytes as unknown as number[]);
  let name = '';
  for (let at = 0; at < bytes.length; at += MAX_ARGUMENTS)
    name += String.fromCharCode.apply(undefined, bytes.subarray(at, at + MAX_ARGUMENTS) as unknown as number[]);
  return name;
}

/** The name of a key. */
export function keyNameOf<K>(target: Pick<Target<K, unknown>, 'name' | 'key' | 'fastKey'>, key: K): string {
  const prefix = target.fastKey === undefined ? undefined : PREFIXES[target.key.id];
  if (typeof key === 'string' && prefix !== undefined && isAscii(key)) return prefix + key;
  return nameOf(encodeKey(target, key));
}

/** What the encoding of an ASCII string begins with, by codec. */
const PREFIXES: { readonly [codec: string]: string | undefined } = { any: '\x30', string: '', utf8: '' };

function isAscii(text: string): boolean {
  // Longer keys are rare, and the codec refuses those that are too long.
  if (text.length > SHORT) return false;
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) >= 0x80) return false;
  return true;
}

export function bytesOf(name: string): Uint8Array {
  const bytes = new Uint8Array(name.length);
  for (let at = 0; at < name.length; at++) bytes[at] = name.charCodeAt(at);
  return bytes;
}

/** The first name after this one. */
function after(name: string): string {
  return `${name}\0`;
}

/** The names of the keys in a range. */
export function spanOf({ lower, lowerExclusive, upper, upperExclusive }: ByteRange): Span {
  const from = lower === undefined ? '' : nameOf(lower);
  const to = upper && nameOf(upper);
  return {
    lower: lowerExclusive ? after(from) : from,
    upper: to === undefined || upperExclusive ? to : after(to),
  };
}

/** The range of the keys whose names are in a span. */
export function rangeOf({ lower, upper }: Span): ByteRange {
  return {
    lower: lower === '' ? undefined : bytesOf(lower),
    upper: upper === undefined ? undefined : bytesOf(upper),
    upperExclusive: true,
  };
}

function escaped(indexKey: string): string {
  return indexKey.includes('\0') ? indexKey.replaceAll('\0', ESCAPED_ZERO) : indexKey;
}

/** The name of an entry in an index: they sort by index key, and by key where that is the same. */
export function pairName(indexKey: string, key: string): string {
  return escaped(indexKey) + END + key;
}

/** The names of `pairName`. */
export function partsOf(name: string): { readonly indexKey: string; readonly key: string } {
  const end = name.indexOf(END);
  return { indexKey: name.slice(0, end).replaceAll(ESCAPED_ZERO, '\0'), key: name.slice(end + END.length) };
}

/** The names of the entries whose index keys are in a range. */
export function pairSpanOf({ lower, lowerExclusive, upper, upperExclusive }: ByteRange): Span {
  const from = lower === undefined ? '' : escaped(nameOf(lower));
  const to = upper && escaped(nameOf(upper));
  return {
    lower: lowerExclusive ? from + AFTER_END : from,
    upper: to === undefined || upperExclusive ? to : to + AFTER_END,
  };
}

/** The range of the index keys that have names in a span, which may begin and end within the entries of one of them. */
export function pairRangeOf({ lower, upper }: Span): ByteRange {
  const [from, to] = [indexKeyOf(lower), upper === undefined ? undefined : indexKeyOf(upper)];
  return {
    lower: lower === '' ? undefined : from.bytes,
    lowerExclusive: from.isAfter,
    upper: to?.bytes,
    upperExclusive: to !== undefined && !to.isAfter && !to.isPair,
  };
}

function indexKeyOf(edge: string): { bytes: Uint8Array; isAfter: boolean; isPair: boolean } {
  const isAfter = edge.endsWith(AFTER_END);
  const end = isAfter ? edge.length - AFTER_END.length : edge.indexOf(END);
  const indexKey = end < 0 ? edge : edge.slice(0, end);
  return { bytes: bytesOf(indexKey.replaceAll(ESCAPED_ZERO, '\0')), isAfter, isPair: !isAfter && end >= 0 };
}

/** Whether the spans have a name in common. */
export function overlaps(a: Span, b: Span): boolean {
  return (a.upper === undefined || b.lower < a.upper) && (b.upper === undefined || a.lower < b.upper);
}

/** What both spans have in common: if they do not overlap, nothing, and `upper` is not behind `lower`. */
export function intersection(a: Span, b: Span): Span {
  const lower = a.lower > b.lower ? a.lower : b.lower;
  const upper = a.upper === undefined || (b.upper !== undefined && b.upper < a.upper) ? b.upper : a.upper;
  return { lower, upper };
}

/** The parts of a span that are in none of the others, which do not overlap each other. */
export function gaps(span: Span, others: readonly Span[]): Span[] {
  const found: Span[] = [];
  let { lower } = span;
  const inside = others.filter((other) => overlaps(span, other)).sort((a, b) => (a.lower < b.lower ? -1 : 1));
  for (const other of inside) {
    if (lower < other.lower) found.push({ lower, upper: other.lower });
    if (other.upper === undefined) return found;
    lower = other.upper;
  }
  if (span.upper === undefined || lower < span.upper) found.push({ lower, upper: span.upper });
  return found;
}

/** What spans have of another one, in order; those that meet are one. */
export function union(whole: Span, spans: readonly Span[]): Span[] {
  const found: { lower: string; upper: string | undefined }[] = [];
  const parts = spans
    .map((span) => intersection(whole, span))
    .filter(({ lower, upper }) => upper === undefined || lower < upper)
    .sort((a, b) => (a.lower < b.lower ? -1 : 1));
  for (const { lower, upper } of parts) {
    const last = found.at(-1);
    if (last === undefined || (last.upper !== undefined && last.upper < lower)) found.push({ lower, upper });
    else if (last.upper !== undefined && (upper === undefined || upper > last.upper)) last.upper = upper;
  }
  return found;
}
