/** What bare/bare.js gives. */
interface Window {
  kv: typeof import('mangrove-kv');
  kvInline: typeof import('mangrove-kv/inline');
}
