// The page by itself: for a person, and for the program that drives a browser.
import { mountBench } from './index.ts';
import { compareBuilds } from './stages/builds.ts';
import type { Comparison } from './stages/builds.ts';
import { runStage } from './stages/index.ts';
import type { StageRequest } from './stages/index.ts';
import { tab } from './stages/tab.ts';

declare global {
  interface Window {
    /** Given by the program that drives the browser. */
    benchMemory?: () => Promise<number>;
    benchCompared?: (comparison: Comparison) => void;
    bench: typeof driven;
  }
}

const driven = {
  tab,
  runStage: (request: StageRequest) => runStage(request, window.benchMemory),
  compareBuilds: (names: readonly string[], sizes: { readonly records: number; readonly rounds: number }) =>
    compareBuilds(names, sizes, (comparison) => window.benchCompared?.(comparison)),
};

window.bench = driven;

// A driven page shows nothing, so that the main thread has only the store's tasks.
const element = document.getElementById('bench');
if (element !== null && !location.search.includes('driven')) mountBench(element);
