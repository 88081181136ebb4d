// Two builds in one page and in turn, round after round: what one round has, such as a busy machine, both have.
// Commits are relaxed: the disk, which differs most from round to round, is the same for both.
import type { Peer, Store } from '../peers/peer.ts';
import { PEERS } from '../peers/index.ts';
import { entries, keyOf, sample } from '../records.ts';
import { median } from '../report/numbers.ts';

const LOAD = 10_000;
const MANY = 100;

export interface Comparison {
  readonly name: string;
  /** Of each round, the first build's milliseconds by the second's: above 1 the second is faster. */
  readonly ratios: readonly number[];
  /** Operations a second of each build, by the median of its rounds. */
  readonly rates: readonly number[];
}

interface Work {
  readonly count: number;
  /** Gives the milliseconds of what counts. */
  run(store: Store, round: number): Promise<number>;
}

async function time(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

function works(records: number): Readonly<Record<string, Work>> {
  const scan = (reverse: boolean): Work => ({
    count: records,
    run: (store) => time(() => store.scan({ reverse, limit: records }, () => undefined)),
  });
  return {
    'random gets, one by one': {
      count: 5000,
      run: (store, round) => {
        const keys = sample(records, 5000, round).map(keyOf);
        return time(async () => {
          for (const key of keys) await store.get(key);
        });
      },
    },
    [`random gets, ${MANY} at a time`]: {
      count: 50_000,
      run: (store, round) => {
        const groups = Array.from({ length: 50_000 / MANY }, (_, at) =>
          sample(records, MANY, round * 1000 + at).map(keyOf),
        );
        return time(async () => {
          for (const group of groups) await store.getMany(group);
        });
      },
    },
    'scan forwards': scan(false),
    'scan backwards': scan(true),
    'puts, one by one': {
      count: 500,
      run: (store, round) => {
        const list = sample(records, 500, round).flatMap((number) => entries(number, number + 1));
        return time(async () => {
          for (const [key, value] of list) await store.put(key, value);
        });
      },
    },
    'puts, 10,000 in one transaction': {
      count: LOAD,
      run: (store, round) => {
        const list = sample(records, LOAD, round).flatMap((number) => entries(number, number + 1));
        return time(() => store.putMany(list));
      },
    },
  };
}

async function fill(store: Store, records: number): Promise<number> {
  let sum = 0;
  for (let from = 0; from < records; from += LOAD) {
    const batch = entries(from, Math.min(records, from + LOAD));
    sum += await time(() => store.putMany(batch));
  }
  return sum;
}

/** The milliseconds of each build in each round, whose first is the compiler's and does not count. */
async function inTurn(builds: number, rounds: number, run: (build: number, round: number) => Promise<number>) {
  const times: number[][] = Array.from({ length: builds }, () => []);
  for (let round = 0; round <= rounds; round++) {
    const order = [...times.keys()];
    for (const build of round % 2 === 0 ? order : order.reverse()) {
      const taken = await run(build, round);
      if (round > 0) times[build]?.push(taken);
    }
  }
  return times;
}

function compared(name: string, count: number, [first = [], second = []]: readonly number[][]): Comparison {
  return {
    name,
    ratios: first.map((each, round) => each / (second[round] ?? Number.NaN)),
    rates: [first, second].map((list) => (count / (median(list) ?? Number.NaN)) * 1000),
  };
}

/** Tells each comparison when it is done. */
export async function compareBuilds(
  names: readonly string[],
  { records, rounds }: { readonly records: number; readonly rounds: number },
  tell: (comparison: Comparison) => void,
): Promise<void> {
  const peers: Peer[] = [];
  for (const name of names) {
    const info = PEERS[name];
    if (info === undefined) throw new Error(`there is no ${name}`);
    peers.push((await info.load()).peer);
  }
  const place = (build: number): string => `builds-${build}`;
  const inserts = await inTurn(peers.length, rounds, async (build) => {
    await peers[build]?.destroy(place(build));
    const store = await (peers[build] as Peer).open(place(build), 'relaxed');
    const taken = await fill(store, records);
    await store.close();
    return taken;
  });
  tell(compared(`inserts in order, transactions of ${LOAD.toLocaleString('en-US')}`, records, inserts));
  const stores = await Promise.all(peers.map((peer, build) => peer.open(place(build), 'relaxed')));
  for (const [name, { count, run }] of Object.entries(works(records)))
    tell(
      compared(name, count, await inTurn(stores.length, rounds, (build, round) => run(stores[build] as Store, round))),
    );
  for (const [build, store] of stores.entries()) {
    await store.close();
    await peers[build]?.destroy(place(build));
  }
}
