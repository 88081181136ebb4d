// Failures, each with a stable code that is the same in every language, and the exit codes.
import { KvError } from 'mangrove-kv';
import type { KvErrorCode } from 'mangrove-kv';

export const PROGRAM = 'mangrove-kv';
/** For wrong usage, and all failures except damage. */
export const EXIT_FAILURE = 1;
export const EXIT_DAMAGE = 2;

/** The reader of the output has gone, which is no failure: `mangrove-kv scan … | head` ends like that. */
export class BrokenPipe extends Error {}

/** Output that has begun cannot begin again. */
export class StaleOutput extends KvError {
  constructor() {
    super(
      'KV_STALE',
      'a writer overwrote what was being read, so the output is incomplete; run it again, or when the writer has closed the database',
    );
  }
}

export const invalid = (message: string): KvError => new KvError('KV_INVALID_ARGUMENT', message);

/** The code of an error, if it has one of ours. Not `instanceof`: there may be two copies of the class. */
export function codeOf(error: unknown): KvErrorCode | undefined {
  const { code } = (error ?? {}) as { readonly code?: unknown };
  return typeof code === 'string' && code.startsWith('KV_') ? (code as KvErrorCode) : undefined;
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** The same failure with another message. */
export function told(error: unknown, message: (old: string) => string): KvError {
  return new KvError(codeOf(error) ?? 'KV_IO', message(messageOf(error)), { cause: error });
}

/** Adds the part of the input that a failure is in. */
export function within<T>(place: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw codeOf(error) === undefined ? error : told(error, (message) => `${place}: ${message}`);
  }
}

/** Runs a call of `node:fs`. */
export function attempt<T>(action: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new KvError(
      code === 'ENOSPC' || code === 'EDQUOT' ? 'KV_QUOTA_EXCEEDED' : 'KV_IO',
      `${action}: ${messageOf(error)}`,
      { cause: error },
    );
  }
}

export function exitCodeOf(error: unknown): number {
  if (error instanceof BrokenPipe) return 0;
  return codeOf(error) === 'KV_CORRUPT' ? EXIT_DAMAGE : EXIT_FAILURE;
}

/** The line that reports a failure. */
export function lineOf(error: unknown): string {
  const message =
    error instanceof RangeError && /call stack/i.test(error.message)
      ? "nested deeper than this runtime's stack allows"
      : messageOf(error);
  const code = codeOf(error) ?? (message === messageOf(error) ? 'KV_IO' : 'KV_INVALID_ARGUMENT');
  return `mangrove: ${code}: ${message.replaceAll(/[\n\r]+/g, ' ')}`;
}
