// Short texts are read and written without the platform's encoder and decoder, which are the oracle here.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { putUtf8, readUtf8, utf8Length } from '../src/codec/bytes.ts';

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** The limits of the lengths of UTF-8 and of surrogates, and the byte order mark. */
const LIMITS = [
  0, 0x41, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xd800, 0xdbff, 0xdc00, 0xdfff, 0xe000, 0xfeff, 0xffff, 0x1_0000,
  0x10_ffff,
];
const text = fc
  .array(fc.oneof(fc.constantFrom(...LIMITS), fc.nat(0x10_ffff)), { maxLength: 20 })
  .map((codes) => String.fromCodePoint(...codes));
/** Bytes that begin or go on with characters of each length, well-formed or not. */
const bytes = fc
  .array(fc.oneof(fc.constantFrom(0x41, 0x80, 0xbf, 0xc1, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xf5), fc.nat(255)), {
    maxLength: 8,
  })
  .map((list) => Uint8Array.from(list));

function decoded(given: Uint8Array): string | undefined {
  try {
    return decoder.decode(given);
  } catch {
    return undefined;
  }
}

/** Reads bytes with others around them, which do not belong to the text. */
function readWithin(given: Uint8Array): string | undefined {
  return readUtf8(Uint8Array.from([0xe2, ...given, 0x82, 0xac]), 1, 1 + given.length);
}

test('text is read as the platform reads it, and not where the platform refuses it', () => {
  const found = { read: 0, refused: 0 };
  const check = (given: Uint8Array): void => {
    const expected = decoded(given);
    found[expected === undefined ? 'refused' : 'read']++;
    const read = readWithin(given);
    if (given.length <= 64 || read !== undefined) assert.equal(read, expected, `[${given.join()}]`);
  };
  fc.assert(fc.property(bytes, check), { numRuns: 20_000 });
  fc.assert(
    fc.property(text, fc.nat(), (whole, cut) => {
      const given = encoder.encode(whole);
      check(given);
      check(given.subarray(0, cut % (given.length + 1)));
    }),
    { numRuns: 20_000 },
  );
  for (let first = 0x80; first < 0x100; first++) {
    for (let second = 0; second < 0x100; second++) {
      for (const more of [[], [0x80], [0xbf, 0x80], [0x80, 0x80, 0x41]]) check(Uint8Array.of(first, second, ...more));
    }
  }
  assert.ok(found.read > 20_000 && found.refused > 20_000, JSON.stringify(found));
});

test('text is written as the platform writes it, unless it has lone surrogates', () => {
  const found = { written: 0, lone: 0 };
  fc.assert(
    fc.property(text, (given) => {
      const expected = encoder.encode(given);
      const size = utf8Length(given);
      if (decoder.decode(expected) !== given) {
        found.lone++;
        assert.equal(size, -1);
        return;
      }
      found.written++;
      const out = new Uint8Array(size + 3);
      assert.equal(putUtf8(given, out, 1), size + 1);
      assert.deepEqual([...out], [0, ...expected, 0, 0]);
    }),
    { numRuns: 20_000 },
  );
  assert.ok(found.written > 5000 && found.lone > 5000, JSON.stringify(found));
});
