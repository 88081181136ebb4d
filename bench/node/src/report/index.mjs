// What people read: tables, bars and the raw figures.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ENGINES, version } from '../engines/index.mjs';
import { WORKLOADS } from '../stages/index.mjs';
import { median } from './numbers.mjs';
import { svg } from './plot.mjs';
import { markdown } from './tables.mjs';

export class Report {
  #runs = [];
  #errors = new Map();

  constructor(settings) {
    this.settings = settings;
    this.versions = Object.fromEntries(settings.engines.map((name) => [name, version(name) ?? 'not installed']));
  }

  add(workload, stage, engine, { error, figures = [] }) {
    // One that cannot be loaded fails at once; what it has given before stays.
    if (error !== undefined) this.#errors.set(engine, `${workload}, ${stage}: ${error}`);
    for (const [name, unit, value] of figures) this.#runs.push({ workload, engine, name, unit, value });
  }

  failed(engine) {
    return this.#errors.has(engine);
  }

  get errors() {
    return [...this.#errors];
  }

  /** The engines that gave anything. */
  get engines() {
    return this.settings.engines.filter((engine) => this.#runs.some((run) => run.engine === engine));
  }

  get peers() {
    return this.engines.filter((engine) => !ENGINES[engine].ours);
  }

  /** Each workload's title and rows, a row with its medians by engine. */
  get sections() {
    return this.settings.workloads
      .map((workload) => {
        const runs = this.#runs.filter((run) => run.workload === workload);
        const rows = this.#names(runs).map(({ name, unit }) => ({ name, unit, values: this.#medians(runs, name) }));
        const records = Math.round(WORKLOADS[workload].records * this.settings.scale).toLocaleString('en-US');
        return { title: `${records} records: ${WORKLOADS[workload].title}`, rows };
      })
      .filter(({ rows }) => rows.length > 0);
  }

  /** Not every engine has every figure: one that others lack comes after the figure that it follows. */
  #names(runs) {
    const names = [];
    for (const engine of this.engines) {
      let next = 0;
      for (const { name, unit } of runs.filter((run) => run.engine === engine)) {
        const known = names.findIndex((row) => row.name === name);
        if (known < 0) names.splice(next, 0, { name, unit });
        next = (known < 0 ? next : known) + 1;
      }
    }
    return names;
  }

  #medians(runs, name) {
    return this.engines.map((engine) =>
      median(runs.filter((run) => run.engine === engine && run.name === name).map((run) => run.value)),
    );
  }

  markdown() {
    return markdown(this);
  }

  write(directory) {
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'report.md'), this.markdown());
    writeFileSync(join(directory, 'report.svg'), svg(this));
    const { settings, versions, errors } = this;
    writeFileSync(
      join(directory, 'results.json'),
      `${JSON.stringify({ settings, versions, errors, node: process.version, figures: this.#runs }, undefined, 1)}\n`,
    );
  }
}
