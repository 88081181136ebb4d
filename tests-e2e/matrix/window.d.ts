/** Globals that bare/bare.js sets. */
interface Window {
  kv: typeof import('mangrove-kv');
  kvInline: typeof import('mangrove-kv/inline');
}
