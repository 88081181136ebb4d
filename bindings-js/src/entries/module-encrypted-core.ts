// Locations of the core and the rest of the engine's module with encryption; see
// `entries/module-core.ts`.
export const ownModule = (): URL => new URL('./mangrove_encrypted_core_bg.wasm', import.meta.url);
export const ownRest: (() => URL) | undefined = () => new URL('./mangrove_encrypted_rest_bg.wasm', import.meta.url);
