// Location of the engine's module with encryption; see `entries/module.ts`.
export const ownModule = (): URL => new URL('./mangrove_encrypted_bg.wasm', import.meta.url);
