// As upkeep.ts, with the module as part of the script.
import packed from '../build/wasm-upkeep/inline.js';
import { createBrowserLoader } from './browser.ts';
import { unpackModule } from './unpack-wasm.ts';
import { recoverIn, restoreIn } from './upkeep/page.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from './types/upkeep.ts';

const loadModule = createBrowserLoader(() => unpackModule(packed));

export function restore(name: string | URL, backup: BackupSource, options: RestoreOptions): Promise<void> {
  return restoreIn(loadModule, name, backup, options);
}

export function recover(name: string | URL, into: string | URL, options: RecoverOptions): Promise<RecoverReport> {
  return recoverIn(loadModule, name, into, options);
}
