// Restore and recover in Node, Deno and Bun. The entry loads this module only when it is needed.
import { ownModule } from './module-upkeep.ts';
import { ownModule as ownEncryptedModule } from './module-upkeep-encrypted.ts';
import { createModuleLoader } from '../engine/node-wasm.ts';
import { recoverWith, restoreWith } from '../upkeep/node.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/upkeep.ts';

const loaders = { plain: createModuleLoader(ownModule).load, encrypted: createModuleLoader(ownEncryptedModule).load };

export function restore(name: string | URL, backup: BackupSource, options: RestoreOptions): Promise<void> {
  return restoreWith(loaders, name, backup, options);
}

export function recover(name: string | URL, into: string | URL, options: RecoverOptions): Promise<RecoverReport> {
  return recoverWith(loaders, name, into, options);
}
