// What travels between a page and the worker for upkeep.
import type { PlainError } from '../plain-error.ts';
import type { Phase } from './job.ts';
import type { FullRecoverReport, RestoreReport } from './report.ts';

export type UpkeepJob =
  | { readonly kind: 'restore'; readonly name: string; readonly overwrite: boolean; readonly force: boolean; /** Missing: it comes in pieces. */ readonly backup: Blob | undefined }
  | { readonly kind: 'recover'; readonly name: string; readonly into: string };

/** The first message to the worker. */
export interface UpkeepRequest {
  readonly module: WebAssembly.Module;
  readonly storage: 'opfs' | 'indexeddb';
  readonly job: UpkeepJob;
}

/** From the page when it was asked for more: a piece of the backup, or its end. */
export type UpkeepPiece = Uint8Array | 'end';

/** From the worker. After `pull` it waits for a piece. */
export type UpkeepMessage =
  | { readonly type: 'pull' }
  | { readonly type: 'progress'; readonly phase: Phase; readonly done: number; readonly total: number }
  | { readonly type: 'done'; readonly report: RestoreReport | FullRecoverReport }
  | { readonly type: 'failed'; readonly error: PlainError };
