// Frames are read as they were written wherever the stream is cut, and garbage is refused.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FrameReader, MAX_FIRST_FRAME_BYTES, MAX_FRAME_BYTES, encodeFrame } from '../../src/processes/frames.ts';
import { chance, code } from '../support/kit.ts';

const SEEDS = 300;

type Random = () => number;

const below = (random: Random, limit: number): number => Math.floor(random() * limit);

function bytesOf(random: Random, length: number): Uint8Array {
  return Uint8Array.from({ length }, () => below(random, 256));
}

function textOf(random: Random): string {
  return Array.from({ length: below(random, 8) }, () => String.fromCodePoint(below(random, 0xd800))).join('');
}

function valueOf(random: Random, depth: number): unknown {
  switch (below(random, depth > 2 ? 5 : 7)) {
    case 0:
      return below(random, 2 ** 53);
    case 1:
      return textOf(random);
    case 2:
      return null;
    case 3:
      return random() < 0.5;
    case 4:
      return bytesOf(random, random() < 0.1 ? below(random, 5000) : below(random, 9));
    case 5:
      return Array.from({ length: below(random, 4) }, () => valueOf(random, depth + 1));
    default:
      return messageOf(random, depth + 1);
  }
}

function messageOf(random: Random, depth = 0): object {
  return Object.fromEntries(
    Array.from({ length: below(random, 5) }, () => [`x${textOf(random)}`, valueOf(random, depth)]),
  );
}

function encode(messages: readonly object[]): Buffer {
  return Buffer.concat(messages.flatMap((message) => encodeFrame(message)));
}

function cut(random: Random, stream: Buffer): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < stream.length; ) {
    const length = random() < 0.5 ? below(random, 4) : below(random, stream.length);
    chunks.push(stream.subarray(at, at + length));
    at += length;
  }
  return chunks;
}

function trusting(): FrameReader {
  const reader = new FrameReader();
  reader.maxBytes = MAX_FRAME_BYTES;
  return reader;
}

/** What a stream of these bytes yields before it is refused, if it is. */
function readAll(stream: Buffer): { readonly messages: readonly unknown[]; readonly error: unknown } {
  const messages: unknown[] = [];
  try {
    for (const message of trusting().read(stream)) messages.push(message);
    return { messages, error: undefined };
  } catch (error) {
    return { messages, error };
  }
}

test('messages arrive as they were sent, wherever the stream is cut', () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = chance(seed);
    const sent = Array.from({ length: 1 + below(random, 6) }, () => messageOf(random));
    const reader = trusting();
    const received = cut(random, encode(sent)).flatMap((chunk) => [...reader.read(chunk)]);
    assert.deepEqual(received, sent, `seed ${seed}`);
  }
});

test('each single cut of a stream', () => {
  const sent = [{ a: new Uint8Array([1, 2, 3]), b: [new Uint8Array(0), 'ü'] }, {}, { c: { d: new Uint8Array(300) } }];
  const stream = encode(sent);
  for (let at = 0; at <= stream.length; at++) {
    const reader = trusting();
    const received = [...reader.read(stream.subarray(0, at)), ...reader.read(stream.subarray(at))];
    assert.deepEqual(received, sent, `cut at ${at}`);
  }
});

test('a reader that pauses between two messages goes on with those that it has', () => {
  const sent = [{ n: 1 }, { n: 2, bytes: new Uint8Array([7]) }, { n: 3 }];
  const reader = trusting();
  const received: unknown[] = [];
  for (let chunk = encode(sent); ; chunk = Buffer.alloc(0)) {
    const [message] = reader.read(chunk);
    if (message === undefined) break;
    received.push(message);
  }
  assert.deepEqual(received, sent);
});

test('byte arrays are copies, which others may keep or transfer', () => {
  const stream = encode([{ bytes: new Uint8Array([1, 2, 3]) }]);
  const [message] = trusting().read(stream) as Iterable<{ readonly bytes: Uint8Array }>;
  stream.fill(9);
  assert.deepEqual(message?.bytes, new Uint8Array([1, 2, 3]));
  assert.equal(message.bytes.byteLength, message.bytes.buffer.byteLength);
});

