// Checks the promises of `StorageFile`.
import type { StorageFile } from 'mangrove-kv';
import { bytes, chance, difference, readAt } from './bytes.ts';
import type { Check, Context } from './context.ts';

/** Larger than any piece in which a storage is likely to store files. */
const LARGE_BYTES = (3 << 20) + 12_345;
const RANDOM_STEPS = 400;
const RANDOM_BYTES = 600_000;

export function checkFiles(context: Context): Check[] {
  const { assert, equal, check, thrownBy } = context;
  const holds = (file: StorageFile, at: number, expected: Uint8Array, what: string): void => {
    const differs = difference(readAt(file, at, expected.length), expected);
    assert(differs === undefined, `${what}: the byte at ${at + (differs ?? 0)} is wrong`);
  };

  return [
    check('a new file is empty', (subject) => equal(subject.file().size(), 0, 'size')),

    check('written bytes read back, whole and in parts', (subject) => {
      const opened = subject.file();
      const written = bytes(LARGE_BYTES, 1);
      opened.write(0, written);
      equal(opened.size(), written.length, 'size');
      holds(opened, 0, written, 'the whole');
      for (const [at, end] of [
        [0, 1],
        [1, 5000],
        [65_535, 65_537],
        [1 << 20, (2 << 20) + 7],
        [LARGE_BYTES - 1, LARGE_BYTES],
      ] as const) {
        holds(opened, at, written.subarray(at, end), `from ${at} to ${end}`);
      }
    }),

    check('a write changes its own bytes only, and a shorter one does not cut the file', (subject) => {
      const opened = subject.file();
      const expected = bytes(300_000, 2);
      opened.write(0, expected);
      for (const [at, length] of [
        [0, 10],
        [4090, 12],
        [131_071, 70_000],
        [299_990, 10],
      ] as const) {
        const part = bytes(length, at + 3);
        opened.write(at, part);
        expected.set(part, at);
      }
      equal(opened.size(), expected.length, 'size');
      holds(opened, 0, expected, 'the whole');
    }),

    check('a view into a larger buffer stands for its own bytes only', (subject) => {
      const opened = subject.file();
      const buffer = bytes(1000, 4);
      opened.write(0, buffer.subarray(300, 700));
      equal(opened.size(), 400, 'size');
      const into = new Uint8Array(1000).fill(7);
      opened.read(100, into.subarray(500, 600));
      assert(difference(into.subarray(500, 600), buffer.subarray(400, 500)) === undefined, 'the part is read');
      assert(
        into.every((byte, at) => byte === 7 || (at >= 500 && at < 600)),
        'nothing beside the part is touched',
      );
    }),

    check('a buffer belongs to the caller again after the call', (subject) => {
      const opened = subject.file();
      const buffer = bytes(10_000, 5);
      const expected = buffer.slice();
      opened.write(0, buffer);
      buffer.fill(0);
      holds(opened, 0, expected, 'after the written buffer was changed');
      readAt(opened, 0, 10_000).fill(0);
      holds(opened, 0, expected, 'after the read buffer was changed');
    }),

    check('a write past the end leaves zeros in between', (subject) => {
      const opened = subject.file();
      opened.write(10, bytes(10, 6));
      const tail = bytes(100, 7);
      opened.write(500_000, tail);
      equal(opened.size(), 500_100, 'size');
      holds(opened, 0, new Uint8Array(10), 'before the first write');
      holds(opened, 20, new Uint8Array(499_980), 'between the writes');
      holds(opened, 500_000, tail, 'the second write');
    }),

    check('truncate cuts, and the part cut off reads as zeros if the file grows again', (subject) => {
      for (const grow of ['truncate', 'write'] as const) {
        const opened = subject.file(grow === 'truncate' ? 'data' : 'log');
        const written = bytes(400_000, 8);
        opened.write(0, written);
        opened.truncate(100_001);
        equal(opened.size(), 100_001, 'size');
        holds(opened, 0, written.subarray(0, 100_001), 'what is left');
        if (grow === 'truncate') opened.truncate(400_000);
        else opened.write(399_999, new Uint8Array(1));
        equal(opened.size(), 400_000, `size after ${grow}`);
        holds(opened, 0, written.subarray(0, 100_001), `what was left, after ${grow}`);
        holds(opened, 100_001, new Uint8Array(299_999), `what was cut off, after ${grow}`);
      }
    }),

    check('truncate extends with zeros, and empties a file', (subject) => {
      const opened = subject.file();
      opened.truncate(300_000);
      equal(opened.size(), 300_000, 'size');
      holds(opened, 0, new Uint8Array(300_000), 'an extended file');
      opened.truncate(300_000);
      opened.truncate(0);
      equal(opened.size(), 0, 'size of an emptied file');
      thrownBy(() => readAt(opened, 0, 1), 'a read of an emptied file');
    }),

    check('a read past the end throws instead of returning fewer bytes', (subject) => {
      const opened = subject.file();
      const written = bytes(5000, 9);
      opened.write(0, written);
      for (const [at, length] of [
        [4999, 2],
        [5000, 1],
        [0, 5001],
        [1_000_000, 10],
      ] as const) {
        thrownBy(() => readAt(opened, at, length), `a read of ${length} at ${at} of 5000`);
      }
      holds(opened, 0, written, 'after the errors');
    }),

    check('methods are synchronous', (subject) => {
      const opened = subject.file();
      const results = [
        subject.storage.list(),
        opened.write(0, bytes(10, 10)),
        opened.read(0, new Uint8Array(10)),
        opened.flush(),
        opened.size(),
        opened.truncate(5),
        opened.close(),
      ] as const;
      const isPromise = (result: unknown): boolean =>
        typeof (result as { then?: unknown } | null | undefined)?.then === 'function';
      assert(!results.some(isPromise), 'no method returns a promise');
    }),

    check('close may be called again', (subject) => {
      const opened = subject.file();
      opened.write(0, bytes(10, 11));
      opened.flush();
      opened.close();
      opened.close();
    }),

    check('a random sequence of calls has the same effect as on an array', (subject) => {
      const opened = subject.file();
      const next = chance(12);
      const below = (limit: number): number => Math.floor(next() * limit);
      let expected = new Uint8Array(0);
      const resize = (size: number): void => {
        const resized = new Uint8Array(size);
        resized.set(expected.subarray(0, size));
        expected = resized;
      };
      for (let step = 0; step < RANDOM_STEPS; step++) {
        const kind = next();
        if (kind < 0.5) {
          const at = below(next() < 0.5 ? RANDOM_BYTES / 8 : RANDOM_BYTES);
          const part = bytes(1 + below(next() < 0.8 ? 5000 : 100_000), step);
          opened.write(at, part);
          if (at + part.length > expected.length) resize(at + part.length);
          expected.set(part, at);
        } else if (kind < 0.6) {
          resize(below(RANDOM_BYTES));
          opened.truncate(expected.length);
        } else if (kind < 0.7) {
          opened.flush();
        } else if (expected.length > 0) {
          const at = below(expected.length);
          holds(opened, at, expected.subarray(at, at + 1 + below(20_000)), `step ${step}`);
        }
        equal(opened.size(), expected.length, `size at step ${step}`);
      }
      holds(opened, 0, expected, 'at the end');
    }),
  ];
}
