// Backups and verification of an open database, and the options that all maintenance has.
import { ReadableStream } from '../../base/platform.ts';
import type { MaintenanceOptions, VerifyReport } from '../../types/index.ts';
import { abortable, checkFunction, checkSignal, ignore } from '../../base/async.ts';
import type { Names } from '../../base/names.ts';
import type { Connection } from '../../wire/connection.ts';
import { Handle } from '../../wire/handle.ts';
import { MAINTENANCE } from '../arguments.ts';
import { checkNames } from '../../base/names.ts';
import { Op } from '../../wire/opcodes.ts';

/** Bytes checked per message. */
const VERIFY_BYTES = 2 << 20;
const PIECE_BYTES = 256 << 10;

/** @internal */
export type Checked = {
  readonly signal: AbortSignal | undefined;
  readonly onProgress: (done: number, total: number) => void;
};

/** @internal */
export function check<T extends MaintenanceOptions>(call: string, options: T | undefined, names: Names<T>): Checked {
  checkNames(call, options, names);
  const { signal, onProgress = ignore } = options ?? {};
  checkFunction(onProgress);
  checkSignal(signal);
  return { signal, onProgress };
}

export async function verify(connection: Connection, options: MaintenanceOptions | undefined): Promise<VerifyReport> {
  const { signal, onProgress } = check('verify', options, MAINTENANCE);
  const id = connection.newId();
  try {
    for (;;) {
      const { done, total, report } = await abortable(
        connection.requestLoading(
          (writer) => writer.u8(Op.verify).uv(id).uv(VERIFY_BYTES),
          (reader) => {
            const isAll = reader.u8() !== 0;
            return {
              done: reader.uv(),
              total: reader.uv(),
              report: isAll ? (JSON.parse(reader.str()) as VerifyReport) : undefined,
            };
          },
        ),
        signal,
      );
      onProgress(done, total);
      if (report !== undefined) return report;
    }
  } catch (error) {
    if (connection.status === 'open') connection.post((writer) => writer.u8(Op.verifyClose).uv(id), ignore);
    throw error;
  }
}

/** The source of the stream, with what the signal calls. */
interface Source extends UnderlyingDefaultSource<Uint8Array<ArrayBuffer>> {
  abort?: () => void;
}

function abort(source: Source): void {
  source.abort?.();
}

export function backup(
  connection: Connection,
  options: MaintenanceOptions | undefined,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  let checked: Checked;
  try {
    checked = check('backup', options, MAINTENANCE);
  } catch (error) {
    return new ReadableStream({ start: (controller) => controller.error(error) });
  }
  const { signal, onProgress } = checked;
  const held = new Handle(connection, Op.backupClose, 'backup');
  const opened = connection.request((writer) => writer.u8(Op.backupOpen).uv(held.id), ignore);
  opened.catch(ignore);
  const release = (): void => held.close();
  const source: Source = {
    start(controller) {
      source.abort = () => {
        release();
        controller.error(signal?.reason);
      };
    },
    async pull(controller) {
      try {
        await abortable(opened, signal);
        const next = connection.requestLoading(
          (writer) => writer.u8(Op.backupNext).uv(held.id).uv(PIECE_BYTES),
          (reader) => {
            const [done, total] = [reader.uv(), reader.uv()];
            // The piece outlives the reply's buffer.
            return { done, total, piece: reader.bytes().slice() };
          },
        );
        const { done, total, piece } = await abortable(next, signal);
        onProgress(done, total);
        if (piece.length > 0) {
          controller.enqueue(piece);
          return;
        }
        release();
        controller.close();
      } catch (error) {
        release();
        throw error;
      }
    },
    cancel: release,
  };
  // Owned by the source: a browser may collect the stream's object while the stream is still read.
  held.own(source, signal, abort);
  return new ReadableStream(source, { highWaterMark: 0 });
}
