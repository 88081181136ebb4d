import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Link } from '../../bindings-js/replication/test-servers/support/proxy.ts';

/** Starts a script in `peers` that prints its port; returns what counts its bytes, and how to end it. */
export async function startServer(script: string, argument: string): Promise<{ readonly link: Link; kill(): boolean }> {
  const server = spawn(process.execPath, [new URL(`./peers/${script}`, import.meta.url).pathname, argument], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [line] = (await once(server.stdout, 'data')) as [Buffer];
  return { link: await Link.to(Number(line.toString())), kill: () => server.kill('SIGKILL') };
}

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
  device(name: string, options: { readonly replicates: boolean }): Promise<Device>;
  stop(): Promise<void>;
}
