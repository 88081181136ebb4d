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
  loadTanstack(): Promise<typeof import('./tanstack.ts')>;
  loadMigration(): Promise<typeof import('./migrate.ts')>;
  loadYjs(): Promise<typeof import('./yjs.ts')>;
  loadTwins(): Promise<typeof import('./twins.ts')>;
  /** Uses the twin of localForage in a worker; resolves to the name of its driver. */
  runTwinsWorker(): Promise<string>;
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
  /** Mounts a page with a window whose source and range are signals; the test then drives it through `framework`. */
  mountWindow(name: import('./frameworks/windows.ts').FrameworkOfSignals): Promise<void>;
  /** Takes over what a server has rendered, in a page whose database has `entries`; then another entry is stored. */
  hydratePage(options: {
    readonly name: import('./frameworks/main.ts').Framework | 'react-suspense';
    readonly html: string;
    /** What the server's page runs before. */
    readonly scripts: readonly string[];
    readonly initial: readonly (readonly [string, number])[] | undefined;
    readonly entries: readonly (readonly [string, number])[];
    readonly isMirrored: boolean;
  }): Promise<{
    /** What the page has shown before it was taken over. */
    readonly served: string;
    /** What the component was first drawn with. */
    readonly first: string;
    /** What the page has shown after each step. */
    readonly seen: readonly string[];
    /** What it shows at the end. */
    readonly shown: string;
    /** Whether an element of the server is still there. */
    readonly isSame: boolean;
  }>;
  /** Mounts a React page whose lists wait for their rows; the test then drives it through `suspense`. */
  mountSuspense(options: {
    readonly isStrict: boolean;
    readonly isForeign: boolean;
    readonly begin: 'read' | 'mirrored' | 'preloaded';
    readonly lists: number;
    /** Whether what is drawn in place of what failed takes long to be drawn. */
    readonly isSlow?: boolean;
  }): Promise<void>;
  suspense: {
    state(): { readonly seen: readonly string[]; readonly drawings: readonly string[]; readonly reads: number };
    show(range: { readonly prefix: string; readonly keepPrevious?: boolean }, isTransition: boolean): void;
    set(key: string): Promise<void>;
    unmount(): void;
    close(): Promise<void>;
  };
  /** Mounts a page on live queries in a framework; the test then drives it through `framework`. */
  mountFramework(name: import('./frameworks/main.ts').Framework): Promise<void>;
  /**
   * What a page in a framework shows of a range, from its first drawing on, and what its component was drawn with, also
   * for another range then.
   */
  drawFirst(
    name: import('./frameworks/main.ts').Framework,
    how: 'mirrored' | 'preloaded' | 'read',
  ): Promise<{
    readonly drawn: readonly string[];
    readonly rendered: readonly string[];
    readonly turned: readonly string[];
  }>;
  /** What a page shows of two mirrors, which transactions write to. */
  drawTwo(name: import('./frameworks/main.ts').Framework, rounds: number): Promise<readonly string[]>;
  framework: {
    show(range: object): void;
    set(key: string, tag: string): Promise<void>;
    counts(): { reads: number; watches: number };
    /** Only of a window. */
    move?(offset: number, limit: number): void;
    unmount(): void;
    close(): Promise<void>;
  };
}

declare module '*.solid.jsx' {
  const component: (properties: never) => import('solid-js').JSX.Element;
  export default component;
}
