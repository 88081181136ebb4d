// The verbs for maintenance: verify, recover, compact, change-key, reencrypt and unlock.
import * as fs from 'node:fs';
import { join, resolve } from 'node:path';
import { KvError, open } from 'mangrove-kv';
import type { Encryption } from 'mangrove-kv';
import { codeOf, messageOf } from '../failure.ts';
import { compactTo, recoverReported } from 'mangrove-kv/internal/tool';
import { Progress, note, print } from '../output.ts';
import { check, isFile, read, write } from '../store.ts';
import type { StoreOptions } from '../store.ts';

/** All of the data exists, but the file is not as it was written. */
const OLDER =
  'the newest checkpoint is damaged; the one before it and the log give the same state, and the next checkpoint replaces it';

export async function verify(path: string, options: StoreOptions): Promise<void> {
  let report;
  try {
    report = await read(path, options, async (db) => {
      const { recoveredFromOlder } = await db.stats();
      const { pagesChecked, entries, problems } = await db.verify();
      const older = recoveredFromOlder ? [{ code: 'KV_CORRUPT', message: OLDER }] : [];
      return { pagesChecked, entries, problems: [...older, ...problems] };
    });
  } catch (error) {
    // Damage that prevents opening is a finding as well.
    if (codeOf(error) === 'KV_CORRUPT') {
      print(
        JSON.stringify({
          ok: false,
          pagesChecked: 0,
          entries: 0,
          problems: [{ code: 'KV_CORRUPT', message: messageOf(error) }],
        }),
      );
    }
    throw error;
  }
  const { pagesChecked, entries, problems } = report;
  const [first] = problems;
  print(JSON.stringify({ ok: first === undefined, pagesChecked, entries, problems }));
  if (first !== undefined)
    throw new KvError('KV_CORRUPT', `${problems.length} problems found, the first: ${first.message}`);
}

export async function recover(source: string, target: string, { encryption }: StoreOptions): Promise<void> {
  check(source);
  if (isFile(target)) throw new KvError('KV_EXISTS', `${target} already exists`);
  // Each new phase is shown, each tenth of the scan, and each million records after it.
  let shown = '';
  const report = await recoverReported(source, target, encryption, (phase, done, total) => {
    const step = phase === 'scanning' ? Math.floor((done * 10) / (total || 1)) : Math.floor(done / 1_000_000);
    if (shown === `${phase} ${step}`) return true;
    shown = `${phase} ${step}`;
    note(
      phase === 'scanning'
        ? `scanning, ${done} of ${total} bytes`
        : phase === 'copying'
          ? `copying, ${done} records`
          : 'verifying the new database',
    );
    return true;
  });
  print(JSON.stringify(report));
  const { completeness } = report;
  if (completeness !== 'exact')
    throw new KvError(
      'KV_CORRUPT',
      `something was lost, or may have been (completeness: ${completeness}); standard output says what`,
    );
}

export interface UpkeepOptions extends StoreOptions {
  readonly progress?: boolean;
}

/**
 * What may stay free. It is less than where a program compacts in passing; without any, the next
 * checkpoint would have to grow the file.
 */
const toleratedBytes = (fileSize: number): number => Math.min(Math.max(Math.floor(fileSize / 64), 64 << 10), 1 << 20);

export async function compact(path: string, options: UpkeepOptions): Promise<void> {
  const progress = new Progress(options.progress);
  try {
    const report = await write(path, options, async (db) =>
      compactTo(db, toleratedBytes((await db.stats()).fileSize), (moved, size, used) => {
        progress.show(() => `${moved} bytes moved, the file has ${size} bytes, ${used} of them in use`);
      }),
    );
    progress.end();
    print(JSON.stringify(report));
  } finally {
    progress.end();
  }
}

/** A database that opens without a key is not encrypted. */
function checkEncrypted(path: string, { encryption }: StoreOptions): void {
  if (encryption === undefined) throw new KvError('KV_NOT_ENCRYPTED', `the database ${path} is not encrypted`);
}

export async function changeKey(path: string, next: Encryption, options: StoreOptions): Promise<void> {
  await write(path, options, async (db) => {
    checkEncrypted(path, options);
    await db.changeKey(next);
  });
}

export async function reencrypt(path: string, options: UpkeepOptions): Promise<void> {
  const progress = new Progress(options.progress);
  try {
    await write(path, options, async (db) => {
      checkEncrypted(path, options);
      await db.reencrypt({
        onProgress: (moved, used) => progress.show(() => `${moved} of about ${used} bytes encrypted anew`),
      });
    });
  } finally {
    progress.end();
  }
}

/** Takes the lock of a process that is gone, and gives it back. Only the file `lock` alone may need it. */
export async function unlock(path: string, { encryption }: StoreOptions): Promise<void> {
  if (!fs.existsSync(join(path, 'data'))) throw new KvError('KV_NOT_FOUND', `there is no database in ${resolve(path)}`);
  try {
    await (await open(path, { create: false, takeOver: true, lockTimeout: 0, encryption })).close();
  } catch (error) {
    // Opening comes after the lock, which was given back: what is wrong with the files matters no more.
    if (
      !['KV_WRONG_KEY', 'KV_NOT_ENCRYPTED', 'KV_CORRUPT', 'KV_VERSION_UNSUPPORTED', 'KV_NOT_FOUND'].includes(
        codeOf(error) ?? '',
      )
    )
      throw error;
  }
}
