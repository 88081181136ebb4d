// Loaded by the entry for Node, Deno and Bun when something is to be restored or recovered.
import { createModuleLoader } from './node-wasm.ts';
import { recoverWith, restoreWith } from './upkeep/node.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from './types/upkeep.ts';

const { load } = createModuleLoader(() => new URL('./mangrove_upkeep_bg.wasm', import.meta.url));

export function restore(name: string | URL, backup: BackupSource, options: RestoreOptions): Promise<void> {
  return restoreWith(load, name, backup, options);
}

export function recover(name: string | URL, into: string | URL, options: RecoverOptions): Promise<RecoverReport> {
  return recoverWith(load, name, into, options);
}
