/**
 * Checks whether a storage keeps the promises of `CustomStorage` and `StorageFile`.
 *
 * @module @mangrove-kv/storage-tests
 */
import type { CustomStorage } from 'mangrove-kv';
import { checkFiles } from './check-files.ts';
import { checkStorage } from './check-storage.ts';
import { checkFull } from './check-full.ts';
import { checkDatabase } from './check-database.ts';
import { toContext } from './context.ts';
import type { Check, StorageTestOptions } from './context.ts';

export type { OpenDatabase, StorageTestOptions } from './context.ts';

async function runAll(checks: readonly Check[]): Promise<void> {
  const failures: Error[] = [];
  for (const { name, run } of checks) {
    try {
      await run();
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      failures.push(new Error(`${name}: ${reason}`, { cause: error }));
    }
  }
  if (failures.length > 0) {
    throw new AggregateError(failures, failures.map((failure) => failure.message).join('\n'));
  }
}

/**
 * Tests every promise of `CustomStorage` and `StorageFile` that can be observed, then a database on
 * the storage. That a flush outlasts a power cut cannot be observed.
 *
 * `makeStorage` returns a new, empty storage on each call. With `test`, each check becomes a test
 * of its own. Without it, all checks run.
 *
 * @throws AggregateError with every failed check, if `test` is missing.
 */
export async function testStorage(
  makeStorage: () => CustomStorage | Promise<CustomStorage>,
  options: StorageTestOptions = {},
): Promise<void> {
  const context = toContext(makeStorage, options);
  const checks = [...checkFiles(context), ...checkStorage(context), ...checkFull(context), ...checkDatabase(context)];
  const { test } = options;
  if (test === undefined) return runAll(checks);
  // All at once: frameworks collect tests before they run them.
  await Promise.all(checks.map(({ name, run }) => test(`storage: ${name}`, run)));
}
