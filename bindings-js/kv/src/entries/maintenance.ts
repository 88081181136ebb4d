// Restore and recover in browsers. The entry loads this module only when it is needed.
import { createBrowserLoader } from '../engine/browser-wasm.ts';
import { ownModule } from '../platform/module-maintenance.ts';
import { recoverIn, restoreIn } from '../maintenance/page.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/maintenance.ts';

const load = createBrowserLoader(ownModule);

export function restore(name: string | URL, backup: BackupSource, options: RestoreOptions): Promise<void> {
  return restoreIn(load, name, backup, options);
}

export function recover(name: string | URL, into: string | URL, options: RecoverOptions): Promise<RecoverReport> {
  return recoverIn(load, name, into, options);
}
