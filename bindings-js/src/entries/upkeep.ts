// Restore and recover in browsers. The entry loads this module only when it is needed.
import { createBrowserLoader } from '../engine/browser-wasm.ts';
import { ownModule } from './module-upkeep.ts';
import { ownModule as ownEncryptedModule } from './module-upkeep-encrypted.ts';
import { recoverIn, restoreIn } from '../upkeep/page.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/upkeep.ts';

const loaders = { plain: createBrowserLoader(ownModule), encrypted: createBrowserLoader(ownEncryptedModule) };

export function restore(name: string | URL, backup: BackupSource, options: RestoreOptions): Promise<void> {
  return restoreIn(loaders, name, backup, options);
}

export function recover(name: string | URL, into: string | URL, options: RecoverOptions): Promise<RecoverReport> {
  return recoverIn(loaders, name, into, options);
}
