import type { Meter } from '../meter.ts';
import type { Peer } from '../peers/peer.ts';

export interface Sizes {
  readonly records: number;
  readonly batch: number;
  readonly puts: number;
  readonly gets: number;
  readonly scan: number;
  readonly pages: number;
  readonly mixed: number;
  /** Rows with indexes. */
  readonly indexed: number;
  readonly updates: number;
  readonly queries: number;
  /** Fewer: IndexedDB visits every entry that it counts. */
  readonly counts: number;
  /** Times that RxDB's harness is run through. */
  readonly passes: number;
  /** Milliseconds that each tab writes for. */
  readonly writing: number;
}

/**
 * `scale` 1 is a million records. From a tenth of that on, all counts but the records are full. Rows with
 * indexes are a hundred thousand then, unless their number is given.
 */
export function sizes(scale: number, indexRows?: number): Sizes {
  const part = Math.min(1, scale * 10);
  const count = (whole: number): number => Math.max(10, Math.round(whole * part));
  const records = Math.max(1000, Math.round(1_000_000 * scale));
  return {
    records,
    batch: count(25_000),
    puts: count(1000),
    gets: count(10_000),
    scan: Math.min(records, count(100_000)),
    pages: count(1000),
    mixed: count(2000),
    indexed: indexRows ?? Math.min(records, 100_000),
    updates: count(500),
    queries: count(2000),
    counts: count(200),
    passes: Math.max(1, Math.round(10 * part)),
    writing: Math.max(500, Math.round(3000 * part)),
  };
}

export interface StageContext {
  readonly peer: Peer;
  /** Of the loaded store; others that a stage needs are called after it. */
  readonly name: string;
  readonly sizes: Sizes;
  readonly meter: Meter;
  /** Milliseconds that the store's code took to load. */
  readonly loading: number;
  /** MiB that the browser takes, where somebody can tell. */
  readonly memory: (() => Promise<number>) | undefined;
}

export type Stage = (context: StageContext) => Promise<void>;

export function expect(isTrue: boolean, what: string): void {
  if (!isTrue) throw new Error(`wrong result: ${what}`);
}
