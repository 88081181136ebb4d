interface Window {
  mangrove: typeof import('mangrove-kv');
  /** Uses a database synchronously in a worker. */
  runSync(): Promise<unknown>;
  /** Runs the storage conformance tests on one of the browser's storages. */
  checkStorage(kind: 'opfs' | 'indexeddb', place: 'page' | 'worker'): Promise<import('./conformance.ts').Outcome>;
  /**
   * Runs abstract-level's test suite on databases in files, or on storage objects in the page's own
   * thread.
   */
  runLevelSuite(storage: 'opfs' | 'here'): ReturnType<typeof import('./level/main.ts').run>;
  loadInspector(): Promise<typeof import('@mangrove-kv/inspector')>;
  loadLive(): Promise<typeof import('mangrove-kv/live')>;
  loadMigrations(): Promise<typeof import('mangrove-kv/migrations')>;
  loadPasskey(): Promise<typeof import('mangrove-kv/passkey')>;
  loadBlob(): Promise<typeof import('mangrove-kv/blob')>;
  /** Starts workers with fault injection; their orders are in `chaos/messages.ts`. */
  loadFaults(): Promise<typeof import('../chaos/start-worker.ts')>;
  loadRxdb(): Promise<typeof import('./rxdb.ts')>;
  loadMigration(): Promise<typeof import('./migrate.ts')>;
  loadYjs(): Promise<typeof import('./yjs.ts')>;
  /** Prepares a server of NATS. */
  createStreams(servers: readonly string[]): Promise<void>;
  /** Opens the database of a device and keeps it in step over NATS; the test then drives it through `replicated`. */
  startSync(device: string, servers: readonly string[], isInWorker?: boolean): Promise<void>;
  replicated: import('./replication.ts').Synced;
  /** Mounts a React page that shows a live query; the test then drives it through `react`. */
  mountReact(isStrict: boolean): Promise<void>;
  react: {
    set(key: string, value: number): Promise<void>;
    transition(round: number): void;
    counts(): { renders: number; torn: number; watches: number; text: string | null };
    fail(): Promise<void>;
    unmount(): void;
    close(): Promise<void>;
  };
  /** Mounts a page on live queries in a framework; the test then drives it through `framework`. */
  mountFramework(name: 'react' | 'vue' | 'svelte'): Promise<void>;
  framework: {
    show(range: object): void;
    set(key: string, tag: string): Promise<void>;
    counts(): { reads: number; watches: number };
    unmount(): void;
    close(): Promise<void>;
  };
}
