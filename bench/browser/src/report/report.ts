// Gathers the figures of all rounds; knows nothing of where they are shown.
import { ALL_ROWS } from '../meter.ts';
import type { Figure, Unit } from '../meter.ts';
import { PEERS } from '../peers/index.ts';
import { LIMITS } from '../stages/index.ts';
import { median } from './numbers.ts';

export interface Run {
  readonly stage: string;
  readonly peer: string;
  readonly name: string;
  readonly unit: Unit;
  readonly value: number;
}

export interface Row {
  readonly stage: string;
  readonly name: string;
  readonly unit: Unit;
  /** Medians, one for each peer of the report. */
  readonly values: readonly (number | undefined)[];
  /** What every round gave. */
  readonly rounds: readonly (readonly number[])[];
}

export interface Failure {
  readonly stage: string;
  readonly peer: string;
  /** `ALL_ROWS` for the whole stage. */
  readonly name: string;
  readonly error: string;
}

export interface Settings {
  readonly peers: readonly string[];
  readonly stages: readonly string[];
  readonly rounds: number;
  readonly scale: number;
  readonly indexRows?: number | undefined;
  readonly browser: string;
  readonly versions: Readonly<Record<string, string>>;
}

export class Report {
  readonly runs: Run[] = [];
  readonly failures: Failure[] = [];
  /** What the driver knows of the machine, in words. */
  machine = '';
  readonly #names = new Map<string, { stage: string; unit: Unit }>();

  readonly settings: Settings;

  constructor(settings: Settings) {
    this.settings = settings;
  }

  add(stage: string, peer: string, figures: readonly Figure[]): void {
    for (const { name, unit, value, error } of figures) {
      if (name !== ALL_ROWS && !this.#names.has(name)) this.#names.set(name, { stage, unit });
      if (value !== undefined) this.runs.push({ stage, peer, name, unit, value });
      else if (
        !this.failures.some((failure) => failure.stage === stage && failure.peer === peer && failure.name === name)
      ) {
        this.failures.push({ stage, peer, name, error: error ?? 'no value' });
      }
    }
  }

  /** Those that gave anything, ours first. */
  get peers(): string[] {
    return this.settings.peers.filter(
      (peer) => this.runs.some((run) => run.peer === peer) || this.failures.some((failure) => failure.peer === peer),
    );
  }

  get rows(): Row[] {
    const { peers, settings } = this;
    return [...this.#names]
      .filter(([, { stage }]) => stage !== LIMITS)
      .map(([name, { stage, unit }]) => {
        const rounds = peers.map((peer) =>
          this.runs.filter((run) => run.name === name && run.peer === peer).map(({ value }) => value),
        );
        return { stage, name, unit, values: rounds.map(median), rounds };
      })
      .sort((a, b) => settings.stages.indexOf(a.stage) - settings.stages.indexOf(b.stage));
  }

  /** Medians that are not of a store. */
  get limits(): { name: string; unit: Unit; value: number }[] {
    const own = this.runs.filter(({ peer }) => peer === LIMITS);
    return [...new Map(own.map((run) => [run.name, run])).values()].map(({ name, unit }) => ({
      name,
      unit,
      value: median(own.filter((run) => run.name === name).map(({ value }) => value)) ?? 0,
    }));
  }

  /** Why a cell is empty. */
  reason(row: Row, peer: string): string | undefined {
    const found = this.failures.filter((failure) => failure.peer === peer && failure.stage === row.stage);
    return (found.find(({ name }) => name === row.name) ?? found.find(({ name }) => name === ALL_ROWS))?.error;
  }
}

export const titleOf = (peer: string): string => PEERS[peer]?.title ?? peer;
export const isVolatile = (peer: string): boolean => PEERS[peer]?.isVolatile === true;
export const isOurs = (peer: string): boolean => PEERS[peer]?.ours === true;
