// Location of the maintenance module. Bundlers recognize this form. For the inlined entry of pages the
// build replaces this file.
export const ownModule = (): URL => new URL('./mangrove_maintenance_bg.wasm', import.meta.url);
