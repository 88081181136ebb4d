// What handles that share a directory use of the machine that they run on. A simulation has one of its
// own.
import type { Release } from '../storage/os-lock.ts';
import type { Port } from './port.ts';

/** What a handle says first on a connection. */
export interface Introduction {
  readonly protocol: number;
  readonly client: string;
  readonly pid: number;
  readonly title: string;
}

/** Who leads, and where it listens. */
export interface Address {
  readonly pid: number;
  /** Unix time in milliseconds. */
  readonly since: number;
  readonly protocol: number;
  /** Undefined if it cannot listen. */
  readonly socket?: string | undefined;
  /** Secret that a process shows to prove that it can read the address. New for each leader. */
  readonly token: string;
  /** Why it cannot listen. */
  readonly reason?: string | undefined;
}

/** A hub as handles of its thread see it, also those of another copy of the package. */
export interface LocalHub {
  readonly protocol: number;
  /** `undefined` if it cannot serve the handle. */
  join(introduction: Introduction): Port | undefined;
}

/**
 * Takes a connection that has introduced itself, with the token, as a member. Returns why not, if it
 * cannot. What the port receives before that was the introduction.
 */
export type Accept = (port: Port, introduction: Introduction) => string | undefined;

export interface Machine {
  readonly pid: number;
  readonly title: string;
  /** Path of the directory, for errors. */
  readonly directory: string;
  /** Monotonic time in milliseconds. */
  now(): number;
  /** Unix time in milliseconds. */
  time(): number;
  /** Calls `run` later; keeps no process alive. Returns a function that cancels. */
  after(ms: number, run: () => void): () => void;
  /** Calls `run` when what has arrived by now is handled. */
  nextTurn(run: () => void): void;
  /**
   * Takes the directory's lock, which ends with the process; `undefined` if somebody has it. Throws if it
   * cannot be asked for.
   */
  tryLock(): Release | undefined;
  /** Describes who has the lock. One that is silent gives no sign of life, and nothing more is known. */
  holder(): { readonly text: string; readonly isSilent: boolean };
  /** The hub of this thread. */
  local(): LocalHub | undefined;
  /** Makes a hub that of this thread; returns a function that ends that. */
  setLocal(hub: LocalHub): () => void;
  /** What the last leader published, which may have ended. */
  address(): Address | undefined;
  /** Rejects if nobody listens there. */
  connect(address: Address, introduction: Introduction): Promise<Port>;
  /** Listens, and publishes the address; returns a function that ends both. Called with the lock. */
  listen(accept: Accept): Promise<() => void>;
  /** Whether the process of a client may still run. One of which nothing is known may. */
  mayLive(client: string): boolean;
}
