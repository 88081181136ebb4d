/** The benchmark as a part of a page: what to run is chosen there, plots and a table show what comes of it. */
import './style.css';
import { DEFAULT_PEERS, PEERS, takesPart } from './peers/index.ts';
import { Remote } from './peers/rpc.ts';
import { element, results } from './results.ts';
import { Report } from './report/report.ts';
import { messageOf } from './meter.ts';
import type { Figure } from './meter.ts';
import { LIMITS, runStage, TAB_STAGES, WORKLOADS } from './stages/index.ts';
import { buildBeside } from './stages/index-build.ts';
import { sizes } from './stages/stage.ts';
import { tab } from './stages/tab.ts';
import { manyTabs, takeOver } from './stages/tabs.ts';
import type { Tab } from './stages/tabs.ts';

export interface BenchOptions {
  /** Names of `WORKLOADS` that are chosen at first; all by default. */
  readonly workloads?: readonly string[];
  /** Names of `PEERS` that are chosen at first; all by default. */
  readonly peers?: readonly string[];
  /** Rows that are loaded, in millions; 0.01 by default. */
  readonly scale?: number;
}

export interface MountedBench {
  /** Stops what runs and empties the element. Stores of a stage that has begun are removed when it ends. */
  dispose(): void;
}

const SCALES = [0.001, 0.01, 0.1, 1];
const ROUNDS = [1, 3, 5];
/** Needs a program outside that can tell. */
const DRIVEN_ONLY = ['memory'];
const NEEDS_LOAD = ['opening', 'gets', 'scans', 'pages', 'mixes'];

/** A worker stands for a tab: a page cannot open tabs unasked. */
async function newTab(): Promise<Tab> {
  const remote = new Remote(new Worker(new URL('./stages/tab-worker.ts', import.meta.url), { type: 'module' }));
  return {
    call: (method, ...values) => remote.call(method, ...values),
    async close() {
      remote.terminate();
    },
  };
}

async function runOne(stage: string, peer: string, scale: number, name: string): Promise<Figure[]> {
  if (!TAB_STAGES.includes(stage)) return runStage({ peer, stage, name, scale });
  const options = { peer, name: `${name}-${stage}`, writing: sizes(scale).writing, newTab };
  try {
    await tab.destroy(peer, options.name).catch(() => undefined);
    if (stage === 'indexBuild') return await buildBeside(options, sizes(scale).indexed);
    return [stage === 'tabs' ? await manyTabs(options) : await takeOver(options, 'close')];
  } finally {
    // The files of a worker that has ended come free a little later.
    await new Promise((resolve) => setTimeout(resolve, 300));
    await tab.destroy(peer, options.name).catch(() => undefined);
  }
}

function choices(
  legend: string,
  names: Readonly<Record<string, string>>,
  chosen: readonly string[] | undefined,
): { field: HTMLFieldSetElement; chosen(): string[] } {
  const boxes = Object.entries(names).map(([value, title]) => ({
    box: element('input', { type: 'checkbox', value, checked: chosen?.includes(value) ?? true }),
    title,
  }));
  const field = element(
    'fieldset',
    {},
    element('legend', {}, legend),
    ...boxes.map(({ box, title }) => element('label', {}, box, ` ${title}`)),
  );
  return { field, chosen: () => boxes.filter(({ box }) => box.checked).map(({ box }) => box.value) };
}

function select(
  label: string,
  values: readonly number[],
  chosen: number,
  show: (value: number) => string,
): { label: HTMLLabelElement; select: HTMLSelectElement } {
  const list = [...new Set([...values, chosen])].sort((a, b) => a - b);
  const made = element(
    'select',
    {},
    ...list.map((value) => element('option', { value: String(value), selected: value === chosen }, show(value))),
  );
  return { label: element('label', {}, `${label} `, made), select: made };
}

export function mountBench(parent: HTMLElement, options: BenchOptions = {}): MountedBench {
  const titles = Object.fromEntries(Object.entries(PEERS).map(([name, { title }]) => [name, title]));
  const workloads = Object.fromEntries(Object.entries(WORKLOADS).filter(([name]) => !DRIVEN_ONLY.includes(name)));
  const peerChoice = choices('Stores', titles, options.peers ?? DEFAULT_PEERS);
  const workloadChoice = choices('Workloads', workloads, options.workloads);
  const size = select('Rows', SCALES, options.scale ?? 0.01, (scale) => sizes(scale).records.toLocaleString('en-US'));
  const rounds = select('Rounds', ROUNDS, 1, String);
  const run = element('button', { type: 'button' }, 'Run');
  const stop = element('button', { type: 'button', disabled: true }, 'Stop');
  const progress = element('progress', { value: 0, max: 1, ariaLabel: 'Progress' });
  const status = element('p', { role: 'status' });
  const output = element('div');
  const root = element(
    'section',
    { className: 'mangrove-bench', ariaLabel: 'Benchmark' },
    peerChoice.field,
    workloadChoice.field,
    element('div', { className: 'bench-actions' }, size.label, rounds.label, run, stop, progress),
    status,
    output,
  );
  parent.append(root);
  let current: AbortController | undefined;

  async function start(signal: AbortSignal): Promise<void> {
    const peers = peerChoice.chosen();
    const chosen = workloadChoice.chosen();
    const stages = Object.keys(workloads).filter(
      (stage) => chosen.includes(stage) || (stage === 'load' && chosen.some((each) => NEEDS_LOAD.includes(each))),
    );
    const scale = Number(size.select.value);
    const count = Number(rounds.select.value);
    const report = new Report({ peers, stages, rounds: count, scale, browser: navigator.userAgent, versions: {} });
    const name = (peer: string): string => `mangrove-bench-${peer}`;
    const steps = Array.from({ length: count }, (_, round) =>
      stages
        .filter((stage) => stage !== 'load' || round === 0)
        .flatMap((stage) => {
          const first = round % peers.length;
          return stage === LIMITS
            ? [{ stage, peer: LIMITS }]
            : [...peers.slice(first), ...peers.slice(0, first)]
                .filter((peer) => takesPart(peer, stage))
                .map((peer) => ({ stage, peer }));
        }),
    ).flat();
    try {
      for (const [at, { stage, peer }] of steps.entries()) {
        if (signal.aborted) break;
        progress.value = at / steps.length;
        status.textContent = `${WORKLOADS[stage] ?? stage}: ${titles[peer] ?? peer}`;
        report.add(
          stage,
          peer,
          await runOne(stage, peer, scale, name(peer)).catch((error: unknown): Figure[] => [
            { name: '', unit: 'ms', error: messageOf(error) },
          ]),
        );
        if (!signal.aborted) output.replaceChildren(results(report));
      }
    } finally {
      for (const peer of peers) await tab.destroy(peer, name(peer)).catch(() => undefined);
    }
    progress.value = signal.aborted ? 0 : 1;
    status.textContent = signal.aborted ? 'Stopped.' : 'Done. The longest bar is the best of its row.';
  }

  run.onclick = () => {
    current = new AbortController();
    run.disabled = true;
    stop.disabled = false;
    start(current.signal)
      .catch((error: unknown) => {
        status.textContent = messageOf(error);
      })
      .finally(() => {
        run.disabled = false;
        stop.disabled = true;
      });
  };
  stop.onclick = () => {
    current?.abort();
    stop.disabled = true;
    status.textContent = 'Stopping after this step.';
  };

  return {
    dispose() {
      current?.abort();
      root.remove();
    },
  };
}