test('a stranger may send a short frame only', () => {
  const text = (length: number): object => ({ title: 'x'.repeat(length) });
  assert.equal([...new FrameReader().read(encode([text(MAX_FIRST_FRAME_BYTES - 100)]))].length, 1);
  const tooLong = encode([text(MAX_FIRST_FRAME_BYTES)]);
  // Its head is enough: nothing is kept of it.
  assert.throws(() => [...new FrameReader().read(tooLong.subarray(0, 4))], code('KV_INVALID_ARGUMENT'));
  assert.equal([...trusting().read(tooLong)].length, 1);
  const head = Buffer.alloc(4);
  head.writeUInt32LE(MAX_FRAME_BYTES + 1);
  assert.throws(() => [...trusting().read(head)], code('KV_INVALID_ARGUMENT'));
});

/** A frame with this JSON, followed by these bytes. */
function frame(json: string, bytes = Buffer.alloc(0), jsonBytes = Buffer.byteLength(json)): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32LE(4 + Buffer.byteLength(json) + bytes.length, 0);
  head.writeUInt32LE(jsonBytes, 4);
  return Buffer.concat([head, Buffer.from(json), bytes]);
}

test('malformed frames are refused', () => {
  for (const [what, stream] of Object.entries({
    'no length of the JSON': Buffer.from([0, 0, 0, 0]),
    'a length that is too short for that': Buffer.from([3, 0, 0, 0, 0, 0, 0]),
    'JSON that is longer than the frame': frame('{}', Buffer.alloc(0), 3),
    'no JSON': frame('{"a":'),
    'nothing': frame(''),
    'bytes that nobody refers to': frame('{}', Buffer.from([1])),
    'fewer bytes than the JSON refers to': frame('{"a":{"$bytes":2}}', Buffer.from([1])),
    'a negative number of bytes': frame('{"a":{"$bytes":-1}}', Buffer.from([1])),
    'part of a byte': frame('{"a":{"$bytes":0.5}}', Buffer.from([1])),
    'a length that is a text': frame('{"a":{"$bytes":"1"}}', Buffer.from([1])),
    'the same bytes twice': frame('[{"$bytes":1},{"$bytes":1}]', Buffer.from([1])),
    'lists in lists without end': frame('['.repeat(200_000) + ']'.repeat(200_000)),
  })) {
    assert.throws(() => [...trusting().read(stream)], code('KV_INVALID_ARGUMENT'), what);
  }
});

test('names of properties are just names', () => {
  const [message] = trusting().read(frame('{"__proto__":{"type":"hello"},"toString":1}')) as Iterable<{
    type?: unknown;
  }>;
  assert.equal(message?.type, undefined);
  assert.equal(Object.getPrototypeOf(message), Object.prototype);
});

test('whatever comes is read or refused', () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = chance(seed);
    const noise = bytesOf(random, below(random, 200));
    // Otherwise a frame of random length seldom ends.
    if (random() < 0.5) noise.fill(0, 1, 4);
    const { error } = readAll(Buffer.from(noise));
    if (error !== undefined) code('KV_INVALID_ARGUMENT')(error);
    const sent = Array.from({ length: 3 }, () => messageOf(random));
    const stream = encode(sent);
    const at = below(random, stream.length);
    stream[at] = below(random, 256);
    const damaged = readAll(stream);
    if (damaged.error !== undefined) code('KV_INVALID_ARGUMENT')(damaged.error);
    // What came before the damage is not affected.
    let whole = 0;
    for (let end = 0; whole < sent.length; whole++) {
      end += encode([sent[whole] as object]).length;
      if (end > at) break;
    }
    assert.deepEqual(damaged.messages.slice(0, whole), sent.slice(0, whole), `seed ${seed}`);
  }
});
