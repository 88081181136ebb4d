// Restore and recover in Node, Deno and Bun, with the module as a part of the script. The entry loads this module only when it is needed.
import { ownModule } from '../platform/module-maintenance-packed.ts';
import { createModuleLoader } from '../engine/node-wasm.ts';
import { recoverWith, restoreWith } from '../maintenance/node.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/maintenance.ts';

const { load } = createModuleLoader(ownModule);

export function restore(name: string | URL, backup: BackupSource, options: RestoreOptions): Promise<void> {
  return restoreWith(load, name, backup, options);
}

export function recover(name: string | URL, into: string | URL, options: RecoverOptions): Promise<RecoverReport> {
  return recoverWith(load, name, into, options);
}
