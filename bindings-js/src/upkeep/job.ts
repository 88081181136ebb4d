// The module for upkeep at work: synchronous, over files that are open.
import { instantiate } from '../../build/wasm-upkeep/glue.js';
import type { Instance } from '../../build/wasm-upkeep/glue.js';
import { fromPlain } from '../plain-error.ts';
import type { PlainError } from '../plain-error.ts';
import { KvError } from '../errors.ts';
import { crypto } from '../platform.ts';
import type { CustomStorage, StorageFile } from '../types.ts';
import type { FullRecoverReport, RestoreReport } from './report.ts';

export type Phase = 'restoring' | 'scanning' | 'copying' | 'verifying';

/** Is told how far the work is: records, while scanning bytes. `false` ends it. */
export type Watch = (phase: Phase, done: number, total: number) => boolean;

function run<R>(module: WebAssembly.Module, watch: Watch, work: (instance: Instance, random: Uint8Array, watcher: { progress: Watch }) => unknown): R | undefined {
  const instance = instantiate(module);
  let report;
  try {
    report = work(instance, crypto.getRandomValues(new Uint8Array(16)), { progress: watch }) as string | undefined;
  } catch (error) {
    if (typeof error === 'object' && error !== null && 'code' in error && 'retryable' in error) throw fromPlain(error as PlainError);
    const reason = instance.panic_message() ?? (error instanceof Error ? error.message : String(error));
    throw new KvError('KV_IO', `the engine stopped (${reason})`, { cause: error });
  }
  return report === undefined ? undefined : JSON.parse(report) as R;
}

/** Makes a database in an empty storage; undefined if it was told to end. */
export function runRestore(module: WebAssembly.Module, backup: StorageFile, target: CustomStorage, watch: Watch): RestoreReport | undefined {
  return run(module, watch, (instance, random, watcher) => instance.restore(backup, target, random, watcher));
}

/** Makes a database of what can be read in `source`; undefined if it was told to end. */
export function runRecover(module: WebAssembly.Module, source: CustomStorage, target: CustomStorage, watch: Watch): FullRecoverReport | undefined {
  return run(module, watch, (instance, random, watcher) => instance.recover(source, target, random, watcher));
}
