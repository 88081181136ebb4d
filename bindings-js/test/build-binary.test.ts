// The build puts the functions of the module into another order; here with a module that has each kind of reference to one.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { test } from 'node:test';

interface Reorderable {
  bodies(): Uint8Array[];
  names(order: number[]): string[];
  reordered(order: number[]): Uint8Array<ArrayBuffer>;
}

const { Binary } = (await import(new URL('../build-binary.mjs', import.meta.url).href)) as { Binary: new (bytes: Uint8Array) => Reorderable };

const ADD = 0x6a;
const HEADER = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
const SECTIONS = [
  [1, 5, 1, 0x60, 0, 1, 0x7f],
  // An imported function, number 0.
  [2, 7, 1, 1, 0x65, 1, 0x69, 0, 0],
  [3, 4, 3, 0, 0, 0],
  [4, 4, 1, 0x70, 0, 1],
  [5, 3, 1, 0, 1],
  // Numbers 1 and 2 are exported as a and b.
  [7, 9, 2, 1, 0x61, 0, 1, 1, 0x62, 0, 2],
  // Number 3 is in the table.
  [9, 7, 1, 0, 0x41, 0, 0x0b, 1, 3],
  [10, 28, 3],
  // Calls 2 and 0 and adds the results.
  [7, 0, 0x10, 2, 0x10, 0, ADD, 0x0b],
  // Calls what the table has.
  [7, 0, 0x41, 0, 0x11, 0, 0, 0x0b],
  // Reads from memory with a hint that the address is not aligned, and returns 7.
  [10, 0, 0x41, 0, 0x28, 0, 0, 0x1a, 0x41, 7, 0x0b],
  [0, 14, 4, 0x6e, 0x61, 0x6d, 0x65, 1, 7, 2, 1, 1, 0x61, 3, 1, 0x63],
];
const MODULE = Buffer.from([...HEADER, ...SECTIONS.flat()]);

const ORDERS = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

test('functions in another order call the same ones', async () => {
  for (const order of ORDERS) {
    const { instance } = await WebAssembly.instantiate(new Binary(MODULE).reordered(order), { e: { i: () => 1 } });
    const { a, b } = instance.exports as { a: () => number; b: () => number };
    assert.deepEqual([a(), b()], [8, 7], `order ${order}`);
  }
});

test('names follow their functions, and are not in the new module', () => {
  const binary = new Binary(MODULE);
  assert.deepEqual(binary.names([2, 0, 1]), ['e.i', 'c', 'a', '']);
  assert.deepEqual(new Binary(binary.reordered([2, 0, 1])).names([0, 1, 2]), ['e.i', '', '', '']);
});

test('an access to memory has the hint of its natural alignment', () => {
  assert.deepEqual([...new Binary(MODULE).bodies()[2]!], [0, 0x41, 0, 0x28, 2, 0, 0x1a, 0x41, 7, 0x0b]);
});

test('an unknown instruction stops the build', () => {
  const bytes = Buffer.from(MODULE);
  bytes[bytes.indexOf(ADD, bytes.length - 60)] = 0x06;
  assert.throws(() => new Binary(bytes), /unknown instruction, 0x6/);
});
