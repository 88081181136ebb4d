// Errors of replication. They are told by their code: drivers and replication have classes of their own.
import { KvError } from 'mangrove-kv';
import type { PlainError } from 'mangrove-kv/internal';

export function toKvError(error: unknown): KvError {
  if ((error as Partial<KvError> | undefined)?.name === 'KvError') return error as KvError;
  return new KvError('KV_IO', `replication failed: ${error instanceof Error ? error.message : String(error)}`, {
    cause: error,
  });
}

/** In the form that crosses tabs. */
export function toPlain(error: unknown): PlainError {
  const { code, message, retryable } = toKvError(error);
  return { code, message, retryable };
}
