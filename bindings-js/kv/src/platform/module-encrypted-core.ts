// Locations of the core and the lazy part of the engine's module with encryption; see
// `module-core.ts`.
export const ownModule = (): URL => new URL('./mangrove_encrypted_core_bg.wasm', import.meta.url);
export const ownLazy: (() => URL) | undefined = () => new URL('./mangrove_encrypted_lazy_bg.wasm', import.meta.url);
