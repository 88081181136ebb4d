// One of two tabs with the same indexed rows: one builds an index, the other goes on with its own calls.
import { DUE, firstAt, indexedRows, inOrder, isSame } from '../indexed-rows.ts';
import { messageOf, nextTask } from '../meter.ts';
import { PEERS } from '../peers/index.ts';
import type { IndexedRow, IndexedStore } from '../peers/indexed.ts';
import { random } from '../records.ts';
import { expect } from './stage.ts';

const LOAD = 10_000;
const QUERY_ROWS = 50;
/** Rounds of calls before the build may begin. */
const WARM_UP = 30;

/** Milliseconds of the slowest calls while the other tab was building, and how many there were. */
export interface Waits {
  readonly reads: number;
  readonly writes: number;
  readonly rounds: number;
  readonly error?: string;
}

let db: IndexedStore | undefined;

function opened(): IndexedStore {
  if (db === undefined) throw new Error('the store is not open');
  return db;
}

/** Tells the other tab where this one is, since calls of a tab may be answered only in turn. */
const channelOf = (name: string): BroadcastChannel => new BroadcastChannel(`${name}-build`);

export const indexTab = {
  /** Gives the reason of a failure. */
  async openIndexed(peer: string, name: string): Promise<string | undefined> {
    try {
      db = await (await PEERS[peer]?.load())?.peer.openIndexed?.(name);
      await opened().get('');
      return undefined;
    } catch (error) {
      return messageOf(error);
    }
  },

  async loadIndexed(count: number): Promise<void> {
    const rows = indexedRows(count);
    for (let from = 0; from < count; from += LOAD) await opened().load(rows.slice(from, from + LOAD));
  },

  /** Builds once the other tab is calling; resolves to the number of entries in the new index. */
  async build(name: string): Promise<number> {
    const channel = channelOf(name);
    await new Promise<void>((resolve) => {
      channel.onmessage = () => {
        resolve();
      };
    });
    channel.postMessage('begin');
    try {
      await opened().build();
      return await opened().countBuilt();
    } finally {
      channel.postMessage('end');
      channel.close();
    }
  },

  /** Reads by an index and writes durably, in turns, until the other tab has built its index. */
  async callMeanwhile(name: string, count: number): Promise<Waits> {
    const ordered = inOrder(indexedRows(count));
    const channel = channelOf(name);
    let state = 'before' as 'before' | 'building' | 'done';
    channel.onmessage = ({ data }: MessageEvent<'begin' | 'end'>) => {
      state = data === 'begin' ? 'building' : 'done';
    };
    const next = random(17);
    let [reads, writes, rounds] = [0, 0, 0];
    try {
      for (let round = 0; state !== 'done'; round++) {
        if (round >= WARM_UP && state === 'before') channel.postMessage('calling');
        const due = next() % (DUE / 2);
        const start = firstAt(ordered, due);
        await nextTask();
        const begun = performance.now();
        const found = await opened().query(due, QUERY_ROWS);
        const read = performance.now();
        await opened().note(round);
        const written = performance.now();
        expect(
          found.length > 0 && found.every((row, at) => isSame(row, ordered[start + at] as IndexedRow)),
          'a query during a build',
        );
        if (state === 'before') continue;
        // The last round began during the build, too.
        reads = Math.max(reads, read - begun);
        writes = Math.max(writes, written - read);
        rounds++;
      }
      return { reads, writes, rounds };
    } catch (error) {
      return { reads, writes, rounds, error: messageOf(error) };
    } finally {
      channel.close();
    }
  },

  async closeIndexed(): Promise<void> {
    await db?.close();
    db = undefined;
  },
};
