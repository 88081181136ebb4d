interface Window {
  mangrove: typeof import('mangrove-kv');
}
