// What went wrong, in the terms of RemoteLog.
import { errors } from '@nats-io/nats-core';
import { KvError } from 'mangrove-kv';
import { logConflict, logRefused, logUnavailable } from '@mangrove-kv/replication';

/** The error that a JetStream API reports in its reply. */
export interface ApiFailure {
  readonly code: number;
  readonly err_code: number;
  readonly description: string;
}

export const WRONG_LAST_SEQUENCE = 10071;
/** Another append with a condition is under way. */
export const WRONG_LAST_SEQUENCE_UNKNOWN = 10164;
const STREAM_NOT_FOUND = 10059;
/** The stream is full: a purge makes room. */
const STORE_FAILED = 10077;
/** Too few servers know each other so far. */
const NO_PEERS = 10005;

export function apiError({ code, err_code: number, description }: ApiFailure, what: string): KvError {
  const message = `${what}: the server reports "${description}" (${number})`;
  if (number === WRONG_LAST_SEQUENCE || number === WRONG_LAST_SEQUENCE_UNKNOWN) return logConflict(message);
  if (number === STREAM_NOT_FOUND)
    return logRefused(`${message}; create the streams with createStreams of @mangrove-kv/replication-nats/admin`);
  if (number === STORE_FAILED || number === NO_PEERS || code >= 500) return logUnavailable(message);
  return logRefused(message);
}

/** Whether an error, or what caused it, is of a class. */
export function hasCause(error: unknown, type: abstract new (...args: never[]) => unknown): boolean {
  let at = error;
  for (let depth = 0; at instanceof Error && depth < 8; depth++) {
    if (at instanceof type) return true;
    at = at.cause;
  }
  return false;
}

export function toLogError(error: unknown, what: string): KvError {
  if (error instanceof KvError) return error;
  const is = (type: abstract new (...args: never[]) => unknown): boolean => hasCause(error, type);
  const text = error instanceof Error ? error.message : String(error);
  if (is(errors.PermissionViolationError))
    return logRefused(
      `${what}: the server permits this device no such access (${text}); check the permissions of its credentials`,
      error,
    );
  if (is(errors.AuthorizationError) || is(errors.UserAuthenticationExpiredError)) {
    return logRefused(
      `${what}: the server refuses the credentials (${text}); get new ones and start replication again`,
      error,
    );
  }
  if (is(errors.NoRespondersError))
    return logUnavailable(
      `${what}: nobody answers; the stream has no leader now, or the servers have no streams that this account may use`,
      error,
    );
  return logUnavailable(`${what}: ${text}`, error);
}
