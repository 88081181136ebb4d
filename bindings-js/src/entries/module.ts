// Location of the engine's module. Bundlers recognize this form. For the inlined entries the build
// replaces this file.
export const ownModule = (): URL => new URL('./mangrove_bg.wasm', import.meta.url);
