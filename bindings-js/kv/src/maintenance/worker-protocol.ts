// Messages between a page and the maintenance worker.
import type { PlainError } from '../base/plain-error.ts';
import type { Maker } from './job.ts';
import type { Phase } from './report.ts';
import type { FullRecoverReport, RestoreReport } from './report.ts';

export type MaintenanceJob =
  | {
      readonly kind: 'restore';
      readonly name: string;
      readonly overwrite: boolean;
      readonly force: boolean /** Undefined if the backup arrives in pieces. */;
      readonly backup: Blob | undefined;
    }
  | { readonly kind: 'recover'; readonly name: string; readonly into: string };

/** The first message to the worker. */
export interface MaintenanceRequest {
  readonly maker: Maker;
  readonly storage: 'opfs' | 'indexeddb';
  readonly bucket: string | undefined;
  readonly lockTimeoutMs: number;
  readonly job: MaintenanceJob;
}

/** From the page, in reply to `pull`: a piece of the backup, or its end. */
export type MaintenancePiece = Uint8Array | 'end';

/** From the worker, which waits for a piece after `pull`. */
export type MaintenanceMessage =
  | { readonly type: 'pull' }
  | { readonly type: 'progress'; readonly phase: Phase; readonly done: number; readonly total: number }
  | { readonly type: 'done'; readonly report: RestoreReport | FullRecoverReport }
  | { readonly type: 'failed'; readonly error: PlainError };
