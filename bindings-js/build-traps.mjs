// Turns the panics of a module into traps without a text. The texts, what formats them, and the places in the source that they name are 4 % of the module that
// a page downloads; the error of a stopped engine has the number of the function instead, and the package the list of their names.
import { readFileSync, writeFileSync } from 'node:fs';

/** Functions of the language's libraries that do nothing but panic, as Rust demangles them. */
const PANICS = [
  /\bcore(?:\[\w+\])?::panicking::/,
  /\bcore(?:\[\w+\])?::(?:option::(?:expect|unwrap)_failed|result::unwrap_failed|cell::panic_already_\w+)\b/,
  /\bcore(?:\[\w+\])?::(?:slice|str)::[\w:]*_fail\b/,
  /\balloc(?:\[\w+\])?::(?:raw_vec::(?:handle_error|capacity_overflow)|alloc::handle_alloc_error)\b/,
  /\bstd(?:\[\w+\])?::(?:thread::local::panic_access_error|panicking::|panic::PanicHookInfo)/,
];
/** Would have a panic keep its text: nothing happens instead. */
const HOOK = /\bstd(?:\[\w+\])?::panicking::set_hook\b/;

/** Formats texts. Only panics do, but the table of the module has all of these functions, too. */
const FORMATS = /\b(?:core|alloc)(?:\[\w+\])?::fmt::/;
const REFERENCE = /\((?:return_call|call|ref\.func) \$("[^"]*"|[^\s()]+)/;

const isPanic = (name) => PANICS.some((pattern) => pattern.test(name));

/** Takes and returns the text of a module. */
export function panicsToTraps(text) {
  let isDropped = false;
  let count = 0;
  let current = '';
  const lines = text.split('\n').flatMap((line) => {
    if (line.startsWith(' (')) {
      current = line.startsWith(' (func $') ? line.slice(' (func '.length).replace(/\((?:param|result|type|local)\b.*/, '') : '';
      const isHook = HOOK.test(current);
      isDropped = isHook || FORMATS.test(current) || isPanic(current);
      if (!isDropped) return [line];
      count += 1;
      return [line, isHook ? '  (nop)' : '  (unreachable)', ' )'];
    }
    if (isDropped) return [];
    const called = REFERENCE.exec(line)?.[1];
    if (called !== undefined && FORMATS.test(called) && !isPanic(called)) throw new Error(`${current} calls ${called}: errors are to be built with engine/src/error/message.rs`);
    return [line];
  });
  if (count < 10) throw new Error(`only ${count} functions that panic were found; the names in build-traps.mjs are out of date`);
  return lines.join('\n');
}

/** Reads an unsigned or signed number in LEB128 from a cursor. */
function numberAt(bytes, cursor) {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[cursor.at++];
    value += (byte & 127) * 2 ** shift;
    if (byte < 128) return value;
  }
}

/** The active segments of the data section: the address of each in memory, and where its bytes are in the file. */
function segmentsOf(bytes) {
  const cursor = { at: 8 };
  while (cursor.at < bytes.length) {
    const section = bytes[cursor.at++];
    const end = numberAt(bytes, cursor) + cursor.at;
    if (section !== 11) {
      cursor.at = end;
      continue;
    }
    return Array.from({ length: numberAt(bytes, cursor) }, () => {
      // Memory 0, at the constant that `i32.const` (0x41) gives; addresses are far below 2^31.
      if (numberAt(bytes, cursor) !== 0 || bytes[cursor.at++] !== 0x41) throw new Error('a data segment is not what is expected');
      const address = numberAt(bytes, cursor);
      cursor.at += 1;
      const length = numberAt(bytes, cursor);
      cursor.at += length;
      return { address, start: cursor.at - length, length };
    });
  }
  return [];
}

/**
 * Overwrites with zeros the places in the source (`core::panic::Location`) that panics would have named. Nothing refers to them any more: a place is the
 * address and length of the name of a Rust file, a line and a column.
 */
export function clearLocations(file) {
  const bytes = readFileSync(file);
  const segments = segmentsOf(bytes);
  const offsetOf = (address, length) => {
    const segment = segments.find((one) => address >= one.address && address + length <= one.address + one.length);
    return segment === undefined ? undefined : segment.start + address - segment.address;
  };
  const cleared = [];
  for (const { address, start, length } of segments) {
    const end = start + length;
    // The zeros at the end of a segment may be left out: the last bytes of a column.
    const wordAt = (at) => [0, 1, 2, 3].reduce((word, byte) => word + (at + byte < end ? bytes[at + byte] * 256 ** byte : 0), 0);
    for (let at = start + ((4 - (address % 4)) % 4); at + 12 < end; at += 4) {
      const [name, nameLength, line, column] = [0, 4, 8, 12].map((offset) => wordAt(at + offset));
      if (nameLength < 4 || nameLength > 300 || line === 0 || line > 20_000 || column === 0 || column > 500) continue;
      const nameAt = offsetOf(name, nameLength);
      if (nameAt === undefined || !/^[\w/.-]+\.rs$/.test(bytes.toString('latin1', nameAt, nameAt + nameLength))) continue;
      cleared.push([at, Math.min(16, end - at)], [nameAt, nameLength]);
    }
  }
  for (const [at, length] of cleared) bytes.fill(0, at, at + length);
  writeFileSync(file, bytes);
}

const PRINTABLE = /^[\n\x20-\x7e]+$/;
const TEMPLATE = /\(call \$"[^"]*::panic_fmt"\s+\(i32\.const (\d+)\)\s+\((?!i32\.const)/g;
const CALL = /\(call \$("[^"]*"|[^\s()]+)((?:\s+\(i32\.const -?\d+\))+)/g;

/** The address and length of each text that a call only panics with; without a length, of a template that its arguments go into. */
function textsOf(code) {
  const texts = [];
  for (const [, name, constants] of code.matchAll(CALL)) {
    if (!isPanic(name)) continue;
    const [address, length] = [...constants.matchAll(/i32\.const (-?\d+)/g)].map(([, number]) => Number(number));
    // Of a text without arguments `panic_fmt` gets twice the length and one.
    if (length > 0) texts.push({ address, length: /::panic_fmt\b/.test(name) ? length >> 1 : length });
  }
  for (const [, address] of code.matchAll(TEMPLATE)) texts.push({ address: Number(address) });
  return texts;
}

/** The length of a template: texts of at most 127 bytes, each after its length, and arguments (0xc0) until a zero. Undefined if it has anything else. */
function templateLength(bytes, start, end) {
  for (let at = start; at < end;) {
    const byte = bytes[at++];
    if (byte === 0) return at - start;
    if (byte < 0x80) {
      if (!PRINTABLE.test(bytes.toString('latin1', at, at + byte))) return undefined;
      at += byte;
    } else if (byte !== 0xc0) return undefined;
  }
  return undefined;
}

/** Overwrites with zeros the texts of panics in `file`, given the module's text with its panics, and the texts of all that runs in its memory. */
export function clearTexts(file, untouched, listings) {
  const bytes = readFileSync(file);
  const segments = segmentsOf(bytes);
  const used = new Set(listings.flatMap((code) => [...code.matchAll(/(?:i32\.const |offset=)(\d+)/g)].map(([, number]) => Number(number))));
  // Two words that are stored at once.
  for (const [, number] of listings.flatMap((code) => [...code.matchAll(/i64\.const (-?\d+)/g)])) {
    const both = BigInt.asUintN(64, BigInt(number));
    used.add(Number(both & 0xffff_ffffn)).add(Number(both >> 32n));
  }
  for (const { start, length } of segments) {
    for (let at = start; at + 4 <= start + length; at++) used.add(bytes.readUInt32LE(at));
  }
  for (const text of textsOf(untouched)) {
    const { address } = text;
    const segment = segments.find((one) => address >= one.address && address < one.address + one.length);
    if (segment === undefined) continue;
    const at = segment.start + address - segment.address;
    const end = segment.start + segment.length;
    const length = text.length ?? templateLength(bytes, at, end);
    if (length === undefined || at + length > end || Array.from({ length }, (_, by) => address + by).some((place) => used.has(place))) continue;
    if (text.length !== undefined && !PRINTABLE.test(bytes.toString('latin1', at, at + length))) continue;
    bytes.fill(0, at, at + length);
  }
  writeFileSync(file, bytes);
}
