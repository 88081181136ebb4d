// An error in the form that crosses threads and the boundary to WebAssembly.
import { KvError } from './errors.ts';
import type { KvErrorCode } from './errors.ts';

export interface PlainError {
  readonly code: KvErrorCode;
  readonly message: string;
  readonly retryable: boolean;
}

export function toPlain(error: unknown): PlainError {
  if (error instanceof KvError) return { code: error.code, message: error.message, retryable: error.retryable };
  return { code: 'KV_IO', message: error instanceof Error ? error.message : String(error), retryable: false };
}

export function fromPlain({ code, message, retryable }: PlainError): KvError {
  return new KvError(code, message, { retryable });
}
