// Errors of sync. They are told by their code: drivers and sync have classes of their own.
import { KvError } from '../base/errors.ts';
import type { PlainError } from '../base/plain-error.ts';

export function toKvError(error: unknown): KvError {
  if ((error as Partial<KvError> | undefined)?.name === 'KvError') return error as KvError;
  return new KvError('KV_IO', `sync failed: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}

export const isSnapshotLost = (error: unknown): boolean => (error as Partial<KvError> | undefined)?.code === 'KV_SNAPSHOT_LOST';

/** Whether a transaction has to run again: what it read was changed, or is lost with the tab that kept it. */
export const isSuperseded = (error: unknown): boolean => isSnapshotLost(error) || (error as Partial<KvError>).code === 'KV_CONFLICT';

/** In the form that crosses tabs. */
export function toPlain(error: unknown): PlainError {
  const { code, message, retryable } = toKvError(error);
  return { code, message, retryable };
}
