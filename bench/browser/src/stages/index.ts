// What is measured, each with one store after the other.
import { ALL_ROWS, Meter, messageOf } from '../meter.ts';
import type { Figure } from '../meter.ts';
import { PEERS, RXDB_STAGE } from '../peers/index.ts';
import { indexes } from './indexes.ts';
import { limits } from './limits.ts';
import { gets, memory, mixes, opening, pages, scans } from './reads.ts';
import { rxdb } from './rxdb.ts';
import { sizes } from './stage.ts';
import type { Stage } from './stage.ts';
import { durablePuts, load, relaxedPuts } from './writes.ts';

export const STAGES: Readonly<Record<string, Stage>> = {
  load,
  opening,
  durablePuts,
  relaxedPuts,
  gets,
  scans,
  pages,
  mixes,
  memory,
  indexes,
  [RXDB_STAGE]: rxdb,
};

/** Not of a store: what the browser allows. */
export const LIMITS = 'limits';

/** Those that `manyTabs`, `takeOver` and `buildBeside` do. */
export const TAB_STAGES: readonly string[] = ['tabs', 'takeOver', 'indexBuild'];

export const WORKLOADS: Readonly<Record<string, string>> = {
  limits: 'What the browser allows',
  load: 'Loading a store',
  opening: 'Opening',
  durablePuts: 'Durable puts',
  relaxedPuts: 'Relaxed puts',
  gets: 'Random gets',
  scans: 'Scans',
  pages: 'Prefix pages',
  mixes: 'Gets and puts mixed',
  memory: 'Memory',
  tabs: 'Many tabs',
  takeOver: 'Take-over',
  indexes: 'Indexes',
  indexBuild: 'An index built beside another tab',
  [RXDB_STAGE]: "RxDB's performance harness",
};

export interface StageRequest {
  readonly peer: string;
  readonly stage: string;
  readonly name: string;
  readonly scale: number;
  readonly indexRows?: number | undefined;
}

/** The figures of one stage with one store, the longest task of the main thread among them. */
export async function runStage(
  { peer: peerName, stage, name, scale, indexRows }: StageRequest,
  measure?: () => Promise<number>,
): Promise<Figure[]> {
  if (stage === LIMITS) return limits(scale);
  const meter = new Meter();
  const run = STAGES[stage];
  const info = PEERS[peerName];
  if (run === undefined || info === undefined) throw new Error(`there is no ${stage} of ${peerName}`);
  try {
    const start = performance.now();
    const { peer } = await info.load();
    await run({
      peer,
      name,
      sizes: sizes(scale, indexRows),
      meter,
      memory: measure,
      loading: performance.now() - start,
    });
  } catch (error) {
    meter.figures.push({ name: ALL_ROWS, unit: 'ms', error: messageOf(error) });
    return meter.figures;
  }
  const longest = await meter.longestTask();
  if (longest !== undefined && !['opening', 'memory'].includes(stage)) {
    meter.figures.push({
      name: `longest task of the main thread: ${(WORKLOADS[stage] ?? stage).toLowerCase()}`,
      unit: 'ms',
      value: longest,
    });
  }
  return meter.figures;
}
