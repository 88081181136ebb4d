// What a tab of the chaos run and the process that disturbs it say to each other.

/** Each is one acknowledged operation of the database. */
export type Kind = 'append' | 'update' | 'insert' | 'put' | 'remove' | 'restore';

/** Counters that all tabs share. */
export const COUNTERS = 3;
/** Entries of one batch. */
export const PARTS = 4;

export type Report =
  /** It is about to be called. */
  | { readonly type: 'start'; readonly load: string; readonly round: number; readonly n: number; readonly kind: Kind; readonly counter: number }
  /** What became of it; `value` is what the database gave. `ms` says how long it took. */
  | {
    readonly type: 'end'; readonly load: string; readonly round: number; readonly n: number; readonly outcome: Outcome; readonly code: string;
    readonly value: number; readonly ms: number; readonly at: number;
  }
  /** A read, a watch or an event ended with this code. */
  | { readonly type: 'seen'; readonly what: string; readonly code: string }
  /** A worker halted within a commit. */
  | { readonly type: 'halted' }
  | { readonly type: 'wrong'; readonly load: string; readonly what: string };

/** `undone`: the error says that nothing was done. `maybe`: it says that it may be done or not. */
export type Outcome = 'done' | 'undone' | 'maybe';

/** What no later read may be under, by counter. */
export type Floors = readonly number[];

export interface Found {
  readonly entries: readonly (readonly [readonly unknown[], unknown])[];
  readonly ok: boolean;
  readonly problems: readonly string[];
}

/** To the worker. */
export type FaultOrder =
  | { readonly fault: 'trap' }
  /** For `ms`; by default longer than a browser lets a worker run that it ends. */
  | { readonly fault: 'halt'; readonly at: 'write' | 'flush'; readonly isAfter: boolean; readonly ms?: number };
/** From the worker. */
export interface FaultReport {
  readonly fault: 'halted';
}

/** The page's side, as `window.chaos`. */
export interface Chaos {
  open(options: { readonly name: string; readonly load: string; readonly seed: number; readonly lanes: number }): Promise<void>;
  /** Writes and reads until `stop`. */
  start(round: number): void;
  /** Resolves when nothing is under way. */
  stop(): Promise<void>;
  /** Closes the database and opens it again, under load. */
  reopen(): Promise<void>;
  read(round: number): Promise<Found>;
  clear(round: number): Promise<void>;
  shut(): Promise<void>;
  /** For measurements: entries that are there, and writes one after the other. Gives when each was acknowledged. */
  fill(count: number): Promise<void>;
  writeFor(ms: number): Promise<number[]>;
  /** Name of the worker's client. */
  client(): string;
  /** Names of clients of which one leads. */
  leaders(): Promise<string[]>;
  setHidden(isHidden: boolean): void;
  /** The database was opened in this very page. */
  isOpen(): boolean;
  order(order: FaultOrder): void;
  /** Ends the worker, at once or when it halts. */
  terminate(whenHalted: boolean): void;
}
