// Turning the parts of a file into a layout.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { coarsen, fillGaps } from '../src/api/maintenance/layout.ts';

type Part = Parameters<typeof fillGaps>[0][number];

const part = (start: number, end: number, kind: Part['kind'], collection = -1): Part => ({
  start,
  end,
  kind,
  collection,
});

test('gaps are filled, and neighbours of one kind and collection are joined', () => {
  const found = [part(8, 10, 'free'), part(0, 2, 'leaf', 0), part(2, 5, 'leaf', 0), part(10, 19, 'free')];
  const whole = [part(0, 5, 'leaf', 0), part(5, 8, 'pending'), part(8, 12, 'free')];
  assert.deepEqual(fillGaps(found, 12), whole);
  assert.deepEqual(fillGaps([part(0, 2, 'leaf', 0), part(2, 4, 'leaf', 1)], 4).length, 2);
  assert.deepEqual(fillGaps([], 3), [part(0, 3, 'pending')]);
  assert.deepEqual(fillGaps([], 0), []);
});

test('a cell shows the kind that takes most of it', () => {
  const whole = [
    part(0, 5, 'leaf', 0),
    part(5, 6, 'free'),
    part(6, 9, 'leaf', 0),
    part(9, 21, 'free'),
    part(21, 22, 'leaf', 0),
  ];
  assert.deepEqual(coarsen(whole, 4), [part(0, 8, 'leaf', 0), part(8, 22, 'free')]);
  assert.deepEqual(coarsen(whole, 1), whole);
  assert.deepEqual(coarsen(whole, 100), [part(0, 22, 'free')]);
  assert.deepEqual(coarsen([], 4), []);
});
