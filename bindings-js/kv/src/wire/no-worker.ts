// The worker could not be started, which says nothing about the storages that it supports.
import { KvError } from '../base/errors.ts';

export class NoWorkerError extends KvError {
  constructor(reason: string, options?: ErrorOptions) {
    super('KV_UNSUPPORTED', `the worker could not be started (no-worker)${reason === '' ? '' : `: ${reason}`}`, options);
  }
}
