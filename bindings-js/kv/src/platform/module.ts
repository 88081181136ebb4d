// Location of the engine's whole module. Bundlers recognize this form.
export const ownModule = (): URL => new URL('./mangrove_bg.wasm', import.meta.url);
