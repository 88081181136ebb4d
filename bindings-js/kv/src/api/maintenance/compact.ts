// Maintenance of an open database. Few pages call it, so it is a file of its own in the package.
import type { Encryption, MaintenanceOptions } from '../../types/index.ts';
import { abortable, ignore } from '../../base/async.ts';
import type { Connection } from '../../wire/connection.ts';
import { LazyOp, Op } from '../../wire/opcodes.ts';
import { bodyOf } from '../../wire/protocol.ts';
import { toSecret, withSecret } from '../encryption.ts';
import { MAINTENANCE } from '../arguments.ts';
import { check } from './backup-verify.ts';

export { buildIndexes } from '../index-build.ts';
export { layout } from './layout.ts';

/** Changes the key of an encrypted database; see `Database.changeKey`. */
export async function changeKey(connection: Connection, encryption: Encryption): Promise<void> {
  const secret = await toSecret(encryption);
  await connection.requestLoading(
    (writer) =>
      writer
        .u8(Op.lazy)
        .u8(0)
        .bytes(bodyOf(LazyOp.changeKey, (body) => body.bytes(secret))),
    ignore,
  );
  connection.rekey((opening) => withSecret(opening, secret));
}

/** Slices of 1 MiB moved per message. */
const COMPACT_SLICES = 4;
const REENCRYPT_SLICES = 4;
/** Milliseconds after which to look again for values that are being written in parts. */
const STAGED_PAUSE = 100;

/** Encrypts everything anew; see `Database.reencrypt`. */
export async function reencrypt(connection: Connection, options: MaintenanceOptions | undefined): Promise<void> {
  const { signal, onProgress } = check('reencrypt', options, MAINTENANCE);
  for (let begins = true; ; begins = false) {
    const { isDone, isWaiting, moved, used } = await abortable(
      connection.requestLoading(
        (writer) =>
          writer
            .u8(Op.lazy)
            .u8(0)
            .bytes(bodyOf(LazyOp.reencrypt, (body) => body.uv(REENCRYPT_SLICES).u8(begins ? 1 : 0))),
        (reader) => ({
          isDone: reader.u8() !== 0,
          isWaiting: reader.u8() !== 0,
          moved: reader.uv(),
          used: reader.uv(),
        }),
      ),
      signal,
    );
    if (isDone) return;
    onProgress(Math.min(moved, used), used);
    if (isWaiting) await abortable(new Promise((resolve) => setTimeout(resolve, STAGED_PAUSE)), signal);
  }
}

export async function compact(
  connection: Connection,
  options: MaintenanceOptions | undefined,
): Promise<{ readonly before: number; readonly after: number }> {
  const { signal, onProgress } = check('compact', options, MAINTENANCE);
  let first: number | undefined;
  for (let slices = COMPACT_SLICES; ; ) {
    const { isAll, before, after, used } = await abortable(
      connection.requestLoading(
        (writer) => writer.u8(Op.compact).uv(slices).uv(0),
        (reader) => {
          const reply = { isAll: reader.u8() !== 0, before: reader.uv(), after: reader.uv(), used: reader.uv() };
          // Unused: whether room was lacking, and the bytes moved.
          reader.u8();
          reader.uv();
          return reply;
        },
      ),
      signal,
    );
    first ??= before;
    onProgress(Math.max(first - after, 0), Math.max(isAll ? first - after : first - used, 0));
    if (isAll) return { before: first, after };
    // Each message starts over, so one that is too short to shrink the file needs more slices.
    if (after >= before) slices *= 2;
  }
}
