/** A device of one of the peers. */
export interface Device {
  /** Resolves when the entry is committed locally. */
  put(key: string, value: object): Promise<void>;
  /** Stores many entries, and resolves when the server has them. */
  putAll(entries: readonly (readonly [string, object])[]): Promise<void>;
  count(): Promise<number>;
  /** Calls `seen` with the key of each change from now on. */
  watch(seen: (key: string) => void): void;
  /** Resolves when the server has everything. */
  settle(): Promise<void>;
  close(): Promise<void>;
}

/** A server and its devices. */
export interface Peer {
  /** Bytes that devices and server have exchanged, both ways. */
  bytes(): number;
  device(name: string, options: { readonly syncs: boolean }): Promise<Device>;
  stop(): Promise<void>;
}
