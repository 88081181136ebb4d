// One of several tabs (or workers) that use a store at the same time. What is passed and given is plain, as it crosses contexts.
import { messageOf } from '../meter.ts';
import { PEERS } from '../peers/index.ts';
import type { Store } from '../peers/peer.ts';
import { rowOf } from '../records.ts';
import { indexTab } from './index-tab.ts';

export interface Written {
  /** Acknowledged puts. */
  readonly count: number;
  /** When each was acknowledged: milliseconds since 1970. */
  readonly times: readonly number[];
  readonly error?: string;
}

let db: Store | undefined;

const keyIn = (tab: number, at: number): string => `tab${tab}/${String(at).padStart(8, '0')}`;

export const tab = {
  async destroy(peer: string, name: string): Promise<void> {
    await (await PEERS[peer]?.load())?.peer.destroy(name);
  },

  /** Gives the reason of a failure. */
  async open(peer: string, name: string): Promise<string | undefined> {
    try {
      db = await (await PEERS[peer]?.load())?.peer.open(name, 'strict');
      // Some fail with their first use only.
      await db?.get(keyIn(0, 0));
      return undefined;
    } catch (error) {
      return messageOf(error);
    }
  },

  leads: async (): Promise<boolean | undefined> => db?.leads?.(),

  /** Durable puts one by one; ends at the first that fails. */
  async write(number: number, milliseconds: number): Promise<Written> {
    const times: number[] = [];
    const end = performance.now() + milliseconds;
    try {
      while (performance.now() < end) {
        await db?.put(keyIn(number, times.length), rowOf(times.length));
        times.push(performance.timeOrigin + performance.now());
      }
      return { count: times.length, times };
    } catch (error) {
      return { count: times.length, times, error: messageOf(error) };
    }
  },

  /** How many of what a tab has written are not there. */
  async missing(number: number, count: number): Promise<number> {
    const rows = (await db?.getMany(Array.from({ length: count }, (_, at) => keyIn(number, at)))) ?? [];
    return count - rows.filter((row, at) => row?.id === at).length;
  },

  async close(): Promise<void> {
    await db?.close();
    db = undefined;
  },

  ...indexTab,
};

export type TabMethods = typeof tab;
