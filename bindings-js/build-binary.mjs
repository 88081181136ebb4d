// Reads and rewrites the binary format of WebAssembly, as far as functions can be put into another order.

import { Buffer } from 'node:buffer';

/** Kinds of sections. */
const CUSTOM = 0;
const IMPORTS = 2;
const FUNCTIONS = 3;
const EXPORTS = 7;
const START = 8;
const ELEMENTS = 9;
const CODE = 10;

/** Reads from a place in bytes. */
class Reader {
  constructor(bytes, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }

  byte() {
    return this.bytes[this.at++];
  }

  /** An unsigned number in LEB128. */
  number() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  }

  skipNumber() {
    while (this.byte() > 127);
  }

  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  text() {
    return this.take(this.number()).toString();
  }

  list(read) {
    return Array.from({ length: this.number() }, read);
  }

  /** A constant expression. */
  skipExpression() {
    const instruction = nextInstruction(this);
    if (instruction.opcode !== 0x41 && instruction.opcode !== 0x23) throw new Error('an address in the module is not what is expected');
    if (this.byte() !== 0x0b) throw new Error('an address in the module is more than a constant');
  }
}

function leb(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value & 127) | 128);
  return [...bytes, value];
}

/** The alignment of an access that needs no hint, as an exponent of 2; by opcode from 0x28 on. */
const ALIGNMENTS = [2, 3, 2, 3, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 3, 2, 3, 0, 1, 0, 1, 2];

/** Bytes or numbers after the second byte of instructions that have two opcodes. */
const PREFIXED = { 8: 'nb', 9: 'n', 10: 'bb', 11: 'b', 12: 'nn', 13: 'n', 14: 'nn', 15: 'n', 16: 'n', 17: 'n' };

function skipAll(reader, format) {
  for (const what of format) {
    if (what === 'n') reader.skipNumber();
    else reader.byte();
  }
}

/** Reads an instruction; returns its opcode, and what of it is rewritten. */
function nextInstruction(reader) {
  const start = reader.at;
  const opcode = reader.byte();
  const found = { opcode, start };
  if (opcode >= 0x28 && opcode <= 0x3e) {
    found.hint = reader.number();
    found.offsetAt = reader.at;
    // Bit 6 would announce the number of a memory.
    if (found.hint > 4) throw new Error('an access to memory is not what is expected');
    reader.skipNumber();
  } else if (opcode === 0x10 || opcode === 0x12 || opcode === 0xd2) found.callee = reader.number();
  else if (opcode >= 0x20 && opcode <= 0x26) reader.skipNumber();
  else if (opcode >= 0x45 && opcode <= 0xc4) return found;
  else if (opcode >= 0x02 && opcode <= 0x04) reader.skipNumber();
  else if (opcode === 0x0c || opcode === 0x0d || opcode === 0x41 || opcode === 0x42) reader.skipNumber();
  else if (opcode === 0x11 || opcode === 0x13) skipAll(reader, 'nn');
  else if (opcode === 0x0e) {
    reader.list(() => reader.skipNumber());
    reader.skipNumber();
  } else if (opcode === 0x1c) reader.list(() => reader.byte());
  else if (opcode === 0x43) reader.take(4);
  else if (opcode === 0x44) reader.take(8);
  else if (opcode === 0x3f || opcode === 0x40 || opcode === 0xd0) reader.byte();
  else if (opcode === 0xfc) {
    const second = reader.number();
    if (second > 7 && PREFIXED[second] === undefined) throw new Error(`the module has an unknown instruction, 0xfc ${second}`);
    skipAll(reader, PREFIXED[second] ?? '');
  } else if (![0x00, 0x01, 0x05, 0x0b, 0x0f, 0x1a, 0x1b, 0xd1].includes(opcode)) throw new Error(`the module has an unknown instruction, 0x${opcode.toString(16)}`);
  return found;
}

/**
 * The body of a function in pieces: bytes, and the numbers of functions between them. Accesses to memory lose the hint that their address is less aligned
 * than usual: processors that have WebAssembly ignore it, and without it the same access always has the same bytes.
 */
function piecesOf(bytes) {
  const reader = new Reader(bytes);
  reader.list(() => skipAll(reader, 'nb'));
  const pieces = [];
  let from = 0;
  while (reader.at < bytes.length) {
    const { opcode, start, hint, offsetAt, callee } = nextInstruction(reader);
    if (hint !== undefined && hint !== ALIGNMENTS[opcode - 0x28]) {
      pieces.push(bytes.subarray(from, start), Buffer.from([opcode, ALIGNMENTS[opcode - 0x28]]));
      from = offsetAt;
    } else if (callee !== undefined) {
      pieces.push(bytes.subarray(from, start + 1), callee);
      from = reader.at;
    }
  }
  return [...pieces, bytes.subarray(from)];
}

