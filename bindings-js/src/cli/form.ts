// How JSON says what it has no words for: an object with the single property `$name` stands for something else, and a property of the user's that
// begins with `$` has one `$` more. The page of the native tool has the list.
import { Buffer } from 'node:buffer';
import { invalid } from './failure.ts';
import type { Json } from './json.ts';

/** Longest bigint in decimal digits: reading and writing them takes time with the square of their number. */
const MAX_DECIMAL_DIGITS = 2000;
const MAX_DECIMAL_BITS = 6000;
const MAX_TIME = 8.64e15;
const TIME = /^(\d{4}|[+-]\d{6})-(\d{2})-(\d{2})(?:T(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?(Z|[+-]\d{2}:\d{2}))?$/;

/** What both keys and values can be. Dates are milliseconds; an invalid one is NaN. */
export type Scalar = null | boolean | number | bigint | string | Uint8Array | DateForm;

export class DateForm {
  readonly ms: number;

  constructor(ms: number) {
    this.ms = ms;
  }
}

/** What a JSON value stands for. */
export type Form =
  | { readonly kind: 'scalar'; readonly value: Scalar }
  | { readonly kind: 'array'; readonly elements: Json[] }
  | { readonly kind: 'object'; readonly properties: Map<string, Json> }
  | { readonly kind: 'tagged'; readonly name: string; readonly payload: Json };

export function tag(name: string, payload: Json): Map<string, Json> {
  return new Map([[`$${name}`, payload]]);
}

export function badTag(name: string, wanted: string): Error {
  return invalid(`{"$${name}":…} has to hold ${wanted}`);
}

/** The name of a property as JSON shows it. */
export function escapeName(name: string): string {
  return name.startsWith('$') ? `$${name}` : name;
}

/** The name of a property that JSON shows. */
export function unescapeName(name: string): string {
  if (!name.startsWith('$')) return name;
  if (name.startsWith('$$')) return name.slice(1);
  throw invalid(`the property ${name} has to be alone in its object, or be written as $${name} if that is its name`);
}

export function formOf(json: Json): Form {
  if (Array.isArray(json)) return { kind: 'array', elements: json };
  if (!(json instanceof Map)) return { kind: 'scalar', value: json };
  const [name, payload] = json.size === 1 ? [...json][0] as [string, Json] : ['', null];
  if (!name.startsWith('$') || name.startsWith('$$')) return { kind: 'object', properties: json };
  const value = scalarOf(name.slice(1), payload);
  return value === undefined ? { kind: 'tagged', name: name.slice(1), payload } : { kind: 'scalar', value };
}

export function describe(form: Form): string {
  if (form.kind === 'array') return 'an array';
  if (form.kind === 'object') return 'an object';
  if (form.kind === 'tagged') return `{"$${form.name}":…}`;
  const { value } = form;
  if (value === null) return 'null';
  if (value instanceof DateForm) return 'a date';
  return value instanceof Uint8Array ? 'bytes' : `a ${typeof value}`;
}

function scalarOf(name: string, payload: Json): Scalar | undefined {
  switch (name) {
    case 'bytes': return readBase64(name, payload);
    case 'bigint': return readBigint(payload);
    case 'date': return new DateForm(readDate(payload));
    case 'number': return readNumber(payload);
    case 'utf16': return readUnits(payload);
    default: return undefined;
  }
}

/** Bytes as a tag holds them. */
export function readBase64(name: string, payload: Json): Uint8Array {
  const bytes = typeof payload === 'string' ? fromBase64(payload) : undefined;
  if (bytes === undefined) throw badTag(name, 'a string in base64');
  return bytes;
}

/** With padding, and no bits left over. */
export function fromBase64(text: string): Uint8Array | undefined {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? new Uint8Array(bytes) : undefined;
}

export function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64');
}

