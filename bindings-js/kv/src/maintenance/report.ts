// Progress and results of the work: as the module reports them, and as `recover` returns them.
import type { RecoverReport } from '../types/maintenance.ts';
import type { VerifyProblem } from '../types/index.ts';

export type Phase = 'restoring' | 'scanning' | 'copying' | 'verifying';

/**
 * Receives the progress of the work, in records, or in bytes while scanning. Returning `false` ends
 * the work.
 */
export type Watch = (phase: Phase, done: number, total: number) => boolean;

export interface RestoreReport {
  readonly databaseId: string;
  readonly version: number;
  readonly collections: number;
  readonly entries: number;
  readonly bytes: number;
  readonly pagesChecked: number;
}

export interface FullRecoverReport {
  readonly completeness: 'exact' | 'reconstructed' | 'salvage';
  readonly log: {
    readonly state: 'absent' | 'missing' | 'intact' | 'damaged';
    readonly appliedRecords: number;
    readonly lostCommits: number;
  };
  readonly entries: number;
  readonly collections: readonly {
    readonly name: string;
    readonly id: number;
    readonly named: boolean;
    readonly count: number;
  }[];
  /** Keys are in base64. `collection: null` stands for the list of collections itself. */
  readonly damagedRanges: readonly {
    readonly collection: string | null;
    readonly lower: string;
    readonly upper: string | null;
    readonly expected: number | null;
    readonly recovered: number;
  }[];
  readonly damagedRangeCount: number;
  readonly lostRecords: readonly { readonly collection: string | null; readonly key: string }[];
  readonly lostRecordCount: number;
  readonly unreadablePages: number;
  readonly problems: readonly VerifyProblem[];
}

function quoted(collection: string | null): string {
  return collection === null ? 'the list of collections' : `the collection ${JSON.stringify(collection)}`;
}

export function toRecoverReport(report: FullRecoverReport): RecoverReport {
  let lost = report.lostRecordCount;
  const problems = report.problems.map(({ message }) => message);
  for (const { collection, expected, recovered } of report.damagedRanges) {
    if (expected !== null && collection !== null) lost += Math.max(expected - recovered, 0);
    const found = expected === null ? `${recovered} entries` : `${recovered} of ${expected} entries`;
    problems.push(
      `a part of ${quoted(collection)} was put together from single blocks: ${found}, perhaps as they were earlier`,
    );
  }
  if (report.damagedRangeCount > report.damagedRanges.length) {
    problems.push(
      `${report.damagedRangeCount - report.damagedRanges.length} more parts were put together from single blocks`,
    );
  }
  if (report.lostRecordCount > 0)
    problems.push(`the values of up to ${report.lostRecordCount} entries could not be read`);
  for (const { name, named } of report.collections) {
    if (!named) problems.push(`a collection has lost its name and codecs; it is now called ${JSON.stringify(name)}`);
  }
  const { state, lostCommits } = report.log;
  if (state === 'missing') problems.push('the log is missing, and with it the newest commits');
  if (state === 'damaged') problems.push(`the log is damaged: at least ${lostCommits} commits are missing`);
  if (report.completeness !== 'exact' && problems.length === 0) {
    problems.push('a superblock is damaged: newer commits may be missing');
  }
  return { entries: report.entries, lost, problems };
}

/** Of a backup of the commits after `base`. */
export interface IncrementalReport {
  readonly databaseId: string;
  readonly base: number;
  readonly version: number;
  readonly commits: number;
  readonly changes: number;
  readonly bytes: number;
}
