// As node-upkeep.ts, with the module as part of the script.
import { Buffer } from 'node:buffer';
import { gunzipSync } from 'node:zlib';
import packed from '../build/wasm-upkeep/inline.js';
import { createModuleLoader } from './node-wasm.ts';
import { recoverWith, restoreWith } from './upkeep/node.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from './types/upkeep.ts';

const { load } = createModuleLoader(() => gunzipSync(Buffer.from(packed, 'base64')));

export function restore(name: string | URL, backup: BackupSource, options: RestoreOptions): Promise<void> {
  return restoreWith(load, name, backup, options);
}

export function recover(name: string | URL, into: string | URL, options: RecoverOptions): Promise<RecoverReport> {
  return recoverWith(load, name, into, options);
}