/** The names of functions, by their numbers. */
function namesIn(reader) {
  const names = [];
  while (reader.at < reader.end) {
    const kind = reader.byte();
    const length = reader.number();
    const next = reader.at + length;
    if (kind === 1) for (const [index, name] of reader.list(() => [reader.number(), reader.text()])) names[index] = name;
    reader.at = next;
  }
  return names;
}

/** The module and name of each imported function. */
function importsIn(reader) {
  const functions = [];
  reader.list(() => {
    const name = [reader.text(), reader.text()].join('.');
    const kind = reader.byte();
    if (kind === 0) functions.push(name);
    if (kind === 0) reader.skipNumber();
    else if (kind === 3) skipAll(reader, 'bb');
    else {
      if (kind === 1) reader.byte();
      skipAll(reader, (reader.byte() & 1) === 0 ? 'n' : 'nn');
    }
  });
  return functions;
}

/** A module whose functions can be put into another order. */
export class Binary {
  #sections = [];
  #imports = [];
  #types = [];
  #bodies = [];
  #names = [];

  constructor(bytes) {
    const reader = new Reader(bytes, 8);
    this.header = bytes.subarray(0, 8);
    while (reader.at < bytes.length) {
      const kind = reader.byte();
      const content = reader.take(reader.number());
      const inside = new Reader(content);
      if (kind === CUSTOM) {
        if (inside.text() === 'name') this.#names = namesIn(inside);
        continue;
      }
      this.#sections.push({ kind, content });
      if (kind === IMPORTS) this.#imports = importsIn(inside);
      if (kind === FUNCTIONS) this.#types = inside.list(() => inside.number());
      if (kind === CODE) this.#bodies = inside.list(() => piecesOf(inside.take(inside.number())));
    }
  }

  /** The bodies of its functions as they are. */
  bodies() {
    return this.#bodies.map((pieces) => encode(pieces, (index) => index));
  }

  /** The names of its functions in a new order, after those that it imports. */
  names(order) {
    const known = this.#imports.map((name, index) => this.#names[index] ?? name);
    return [...known, ...order.map((old) => this.#names[this.#imports.length + old] ?? '')];
  }

  /** Returns the bytes of the module with its functions in a new order, given as their old numbers without those of imports, and without custom sections. */
  reordered(order) {
    const first = this.#imports.length;
    const places = [];
    for (const [place, old] of order.entries()) places[old] = place + first;
    const moved = (index) => (index < first ? index : places[index - first]);
    const parts = [this.header];
    for (const { kind, content } of this.#sections) {
      const written = this.#section(kind, content, order, moved);
      parts.push(Buffer.from([kind, ...leb(written.length)]), written);
    }
    return Buffer.concat(parts);
  }

  #section(kind, content, order, moved) {
    const reader = new Reader(content);
    if (kind === FUNCTIONS) return Buffer.from([...leb(order.length), ...order.flatMap((old) => leb(this.#types[old]))]);
    if (kind === EXPORTS) {
      const list = reader.list(() => {
        const name = reader.take(reader.number());
        const what = reader.byte();
        const index = reader.number();
        return [...leb(name.length), ...name, what, ...leb(what === 0 ? moved(index) : index)];
      });
      return Buffer.from([...leb(list.length), ...list.flat()]);
    }
    if (kind === START) return Buffer.from(leb(moved(reader.number())));
    if (kind === ELEMENTS) {
      const list = reader.list(() => {
        const flags = reader.number();
        if (flags > 3) throw new Error('the table of the module is not filled as expected');
        const start = reader.at;
        if ((flags & 2) !== 0 && (flags & 1) === 0) reader.skipNumber();
        if ((flags & 1) === 0) reader.skipExpression();
        if (flags !== 0) reader.byte();
        const head = content.subarray(start, reader.at);
        const functions = reader.list(() => moved(reader.number()));
        return [flags, ...head, ...leb(functions.length), ...functions.flatMap(leb)];
      });
      return Buffer.from([...leb(list.length), ...list.flat()]);
    }
    if (kind === CODE) {
      const bodies = order.map((old) => encode(this.#bodies[old], moved));
      return Buffer.concat([Buffer.from(leb(bodies.length)), ...bodies.flatMap((body) => [Buffer.from(leb(body.length)), body])]);
    }
    return content;
  }
}

function encode(pieces, moved) {
  return Buffer.concat(pieces.map((piece) => (typeof piece === 'number' ? Buffer.from(leb(moved(piece))) : piece)));
}
