// Where the module is that restores and recovers; see `entries/module.ts`.
export const ownModule = (): URL => new URL('./mangrove_upkeep_bg.wasm', import.meta.url);
