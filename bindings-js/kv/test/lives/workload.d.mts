import type { Database } from 'mangrove-kv';

export type Commit =
  | {
      readonly kind: 'set';
      readonly collection: string;
      readonly entries: readonly (readonly [number, Uint8Array])[];
      readonly ticks?: number;
      readonly isRelaxed?: boolean;
    }
  | { readonly kind: 'delete'; readonly collection: string; readonly keys: readonly number[] }
  | {
      readonly kind: 'clear';
      readonly collection: string;
      readonly range?: { readonly gte: number; readonly lt: number };
    }
  | { readonly kind: 'drop'; readonly collection: string }
  | { readonly kind: 'purge' };
export type State = Map<string, { readonly value: Uint8Array; readonly expires: number }>;
export const OPTIONS: {
  readonly advanced: { readonly nodeBytes: number; readonly unitBytes: number };
  readonly cacheBytes: number;
};
export function commitOf(seed: number, number: number): Commit;
export function make(db: Database<number, Uint8Array>, commit: Commit, tickMs: number): Promise<unknown>;
export function apply(state: State, commit: Commit, tick: number): void;
export function read(db: Database<number, Uint8Array>): Promise<Map<string, Uint8Array>>;
export function differenceAt(found: ReadonlyMap<string, Uint8Array>, state: State, tick: number): string | undefined;
