import type { TraceEvent } from './trace.ts';

/** Stable codes of {@link KvError}. */
export type KvErrorCode =
  | 'KV_CLOSED'
  | 'KV_CONFLICT'
  | 'KV_ROLLBACK'
  | 'KV_TIMEOUT'
  | 'KV_LOCKED'
  | 'KV_READ_ONLY'
  | 'KV_NOT_FOUND'
  | 'KV_EXISTS'
  | 'KV_INVALID_KEY'
  | 'KV_INVALID_VALUE'
  | 'KV_INVALID_ARGUMENT'
  | 'KV_KEY_TOO_LARGE'
  | 'KV_VALUE_TOO_LARGE'
  | 'KV_CODEC_MISMATCH'
  | 'KV_INDEX_MISMATCH'
  | 'KV_INDEX_INCOMPLETE'
  | 'KV_UNIQUE'
  | 'KV_CORRUPT'
  | 'KV_WRONG_KEY'
  | 'KV_NOT_ENCRYPTED'
  | 'KV_NOT_ALLOWED'
  | 'KV_VERSION_UNSUPPORTED'
  | 'KV_VERSION_CHANGED'
  | 'KV_VERSION_TOO_NEW'
  | 'KV_QUOTA_EXCEEDED'
  | 'KV_IO'
  | 'KV_SYNC_UNAVAILABLE'
  | 'KV_UNSUPPORTED'
  | 'KV_TRUNCATED_FEED'
  | 'KV_RANGE_TOO_LARGE'
  | 'KV_OUT_OF_RANGE'
  | 'KV_LOADING'
  | 'KV_STALE'
  | 'KV_SNAPSHOT_LOST'
  | 'KV_TOO_MANY_OPEN'
  | 'KV_EVICTED'
  | 'KV_LOG_CONFLICT'
  | 'KV_LOG_TRUNCATED'
  | 'KV_LOG_UNAVAILABLE'
  | 'KV_LOG_REFUSED'
  | 'KV_REPLICATION_GAP'
  | 'KV_REPLICATION_MODE'
  | 'KV_REPLICATION_FENCED'
  | 'KV_REPLICATION_DIVERGED';

/** Marks errors of all copies of this class: of each entry, of other versions of the package, of other realms. */
const IS_KV_ERROR: unique symbol = Symbol.for('mangrove-kv.KvError');

/**
 * Every error of this package and of those on top of it. The message names what failed and what to do.
 * `instanceof` holds across copies of the package, too.
 */
export class KvError extends Error {
  declare readonly name: 'KvError';
  /** What happened, for programs. */
  readonly code: KvErrorCode;
  /** Whether the same call can succeed later without a change to the program. */
  readonly retryable: boolean;
  /**
   * With the option `trace` of `open`: the newest events of the database when it reported this error,
   * for a bug report. Not enumerable.
   */
  declare readonly trace?: readonly TraceEvent[] | undefined;

  static {
    // Defined here so that the name survives a minifier's renaming of the class. A field would show
    // up as a property of every error.
    for (const owner of [this, this.prototype])
      Object.defineProperty(owner, 'name', { value: 'KvError', writable: true });
    Object.defineProperty(this.prototype, IS_KV_ERROR, { value: true });
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    // A class that extends this one has fewer instances.
    if (this !== KvError) return Function.prototype[Symbol.hasInstance].call(this, value);
    return typeof value === 'object' && value !== null && IS_KV_ERROR in value;
  }

  /** For custom codecs and storages. `message` should name what failed and what to do. */
  constructor(code: KvErrorCode, message: string, options: { cause?: unknown; retryable?: boolean } = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.retryable = options.retryable ?? false;
  }
}
