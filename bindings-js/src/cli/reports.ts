// `stat`, `verify` and `compact`.
import { verify as verifyDatabase } from '../client/upkeep.ts';
import { Op } from '../client/opcodes.ts';
import { KvError } from '../errors.ts';
import type { Stats, VerifyProblem } from '../types.ts';
import type { Parsed } from './arguments.ts';
import { codeOf } from './failure.ts';
import { Progress } from './progress.ts';
import { read, write } from './store.ts';
import { print } from './streams.ts';

/** All of the data is there, but the file is not what was written. */
const OLDER = 'the newest checkpoint is damaged; the one before it and the log give the same state, and the next checkpoint replaces it';
/** Moved between two looks at how far it is. */
const COMPACT_SLICES = 16;

export async function stat(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  const [figures, collections] = await read(path, async (store) => [await store.json<Stats>(Op.stats), await store.collections()] as const);
  const { version, durableVersion, entries, fileSize, freeSize, keptSize, unitSize, depth, maxKeySize } = figures;
  const { cacheHits, cacheMisses, cacheSize } = figures;
  const { dirtySize, openSnapshots, oldestSnapshot = null, checkpoints, logSize, logBytesWritten, logRecords, logFlushes } = figures;
  const { recoveredFromOlder, bytesRead, bytesWritten } = figures;
  print(JSON.stringify({
    version, durableVersion, collections, entries, fileSize, freeSize, keptSize, unitSize, depth, maxKeySize, cacheHits, cacheMisses, cacheSize,
    dirtySize, openSnapshots, oldestSnapshot, checkpoints, logFileSize: logSize, logBytesWritten, logRecords, logFlushes, recoveredFromOlder,
    bytesRead, bytesWritten,
  }));
}

export async function list(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  await read(path, async (store, output) => {
    for (const info of await store.collections()) output.line(JSON.stringify(info));
  });
}

export async function verify(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  let found;
  try {
    found = await read(path, async (store) => ({
      older: (await store.json<Stats>(Op.stats)).recoveredFromOlder, report: await verifyDatabase(store.connection, undefined),
    }));
  } catch (error) {
    // Damage that keeps it from being opened is a finding as well.
    if (codeOf(error) === 'KV_CORRUPT') {
      const { message } = error as Error;
      print(JSON.stringify({ ok: false, pagesChecked: 0, entries: 0, problems: [{ code: 'KV_CORRUPT', message }] }));
    }
    throw error;
  }
  const { older, report } = found;
  const problems: VerifyProblem[] = [...(older ? [{ code: 'KV_CORRUPT', message: OLDER } as const] : []), ...report.problems];
  print(JSON.stringify({ ok: problems.length === 0, pagesChecked: report.pagesChecked, entries: report.entries, problems }));
  const [first] = problems;
  if (first !== undefined) throw new KvError('KV_CORRUPT', `${problems.length} problems found, the first: ${first.message}`);
}

export async function compact(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  const progress = new Progress(parsed.flag('progress'));
  const report = await write(path, {}, async (store) => {
    const { fileSize } = await store.json<Stats>(Op.stats);
    // Asked for by somebody, it leaves less than a program that does it in passing; without any the next checkpoint would have to grow the file.
    const threshold = Math.min(Math.max(Math.floor(fileSize / 64), 64 << 10), 1 << 20);
    let [first, moved] = [undefined as number | undefined, 0];
    for (let slices = COMPACT_SLICES; ;) {
      const slice = await store.connection.request((writer) => writer.u8(Op.compact).uv(slices).uv(threshold), (reader) => ({
        isAll: reader.u8() !== 0, before: reader.uv(), after: reader.uv(), used: reader.uv(), noRoom: reader.u8() !== 0, moved: reader.uv(),
      }));
      first ??= slice.before;
      moved += slice.moved;
      progress.show(false, () => `${moved} bytes moved, the file has ${slice.after} bytes, ${slice.used} of them in use`);
      if (slice.isAll) return { end: slice.noRoom ? 'noRoom' : 'done', fileSizeBefore: first, fileSizeAfter: slice.after, movedSize: moved };
      // Each message begins at the first block that has to move: what it cannot finish takes a larger one.
      if (slice.after >= slice.before) slices *= 2;
    }
  });
  print(JSON.stringify(report));
}
