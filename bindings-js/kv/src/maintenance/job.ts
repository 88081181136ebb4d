// Runs the maintenance module: synchronously, over open files.
import { crypto } from '../base/platform.ts';
import { instantiate } from '../../build/wasm-maintenance/glue.js';
import type { Instance } from '../../build/wasm-maintenance/glue.js';
import { fromPlain } from '../base/plain-error.ts';
import type { PlainError } from '../base/plain-error.ts';
import { KvError } from '../base/errors.ts';
import { withSecret } from '../api/encryption.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';
import type { FullRecoverReport, RestoreReport, Watch } from './report.ts';

/** What makes the new database. */
export interface Maker {
  readonly module: WebAssembly.Module;
  /** The secret of an encrypted database; empty for a plain one. */
  readonly secret: Uint8Array;
}

/** Runs work in an instance of its own; `undefined` if `watch` ended it. */
export function runMaintenance<R>(
  { module, secret }: Maker,
  watch: Watch,
  work: (instance: Instance, opening: Uint8Array, watcher: { progress: Watch }) => unknown,
): R | undefined {
  const instance = instantiate(module);
  let report;
  try {
    report = work(instance, withSecret(crypto.getRandomValues(new Uint8Array(16)), secret), { progress: watch }) as
      | string
      | undefined;
  } catch (error) {
    if (typeof error === 'object' && error !== null && 'code' in error && 'retryable' in error)
      throw fromPlain(error as PlainError);
    const reason = instance.panic_message() ?? (error instanceof Error ? error.message : String(error));
    throw new KvError('KV_IO', `the engine stopped (${reason})`, { cause: error });
  }
  return report === undefined ? undefined : (JSON.parse(report) as R);
}

/** Builds a database in an empty storage; `undefined` if `watch` ended it. */
export function runRestore(
  maker: Maker,
  backup: StorageFile,
  target: CustomStorage,
  watch: Watch,
): RestoreReport | undefined {
  return runMaintenance(maker, watch, (instance, opening, watcher) =>
    instance.restore(backup, target, opening, watcher),
  );
}

/** Builds a database from everything readable in `source`; `undefined` if `watch` ended it. */
export function runRecover(
  maker: Maker,
  source: CustomStorage,
  target: CustomStorage,
  watch: Watch,
): FullRecoverReport | undefined {
  return runMaintenance(maker, watch, (instance, opening, watcher) =>
    instance.recover(source, target, opening, watcher),
  );
}
