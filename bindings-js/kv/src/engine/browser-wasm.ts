// Loads the WebAssembly module in browsers.
import { createLoader, fetchModule } from './wasm.ts';
import type { LoadModule, ModuleHost } from './wasm.ts';

export function createBrowserLoader(ownModule: ModuleHost['ownModule']): LoadModule {
  const base = (): string | undefined => globalThis.document?.baseURI ?? globalThis.location?.href;
  return createLoader({ ownModule, base, fromUrl: fetchModule });
}
