// What a database traces for its operators. Events are plain data: they can be cloned and written as
// JSON. None of them contains a key or a value.

/** An error in a trace. */
export interface TracedError {
  readonly code: string;
  readonly message: string;
}

/** How an `open` ended. */
export type OpenTrace =
  | {
      readonly source: 'open';
      readonly event: 'opened';
      readonly persistence: 'opfs' | 'indexeddb' | 'fs' | 'memory' | 'custom';
    }
  /** The wanted storage, or a worker for it, is not available. `storage` is used instead, in the same thread if there are no workers. */
  | {
      readonly source: 'open';
      readonly event: 'fallback';
      readonly storage: 'indexeddb' | 'memory';
      readonly error: TracedError;
    }
  | { readonly source: 'open'; readonly event: 'failed'; readonly error: TracedError };

/** What this tab does among those that share the database. Each leader has a `term` of its own; later terms are larger. */
export type TabsTrace =
  /** This tab leads: its worker has the files. */
  | { readonly source: 'tabs'; readonly event: 'leads'; readonly term: number }
  /** Another tab leads, and takes this tab's requests. */
  | { readonly source: 'tabs'; readonly event: 'follows'; readonly term: number }
  /** A leader, this tab or another one, has answered this tab for the first time. */
  | { readonly source: 'tabs'; readonly event: 'served'; readonly term: number }
  /**
   * The leader, this tab or another one, leads no more. "gone": it ended without a word. "stolen":
   * another tab took over because it did not hear this one. "crashed": its engine stopped.
   */
  | {
      readonly source: 'tabs';
      readonly event: 'leader-lost';
      readonly term: number;
      readonly reason: 'resigned' | 'gone' | 'stolen' | 'crashed';
    }
  /** The leader is silent, so this tab takes over. */
  | { readonly source: 'tabs'; readonly event: 'steals'; readonly term: number }
  /**
   * Somebody waits. "leader": this tab, for one that leads. "version": tabs with another version of
   * the package. "maintenance": a restore. "open": an `open` in this thread.
   */
  | {
      readonly source: 'tabs';
      readonly event: 'blocked';
      readonly reason: 'leader' | 'version' | 'maintenance' | 'open';
    };

/** The connection of a handle to its engine. */
export type ConnectionTrace =
  | { readonly source: 'connection'; readonly event: 'connected' | 'closed' }
  /** The engine is gone: all calls fail with this error. */
  | { readonly source: 'connection'; readonly event: 'lost'; readonly error: TracedError }
  /** So many messages, each of one or more calls, got no answer. The connection goes on. */
  | { readonly source: 'connection'; readonly event: 'refused'; readonly count: number; readonly error: TracedError }
  /** Work outside of a call failed. The connection goes on. */
  | { readonly source: 'connection'; readonly event: 'background-error'; readonly error: TracedError }
  /** A handle, such as a snapshot, was closed after `idleTimeout`. */
  | { readonly source: 'connection'; readonly event: 'idle-closed'; readonly handle: string };

/** A merge of committed changes into the trees while nothing is committed. Only those that take more than one slice. */
export type MergeTrace =
  | { readonly source: 'merge'; readonly event: 'started'; readonly version: number }
  | {
      readonly source: 'merge';
      readonly event: 'ended';
      readonly version: number;
      readonly slices: number;
      readonly milliseconds: number;
    };

/** Replication, by `@mangrove-kv/replication`. */
export type ReplicationTrace =
  | {
      readonly source: 'replication';
      readonly event: 'status';
      readonly status: string;
      readonly pending: number;
      readonly position: number;
      readonly error?: TracedError | undefined;
    }
  | { readonly source: 'replication'; readonly event: 'conflict'; readonly collection: string }
  | { readonly source: 'replication'; readonly event: 'repair'; readonly records: number }
  | {
      readonly source: 'replication';
      readonly event: 'diverged';
      readonly collection: string;
      readonly entries: number;
    }
  | { readonly source: 'replication'; readonly event: 'error'; readonly error: TracedError };

export type TraceDetail = OpenTrace | TabsTrace | ConnectionTrace | MergeTrace | ReplicationTrace;

/** An event for operators: see the option `trace` of `open`. */
export type TraceEvent = TraceDetail & {
  /** Unix time in milliseconds. */
  readonly time: number;
  /** The name that was given to `open`. */
  readonly database: string;
};

/** Records an event. Where nothing is traced it is `undefined`, and the event is not even made. */
export type Trace = (detail: TraceDetail & { readonly time?: number }) => void;

/** By this name in all copies of the package. */
export const TRACER: unique symbol = Symbol.for('mangrove-kv.tracer');

/** A database with its tracer, if it has one. */
export interface Traced {
  readonly [TRACER]: { readonly record: Trace; attach<E>(error: E): E } | undefined;
}

/** The tracer of a database, for packages on top of this one. */
export function tracerOf(db: object): Traced[typeof TRACER] {
  return (db as Partial<Traced>)[TRACER];
}
