// Checks writes for which there is no room. `setRoom` makes the storage run out of space.
import { bytes, difference, readAt } from './bytes.ts';
import type { Check, Context } from './context.ts';

const ROOM_BYTES = 100_000;
const CODES: readonly unknown[] = ['KV_QUOTA_EXCEEDED', 'ENOSPC', 'EDQUOT'];

function saysFull(error: unknown): boolean {
  const { code, name } = (error ?? {}) as { code?: unknown; name?: unknown };
  return CODES.includes(code) || name === 'QuotaExceededError';
}

export function checkFull(context: Context): Check[] {
  const { setRoom } = context.options;
  if (setRoom === undefined) return [];
  const { assert, check, equal, open, thrownBy } = context;
  return [
    check('a write without enough room reports it and destroys nothing', (subject) => {
      const file = subject.file();
      const before = bytes(50_000, 31);
      file.write(0, before);
      file.flush();
      setRoom(subject.storage, ROOM_BYTES);
      const error = thrownBy(() => file.write(50_000, bytes(20 * ROOM_BYTES, 32)), 'the write');
      setRoom(subject.storage, Infinity);
      assert(saysFull(error), `the code has to be one of ${CODES.join(', ')}: ${String(error)}`);
      const size = file.size();
      assert(size >= before.length, `the size is still known: ${size}`);
      assert(readAt(file, 0, size).length === size, 'all of it can be read');
      assert(difference(readAt(file, 0, before.length), before) === undefined, 'earlier content is unchanged');
      file.truncate(before.length);
      file.write(before.length, before);
      equal(file.size(), 2 * before.length, 'size after a write with enough room');
    }),

    check('a database that ran out of space continues once there is some', async (subject) => {
      const db = await open(subject.storage, {});
      await db.set('kept', 1);
      setRoom(subject.storage, ROOM_BYTES);
      let failure: unknown;
      await db.set('large', bytes(30 * ROOM_BYTES, 33)).catch((error: unknown) => {
        failure = error;
      });
      setRoom(subject.storage, Infinity);
      equal((failure as { code?: unknown } | undefined)?.code, 'KV_QUOTA_EXCEEDED', 'code of the failed write');
      equal(await db.has('large'), false, 'the failed write is there');
      await db.set('more', 2);
      await db.close();
      await subject.reopen();
      const again = await open(subject.storage, {});
      equal(await again.count(), 2, 'entries');
      equal((await again.verify()).ok, true, 'verified');
      await again.close();
    }),
  ];
}
