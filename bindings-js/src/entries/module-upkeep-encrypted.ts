// Location of the upkeep module with encryption; see `entries/module.ts`.
export const ownModule = (): URL => new URL('./mangrove_upkeep_encrypted_bg.wasm', import.meta.url);
