// What goes wrong on the command line, and the exit code that it gives.
import { KvError } from '../errors.ts';
import type { KvErrorCode } from '../errors.ts';

/** Wrong usage and all failures but damage. */
export const EXIT_FAILURE = 1;
export const EXIT_DAMAGE = 2;

/** The command line is wrong; the message explains it. */
export class UsageError extends Error {}

/** Nobody reads the output any more, which is no failure: `mangrove-kv scan … | head` ends like that. */
export class NobodyReads extends Error {}

export function invalid(message: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', message);
}

/** An error with the part of the input it was in. */
export function within(place: string, error: unknown): unknown {
  return error instanceof KvError ? new KvError(error.code, `${place}: ${error.message}`, { cause: error }) : error;
}

export function inside<T>(place: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw within(place, error);
  }
}

export function codeOf(error: unknown): KvErrorCode | undefined {
  return error instanceof KvError ? error.code : undefined;
}

export function exitCodeOf(error: unknown): number {
  if (error instanceof NobodyReads) return 0;
  return codeOf(error) === 'KV_CORRUPT' ? EXIT_DAMAGE : EXIT_FAILURE;
}
