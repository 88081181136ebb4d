// Where the engine's module is. Bundlers recognize this form. The build replaces this file in the inlined entries.
export const ownModule = (): URL => new URL('./mangrove_bg.wasm', import.meta.url);
