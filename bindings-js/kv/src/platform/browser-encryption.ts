// What encrypted databases need. The browser entry loads this module only if `open` gets a key.
import { abortable } from '../base/async.ts';
import { checkModule, toSecret, withKey } from '../api/encryption.ts';
import type { CheckedOptions } from '../api/options.ts';
import { createBrowserLoader } from '../engine/browser-wasm.ts';
import type { Encryption } from '../types/index.ts';
import type { Modules } from './browser.ts';
import { ownLazy, ownModule } from './module-encrypted-core.ts';

const modules: Modules = { load: createBrowserLoader(ownModule), ownLazy };
/** For a module that the caller gives, which is whole: a lazy part would not pass the check. */
const checking: Modules = { load: async (source) => checkModule(await modules.load(source)), ownLazy };

/** Returns the modules that know encryption, and the options with the secret of the database. */
export async function encrypt(options: CheckedOptions, encryption: Encryption): Promise<[Modules, CheckedOptions]> {
  return [
    options.wasm === undefined ? modules : checking,
    withKey(options, await abortable(toSecret(encryption), options.signal)),
  ];
}
