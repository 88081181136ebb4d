// `restore --at`: makes a new database from an archive.
import * as fs from 'node:fs';
import { dirname, resolve } from 'node:path';
import process from 'node:process';
import { KvError, destroy, open } from 'mangrove-kv';
import { Progress, note, print } from '../output.ts';
import { flushDirectory } from '../store.ts';
import type { RestoreArguments } from './arguments.ts';
import { loadS3 } from './drivers.ts';
import { restoreArchive } from './replication.ts';
import type { ArchiveRestoreReport } from './replication.ts';
import { timeOf, toShown } from './shown.ts';

function checkVacant(target: string): void {
  if (fs.lstatSync(target, { throwIfNoEntry: false }) !== undefined)
    throw new KvError('KV_EXISTS', `${target} exists already; name another directory`);
}

export async function restore(args: RestoreArguments): Promise<void> {
  const { target, seal, encryption, database, bucket, point } = args;
  const path = resolve(target);
  checkVacant(path);
  const { s3Archive, s3Snapshots } = await loadS3();
  const plan = await s3Archive({ ...bucket, database }).restore(point);
  const temporary = `${path}.restoring-${Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString('hex')}`;
  const stop = new AbortController();
  const onSignal = (signal: string): void =>
    stop.abort(new KvError('KV_CLOSED', `ended by ${signal}; nothing is left`));
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
  const progress = new Progress(args.isProgressWanted);
  try {
    const db = await open(temporary, { durability: 'relaxed', ...(encryption && { encryption }) });
    let report: ArchiveRestoreReport;
    let pagesChecked: number;
    try {
      report = await restoreArchive(db, {
        plan,
        seal,
        snapshots: s3Snapshots(bucket),
        collections: args.collections,
        skipDamaged: args.skipDamaged,
        signal: stop.signal,
        onProgress: ({ records, position, serverTime }) =>
          progress.show(() => `${records} records, position ${position}, ${timeOf(serverTime)}`),
      });
      const verified = await db.verify({
        signal: stop.signal,
        onProgress: (done, total) => progress.show(() => `verifying ${done} of ${total}`),
      });
      if (!verified.ok)
        throw new KvError('KV_CORRUPT', `the new database is damaged: ${verified.problems[0]?.message}`);
      ({ pagesChecked } = verified);
      await db.flush();
    } finally {
      progress.end();
      await db.close();
    }
    checkVacant(path);
    fs.renameSync(temporary, path);
    flushDirectory(dirname(path));
    tell(args, report, pagesChecked);
  } catch (error) {
    // Of this run alone: its name is random.
    await destroy(temporary).catch(() => undefined);
    throw error;
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}

function tell({ database, point }: RestoreArguments, report: ArchiveRestoreReport, pagesChecked: number): void {
  const { position, serverTime, records, snapshot, collections, unlisted, skipped, hasMore } = report;
  if (unlisted.length > 0)
    note(
      `not restored, as --collection does not name them: ${unlisted.map((name) => JSON.stringify(name)).join(', ')}`,
    );
  for (const { code, message } of skipped) note(`passed over: ${code}: ${message}`);
  if (hasMore === false && 'time' in point) {
    note(
      `the archive ends at position ${position}: if the log has later records of the time before --at, they are missing here; run "archive" and restore again`,
    );
  }
  print(
    JSON.stringify({
      database,
      position,
      time: serverTime === 0 ? null : timeOf(serverTime),
      records,
      snapshot: toShown(snapshot),
      collections,
      unlisted,
      skipped: skipped.map(({ code, message }) => ({ code, message })),
      hasMore: hasMore ?? null,
      pagesChecked,
    }),
  );
}
