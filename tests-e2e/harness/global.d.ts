interface Window {
  mangrove: typeof import('mangrove-kv');
  /** Uses a database synchronously in a worker. */
  runSync(): Promise<unknown>;
  /** Runs the tests of storages over one of the browser's. */
  checkStorage(kind: 'opfs' | 'indexeddb', place: 'page' | 'worker'): Promise<import('./conformance.ts').Outcome>;
  /** Runs the suite of abstract-level over databases in files, or of objects in the page's own thread. */
  runLevelSuite(storage: 'opfs' | 'here'): ReturnType<typeof import('./level/main.ts').run>;
}
