// Schema versions: what `open` does when the data was written for an older version of the program.
import type { Collection, CollectionOptions } from './collection.ts';
import type { Database } from './database.ts';
import type { Transaction } from './transaction.ts';

/** How far an upgrade is. */
export interface UpgradeProgress {
  /** Version of the data before the upgrade. */
  readonly from: number;
  /** Version that it gets. */
  readonly to: number;
  /** Work done, in units that the upgrade chooses; of `migrations`, thousandths of a step. */
  readonly done: number;
  /** All work in the same units; 0 if it is not known. */
  readonly total: number;
  /** The step that runs, of `migrations`; known only where the upgrade runs. */
  readonly step: string | undefined;
  /** Whether the upgrade runs here; otherwise another tab's `open` runs it. */
  readonly isHere: boolean;
}

/** What an upgrade function receives besides its transaction. */
export interface UpgradeContext {
  /** The version asked for. */
  readonly to: number;
  /** The signal of `open`. */
  readonly signal: AbortSignal | undefined;
  /** Reports how far the upgrade is, here and to tabs that wait for it. */
  readonly progress: (done: number, total?: number) => void;
  /** A handle for use with the transaction, as of `Database.collection`. */
  collection<K, V, I = V>(name: string, options?: CollectionOptions<K, V, I>): Collection<K, V, I>;
}

/**
 * Changes the data from version `from` to `context.to`, in one transaction: all of it takes effect
 * together with the new version, or nothing. It runs again after a conflict and after an
 * interruption. `from` is 0 for a new database and for one without a version.
 *
 * The transaction keeps what it writes in memory; `migrations` changes large collections in slices.
 */
export type UpgradeFunction<K, V, I = V> = (tx: Transaction<K, V, I>, from: number, context: UpgradeContext) => unknown;

/** What a step of a migration can do. Steps made by `mangrove-kv/migrations` use it. */
export interface StepRun {
  /** The database, in which nobody else writes. */
  readonly db: Pick<Database, 'collection'>;
  /** What the last slice of an interrupted run returned; `undefined` at the beginning. */
  readonly cursor: unknown;
  readonly signal: AbortSignal | undefined;
  /** Reports how far the step is. */
  readonly progress: (done: number, total: number) => void;
  /**
   * Runs `work` in a transaction of its own. What it returns is stored in the same commit, as the
   * cursor with which an interrupted step resumes; with `STEP_DONE` the step is complete.
   */
  slice(work: (tx: Transaction) => Promise<unknown>): Promise<unknown>;
}

/** A step of a migration. */
export interface MigrationStep {
  /** What it does, for `UpgradeProgress`. */
  readonly name: string;
  /** Does it, or the rest of it. It may run again from any of its slices. */
  readonly apply: (run: StepRun) => Promise<unknown>;
}

/** Steps by the version to which they lead; made by `migrations` of `mangrove-kv/migrations`. */
export interface Migrations {
  readonly steps: ReadonlyMap<number, readonly MigrationStep[]>;
}

/** Returned by the last slice of a step. */
export const STEP_DONE: unique symbol = Symbol.for('mangrove-kv.STEP_DONE');