function readBigint(payload: Json): bigint {
  const [, sign, hex, decimal] = /^(-?)(?:0x([\da-fA-F]+)|(\d+))$/.exec(typeof payload === 'string' ? payload : '') ?? [];
  if (hex === undefined && (decimal === undefined || decimal.length > MAX_DECIMAL_DIGITS)) {
    throw badTag('bigint', 'a string: a decimal integer of at most 2000 digits, or a hexadecimal one as "0x…"');
  }
  const number = BigInt(hex === undefined ? decimal as string : `0x${hex}`);
  return sign === '-' ? -number : number;
}

function isTime(ms: number): boolean {
  return Number.isInteger(ms) && Math.abs(ms) <= MAX_TIME;
}

function readDate(payload: Json): number {
  if (payload === null) return Number.NaN;
  const ms = typeof payload === 'string' ? parseTime(payload) : payload;
  if (typeof ms === 'number' && isTime(ms)) return ms;
  throw badTag('date', 'a time in ISO 8601 with its zone, milliseconds since 1970, or null for an invalid date');
}

function parseTime(text: string): number | undefined {
  const parts = TIME.exec(text);
  if (parts === null || parts[1] === '-000000') return undefined;
  const [year, month, day] = parts.slice(1, 4).map(Number) as [number, number, number];
  const midnight = new Date(0).setUTCFullYear(year, month - 1, day);
  const date = new Date(midnight);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  if (parts[8] === undefined) return midnight;
  const [hour, minute, second] = [parts[4], parts[5], parts[6] ?? '0'].map(Number) as [number, number, number];
  const ms = Number((parts[7] ?? '').padEnd(3, '0').slice(0, 3));
  if (hour > 23 || minute > 59 || second > 59) return undefined;
  return midnight + ((hour * 60 + minute) * 60 + second) * 1000 + ms - zoneOf(parts[8]);
}

function zoneOf(zone: string): number {
  if (zone === 'Z') return 0;
  const [hour, minute] = [Number(zone.slice(1, 3)), Number(zone.slice(4))];
  if (hour > 23 || minute > 59) return Number.NaN;
  return (zone.startsWith('-') ? -1 : 1) * (hour * 60 + minute) * 60_000;
}

function readNumber(payload: Json): number {
  if (payload === 'NaN' || payload === 'Infinity' || payload === '-Infinity') return Number(payload);
  throw badTag('number', '"NaN", "Infinity" or "-Infinity"');
}

function readUnits(payload: Json): string {
  const isUnit = (unit: Json): boolean => typeof unit === 'number' && Number.isInteger(unit) && unit >= 0 && unit <= 0xffff && !Object.is(unit, -0);
  if (!Array.isArray(payload) || !payload.every(isUnit)) throw badTag('utf16', 'an array of integers from 0 to 65535');
  return (payload as number[]).map((unit) => String.fromCharCode(unit)).join('');
}

export function isWellFormed(text: string): boolean {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text);
}

export function showText(text: string): Json {
  return isWellFormed(text) ? text : tag('utf16', Array.from({ length: text.length }, (_, index) => text.charCodeAt(index)));
}

export function showBytes(bytes: Uint8Array): Json {
  return tag('bytes', toBase64(bytes));
}

export function showNumber(number: number): Json {
  return Number.isFinite(number) ? number : tag('number', String(number));
}

export function showBigint(number: bigint): Json {
  const magnitude = number < 0n ? -number : number;
  const hex = magnitude.toString(16);
  const bits = (hex.length - 1) * 4 + (32 - Math.clz32(Number.parseInt(hex[0] as string, 16)));
  if (bits <= MAX_DECIMAL_BITS) return tag('bigint', number.toString());
  return tag('bigint', `${number < 0n ? '-' : ''}0x${hex}`);
}

/** What lies beyond the times of a `Date` is an invalid one. */
export function showDate(ms: number): Json {
  return tag('date', isTime(ms) ? new Date(ms).toISOString() : null);
}
