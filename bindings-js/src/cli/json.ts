// JSON that keeps what `JSON.parse` does not: the order of properties, -0, the text of each part, and depth without limit but ours.
import { invalid } from './failure.ts';

export type Json = null | boolean | number | string | Json[] | Map<string, Json>;

/** Values are nested up to 1,000 deep, and their form in JSON several times that. */
const MAX_DEPTH = 4096;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPES: Readonly<Record<string, string>> = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

/** Reads one text from its start. */
export class JsonReader {
  readonly #text: string;
  readonly #isOnlyChecked: boolean;
  #at = 0;
  #depth = 0;

  /** What is only checked may have lone surrogates as escapes, which are JSON but no text. */
  constructor(text: string, isOnlyChecked = false) {
    this.#text = text;
    this.#isOnlyChecked = isOnlyChecked;
  }

  get at(): number {
    return this.#at;
  }

  /** The text from `start` to here. */
  since(start: number): string {
    return this.#text.slice(start, this.#at);
  }

  fail(what: string): never {
    throw invalid(`not JSON (${what} at character ${this.#at + 1}); a string is written as '"text"'`);
  }

  space(): void {
    while (' \t\n\r'.includes(this.#text[this.#at] ?? 'x')) this.#at++;
  }

  /** Takes a character if it is next. */
  take(character: string): boolean {
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  expect(character: string): void {
    if (!this.take(character)) this.fail(`${JSON.stringify(character)} is missing`);
  }

  end(): void {
    this.space();
    if (this.#at < this.#text.length) this.fail('something follows');
  }

  value(): Json {
    this.space();
    const next = this.#text[this.#at];
    switch (next) {
      case '{': return this.#object();
      case '[': return this.#array();
      case '"': return this.string();
      case 'n': return this.#word('null', null);
      case 't': return this.#word('true', true);
      case 'f': return this.#word('false', false);
      default: return this.#number();
    }
  }

  string(): string {
    this.expect('"');
    let text = '';
    for (;;) {
      PLAIN.lastIndex = this.#at;
      const plain = PLAIN.exec(this.#text)?.[0] ?? '';
      text += plain;
      this.#at += plain.length;
      if (this.take('"')) break;
      if (!this.take('\\')) this.fail(this.#at < this.#text.length ? 'a control character in a string' : 'a string without an end');
      text += this.#escaped();
    }
    if (!this.#isOnlyChecked && /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text)) this.fail('a lone surrogate; {"$utf16":[…]} holds it');
    return text;
  }

  #escaped(): string {
    const letter = this.#text[this.#at++] ?? '';
    if (letter !== 'u') return ESCAPES[letter] ?? this.fail('an unknown escape');
    const digits = this.#text.slice(this.#at, this.#at + 4);
    if (!/^[\da-fA-F]{4}$/.test(digits)) this.fail('an unknown escape');
    this.#at += 4;
    return String.fromCharCode(Number.parseInt(digits, 16));
  }

  #word<T extends Json>(word: string, value: T): T {
    if (!this.#text.startsWith(word, this.#at)) this.fail('no value');
    this.#at += word.length;
    return value;
  }

  #number(): number {
    NUMBER.lastIndex = this.#at;
    const text = NUMBER.exec(this.#text)?.[0];
    if (text === undefined) return this.fail(this.#at < this.#text.length ? 'no value' : 'it ends too early');
    this.#at += text.length;
    const number = Number(text);
    return Number.isFinite(number) ? number : this.fail('a number out of range');
  }

  #enter(): void {
    if (++this.#depth > MAX_DEPTH) throw invalid(`JSON nested more than ${MAX_DEPTH} deep`);
  }

  #array(): Json[] {
    const elements: Json[] = [];
    this.#enter();
    this.expect('[');
    this.space();
    if (!this.take(']')) do elements.push(this.value()); while (this.#goesOn(']'));
    this.#depth--;
    return elements;
  }

  #object(): Map<string, Json> {
    const properties = new Map<string, Json>();
    this.#enter();
    this.expect('{');
    this.space();
    if (!this.take('}')) do properties.set(this.#name(), this.value()); while (this.#goesOn('}'));
    this.#depth--;
    return properties;
  }

  #name(): string {
    this.space();
    const name = this.string();
    this.space();
    this.expect(':');
    return name;
  }

  /** Calls `read` at the value of each property. */
  properties(read: (name: string) => void): void {
    this.space();
    this.expect('{');
    this.space();
    if (this.take('}')) return;
    do read(this.#name()); while (this.#goesOn('}'));
  }

  #goesOn(end: string): boolean {
    this.space();
    if (this.take(end)) return false;
    this.expect(',');
    return true;
  }
}

export function parse(text: string, isOnlyChecked = false): Json {
  const reader = new JsonReader(text, isOnlyChecked);
  const value = reader.value();
  reader.end();
  return value;
}

export function print(json: Json): string {
  // Without callbacks, which would take twice the stack for what is nested deep.
  const parts: string[] = [];
  if (Array.isArray(json)) {
    for (const element of json) parts.push(print(element));
    return `[${parts.join(',')}]`;
  }
  if (json instanceof Map) {
    for (const [name, value] of json) parts.push(`${JSON.stringify(name)}:${print(value)}`);
    return `{${parts.join(',')}}`;
  }
  return typeof json === 'number' ? printNumber(json) : JSON.stringify(json);
}

/** From here on, and below its counterpart, numbers have an exponent. */
const EXPONENT_FROM = 1e16;
const EXPONENT_BELOW = 1e-5;

function printNumber(number: number): string {
  if (Object.is(number, -0)) return '-0.0';
  const magnitude = Math.abs(number);
  if (Number.isSafeInteger(number)) return String(number);
  if (magnitude >= EXPONENT_FROM || magnitude < EXPONENT_BELOW) return number.toExponential();
  // What is beyond the safe integers is shown as the double that it is.
  return Number.isInteger(number) ? `${number}.0` : String(number);
}
