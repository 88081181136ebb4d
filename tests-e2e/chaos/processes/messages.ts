// Lines of JSON between a process of the chaos run and the one that disturbs it.
import type { Floors, Found, Report } from '../messages.ts';

/** What a process does when asked. */
export interface Work {
  open(path: string, load: string, seed: number, lanes: number): Promise<void>;
  /** Writes and reads until `stop`. */
  start(round: number): void;
  /** Resolves when no operation is in flight. */
  stop(): Promise<void>;
  /** Closes the database and opens it again, under load. */
  reopen(): Promise<void>;
  /** Opens a second handle, which the load uses from then on, and closes the first. */
  reload(): Promise<void>;
  read(round: number): Promise<Found>;
  clear(round: number): Promise<void>;
  shut(): Promise<void>;
  /** Lets nothing else run for a while. */
  starve(ms: number): void;
  /** Ends the process, without closing the database. */
  exit(): void;
}

export type ToProcess =
  | { readonly call: number; readonly method: keyof Work; readonly args: readonly unknown[] }
  | { readonly answer: number; readonly floors: Floors };

export type FromProcess =
  | { readonly returned: number; readonly value?: unknown; readonly error?: string }
  | { readonly report: number; readonly what: Report };
