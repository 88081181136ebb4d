interface Window {
  mangrove: typeof import('mangrove-kv');
  /** Uses a database synchronously in a worker. */
  runSync(): Promise<unknown>;
  /** Runs the tests of storages over one of the browser's. */
  checkStorage(kind: 'opfs' | 'indexeddb', place: 'page' | 'worker'): Promise<import('./conformance.ts').Outcome>;
  /** Runs the suite of abstract-level over databases in files, or of objects in the page's own thread. */
  runLevelSuite(storage: 'opfs' | 'here'): ReturnType<typeof import('./level/main.ts').run>;
  loadLive(): Promise<typeof import('mangrove-kv/live')>;
  /** Workers that take the orders of `chaos/messages.ts`. */
  loadFaults(): Promise<typeof import('../chaos/start-worker.ts')>;
  loadMigration(): Promise<typeof import('./migrate.ts')>;
  /** Shows a live query with React; `react` is what the test does with the page then. */
  mountReact(isStrict: boolean): Promise<void>;
  react: {
    set(key: string, value: number): Promise<void>;
    transition(round: number): void;
    counts(): { renders: number; torn: number; watches: number; text: string | null };
    fail(): Promise<void>;
    unmount(): void;
    close(): Promise<void>;
  };
}
