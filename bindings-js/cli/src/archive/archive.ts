// `archive`: copies what a log has got into its archive.
import { note, print } from '../output.ts';
import type { ArchiveArguments } from './arguments.ts';
import { loadS3, openLog } from './drivers.ts';
import { archiveLog } from './replication.ts';
import { toShown } from './shown.ts';

export async function archive(args: ArchiveArguments): Promise<void> {
  const { database, bucket, seal, snapshot: wantsSnapshot } = args;
  const { s3Archive, s3Snapshots } = await loadS3();
  const log = await openLog(args);
  try {
    const { from, position, snapshot, gap } = await archiveLog({
      log,
      archive: s3Archive({ ...bucket, database }),
      snapshots: s3Snapshots(bucket),
      seal,
      snapshot: wantsSnapshot,
    });
    if (gap !== undefined && gap.after > 0) {
      note(
        `records after position ${gap.after}, up to ${gap.upTo}, were removed from the log before they were archived: times in between cannot be restored`,
      );
    }
    if (wantsSnapshot && snapshot === undefined) note('the log has no snapshot yet: replication.compact writes one');
    print(JSON.stringify({ database, from, position, snapshot: toShown(snapshot), gap: gap ?? null }));
  } finally {
    await log.close();
  }
}
