// What encrypted databases need. The browser entry loads this module only if `open` gets a key.
import { abortable } from '../base/async.ts';
import { checkModule, toSecret, withKey } from '../api/encryption.ts';
import type { CheckedOptions } from '../api/options.ts';
import { createBrowserLoader } from '../engine/browser-wasm.ts';
import type { Encryption } from '../types/index.ts';
import type { Modules } from './browser.ts';
import { ownModule, ownRest } from './module-encrypted-core.ts';

const modules: Modules = { load: createBrowserLoader(ownModule), ownRest };

/** Returns the modules that know encryption, and the options with the secret of the database. */
export async function encrypt(plain: Modules, options: CheckedOptions, encryption: Encryption): Promise<[Modules, CheckedOptions]> {
  const secret = await abortable(toSecret(encryption), options.signal);
  const given: Modules = { ...plain, load: async (source) => checkModule(await plain.load(source)) };
  return [options.wasm === undefined ? modules : given, withKey(options, secret)];
}
