// What tabs ask the one that replicates for, and strict transactions made of it.
import type { KvError } from 'mangrove-kv';
import type { ReplicationOp } from './record.ts';
import type { Position } from './remote-log.ts';
import type { Replica } from './replica.ts';
import type { StrictHost } from './strict.ts';
import { randomId } from './tables.ts';
import type { Tables } from './tables.ts';

/** What a tab asks the one that replicates for. */
export interface Verbs {
  settle(): void;
  compact(): { readonly position: Position } | undefined;
  isDisturbed(version: number, drained: number): boolean;
  offer(id: string, flags: number, ops: readonly ReplicationOp[], expect: number): boolean;
  outcome(id: string): boolean;
  forget(id: string): void;
}

export type Verb = keyof Verbs;
type Args<V extends Verb> = Parameters<Verbs[V]>;
type Result<V extends Verb> = ReturnType<Verbs[V]>;

const PERFORM: { readonly [V in Verb]: (replica: Replica, args: Args<V>, signal: AbortSignal) => Promise<Result<V>> } =
  {
    settle: (replica, _, signal) => replica.settle(signal),
    compact: (replica, _, signal) => replica.compact(signal),
    isDisturbed: (replica, args) => replica.isDisturbed(...args),
    offer: async (replica, [id, flags, ops, expect]) => (await replica.offer(flags, ops, expect, { id })) !== undefined,
    outcome: (replica, [id], signal) => replica.outcomeOfId(id, signal),
    // An id that was given up may still be on its way.
    forget: (replica, [id]) => replica.forget((each, isVoid) => each === id && !isVoid),
  };

/** Does what a tab asks for. */
export function perform<V extends Verb>(
  replica: Replica,
  verb: V,
  args: Args<V>,
  signal: AbortSignal,
): Promise<Result<V>> {
  return PERFORM[verb](replica, args, signal);
}

/** Asks the tab that replicates; throws KV_LOG_UNAVAILABLE if it is not known whether it did what it was asked for. */
export type Call = <V extends Verb>(verb: V, args: Args<V>, signal: AbortSignal | undefined) => Promise<Result<V>>;

/**
 * For strict transactions of a tab. Their records have ids, by which every tab that replicates
 * knows their outcomes.
 */
export function hostOf(tables: Tables, tab: string, call: Call): StrictHost<string> {
  return {
    tables,
    settle: (signal) => call('settle', [], signal),
    isDisturbed: (version, drained, signal) => call('isDisturbed', [version, drained], signal),
    offer: async (flags, ops, expect, { signal }) => {
      const id = `${tab}/${randomId()}`;
      try {
        return (await call('offer', [id, flags, ops, expect], signal)) ? id : undefined;
      } catch (error) {
        if ((error as Partial<KvError>).code !== 'KV_LOG_UNAVAILABLE') throw error;
        // It may have been taken.
        return id;
      }
    },
    outcomeOf: async (id, signal) => {
      const isIn = await call('outcome', [id], signal);
      call('forget', [id], undefined).catch(() => undefined);
      return isIn;
    },
  };
}
