// Messages between a tab of the chaos run and the process that disturbs it.
import type { Durability } from 'mangrove-kv';

/** Kinds of writes. Each is one database operation with one acknowledgement. */
export type Kind = 'append' | 'update' | 'insert' | 'put' | 'remove' | 'restore';

/** Number of counters, which all tabs share. */
export const COUNTERS = 3;
/** Number of entries in one batch. */
export const PARTS = 4;

export type Report =
  /** An operation is about to be called. */
  | {
      readonly type: 'start';
      readonly load: string;
      readonly round: number;
      readonly n: number;
      readonly kind: Kind;
      readonly counter: number;
      readonly durability: Durability;
    }
  /** An operation ended: `value` is what the database returned, `ms` how long the call took. */
  | {
      readonly type: 'end';
      readonly load: string;
      readonly round: number;
      readonly n: number;
      readonly outcome: Outcome;
      readonly code: string;
      readonly value: number;
      readonly ms: number;
      readonly at: number;
    }
  /** A read, a watch or an event ended with this code. */
  | { readonly type: 'seen'; readonly what: string; readonly code: string }
  /** A worker halted within a commit. */
  | { readonly type: 'halted' }
  | { readonly type: 'wrong'; readonly load: string; readonly what: string };

/** `undone`: the error says that nothing was done. `maybe`: it may or may not have been done. */
export type Outcome = 'done' | 'undone' | 'maybe';

/** Lower bounds for all later reads, by counter. */
export type Floors = readonly number[];

export interface Found {
  readonly entries: readonly (readonly [readonly unknown[], unknown])[];
  readonly ok: boolean;
  readonly problems: readonly string[];
}

/** Message to the worker. */
export type FaultOrder =
  | { readonly fault: 'trap' }
  /** Halts for `ms`; the default exceeds the time a browser lets an ended worker run on. */
  | { readonly fault: 'halt'; readonly at: 'write' | 'flush'; readonly isAfter: boolean; readonly ms?: number };
/** Message from the worker. */
export interface FaultReport {
  readonly fault: 'halted';
}

/** Methods of the page, as `window.chaos`. */
export interface Chaos {
  open(options: {
    readonly name: string;
    readonly load: string;
    readonly seed: number;
    readonly lanes: number;
  }): Promise<void>;
  /** Writes and reads until `stop`. */
  start(round: number): void;
  /** Resolves when no operation is in flight. */
  stop(): Promise<void>;
  /** Closes the database and opens it again, under load. */
  reopen(): Promise<void>;
  read(round: number): Promise<Found>;
  clear(round: number): Promise<void>;
  shut(): Promise<void>;
  /** For measurements: writes `count` entries. */
  fill(count: number): Promise<void>;
  /** For measurements: writes sequentially for `ms`; returns when each write was acknowledged. */
  writeFor(ms: number): Promise<number[]>;
  /** Name of the worker's client in the protocol. */
  client(): string;
  /** Names of clients, one of which leads. */
  leaders(): Promise<string[]>;
  setHidden(isHidden: boolean): void;
  /** Whether the database was opened in this page load. */
  isOpen(): boolean;
  order(order: FaultOrder): void;
  /** Terminates the worker, at once or when it halts. */
  terminate(whenHalted: boolean): void;
}
