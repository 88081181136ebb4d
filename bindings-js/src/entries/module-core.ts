// Locations of the core of the engine's module and of its rest, which is loaded when it is needed.
// Bundlers recognize this form. For the inlined entries the build replaces this file.
export const ownModule = (): URL => new URL('./mangrove_core_bg.wasm', import.meta.url);
export const ownRest: (() => URL) | undefined = () => new URL('./mangrove_rest_bg.wasm', import.meta.url);
