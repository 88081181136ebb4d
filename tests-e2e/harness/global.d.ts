interface Window {
  mangrove: typeof import('mangrove-kv');
  /** Runs the tests of storages over one of the browser's. */
  checkStorage(kind: 'opfs' | 'indexeddb', place: 'page' | 'worker'): Promise<import('./conformance.ts').Outcome>;
}
