// Loaded by the browser's entry when something is to be restored or recovered.
import { createBrowserLoader } from './browser.ts';
import { recoverIn, restoreIn } from './upkeep/page.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from './types/upkeep.ts';

// Bundlers know this form.
const loadModule = createBrowserLoader(() => new URL('./mangrove_upkeep_bg.wasm', import.meta.url));

export function restore(name: string | URL, backup: BackupSource, options: RestoreOptions): Promise<void> {
  return restoreIn(loadModule, name, backup, options);
}

export function recover(name: string | URL, into: string | URL, options: RecoverOptions): Promise<RecoverReport> {
  return recoverIn(loadModule, name, into, options);
}
