// Locations of the core of the engine's module and of its lazy part, which is loaded when it is needed.
// Bundlers recognize this form. For the inlined entry of pages the build replaces this file.
export const ownModule = (): URL => new URL('./mangrove_core_bg.wasm', import.meta.url);
export const ownLazy: (() => URL) | undefined = () => new URL('./mangrove_lazy_bg.wasm', import.meta.url);
