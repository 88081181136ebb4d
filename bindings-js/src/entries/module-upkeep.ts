// Location of the upkeep module; see `entries/module.ts`.
export const ownModule = (): URL => new URL('./mangrove_upkeep_bg.wasm', import.meta.url);
