// Verifies, compacts, backs up and restores, each with progress and a way to stop it.
import { restore } from 'mangrove-kv';
import type { Layout, MaintenanceOptions, Stats, VerifyReport } from 'mangrove-kv';
import { button, field, h, setText } from './dom.ts';
import { formatBytes, formatCount, formatPercent, messageOf, plural } from './format.ts';
import type { Context, View } from './view.ts';

/** Runs a job; returns the message to show. */
type Job = (options: Required<MaintenanceOptions>) => Promise<string | Node>;

interface CardOptions {
  readonly title: string;
  readonly text: string;
  readonly start: string;
  readonly fields?: readonly HTMLElement[];
  readonly job: Job;
}

/** Hooks of the application for restoring. */
export interface RestoreHooks {
  /** Called with the name of a restored database. */
  readonly onRestored?: ((name: string) => void) | undefined;
}

function problemList({ problems }: VerifyReport): HTMLElement {
  const items = problems
    .slice(0, 100)
    .map(({ code, message, page, collection }) =>
      h(
        'li',
        {},
        `${code}${collection === undefined ? '' : ` in ${collection}`}${page === undefined ? '' : `, unit ${formatCount(page)}`}: ${message}`,
      ),
    );
  return h('ul', {}, ...items);
}

/** Saves a blob as a download. */
function download(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  h('a', { href: url, download: name }).click();
  // The download has started by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export class MaintenanceView implements View {
  readonly title = 'Maintenance';
  readonly element: HTMLElement;
  readonly #context: Context;
  readonly #file = h('input', { type: 'file' });
  readonly #name = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false' });
  readonly #overwrite = h('input', { type: 'checkbox' });

  constructor(context: Context, hooks: RestoreHooks) {
    this.#context = context;
    const { database } = context.source;
    this.#name.value = `${database.path}-restored`;
    this.element = h(
      'div',
      { class: 'view cards' },
      this.#card({
        title: 'Verify',
        text: 'Reads every block and checks all of it: checksums, order, counts, and that each part of the file is used exactly once.',
        start: 'Verify',
        job: async (options) => {
          const report = await database.verify(options);
          const seen = `${plural(report.pagesChecked, 'block')} and ${plural(report.entries, 'entry', 'entries')} checked`;
          if (report.ok) return `Nothing is damaged: ${seen}.`;
          return h(
            'div',
            { class: 'problem' },
            `${plural(report.problems.length, 'problem')}; ${seen}.`,
            problemList(report),
          );
        },
      }),
      this.#card({
        title: 'Compact',
        text: 'Moves blocks to the front of the file and returns the free space behind them to the file system.',
        start: 'Compact',
        job: async (options) => {
          const { before, after } = await database.compact(options);
          return `From ${formatBytes(before)} to ${formatBytes(after)}: ${formatPercent(before - after, before)} given back.`;
        },
      }),
      this.#card({
        title: 'Back up',
        text: 'Saves the current state as a file, while writes continue.',
        start: 'Back up',
        job: async (options) => {
          const blob = await new Response(database.backup(options)).blob();
          const name = `${database.path.replace(/^.*[\\/]/, '')}.mangrove-backup`;
          download(blob, name);
          return `${formatBytes(blob.size)} saved as ${name}.`;
        },
      }),
      this.#card({
        title: 'Restore',
        text: 'Creates a database from a backup and verifies it before it is put in place. The database that is open here stays unchanged.',
        start: 'Restore',
        fields: [
          field('Backup', this.#file),
          field('Name of the new database', this.#name),
          h('label', { class: 'check' }, this.#overwrite, h('span', {}, 'Replace a database of that name')),
        ],
        job: async (options) => {
          const [blob, name] = [this.#file.files?.[0], this.#name.value.trim()];
          if (blob === undefined) throw new Error('Choose the file with the backup first.');
          if (name === '' || name === database.path)
            throw new Error('Enter a name other than that of the open database.');
          const storage = database.persistence === 'indexeddb' ? 'indexeddb' : undefined;
          const { bucket } = database;
          await restore(name, blob, { ...options, storage, bucket, overwrite: this.#overwrite.checked });
          hooks.onRestored?.(name);
          return `${name} was restored from ${formatBytes(blob.size)}.`;
        },
      }),
    );
  }

  show(_stats: Stats, _layout: Layout): void {
    // Nothing here depends on the stored data.
  }

  #card({ title, text, start, fields = [], job }: CardOptions): HTMLElement {
    const progress = h('progress', { max: 1, 'aria-label': `${title}: progress` });
    const state = h('span', { class: 'soft' });
    const outcome = h('div', { class: 'outcome' });
    let abort: AbortController | undefined;
    const stop = button('Stop', () => abort?.abort());
    const running = h('div', { class: 'running', hidden: true }, progress, state, stop);
    const run = async (): Promise<void> => {
      if (abort !== undefined) return;
      abort = new AbortController();
      const signal = AbortSignal.any([abort.signal, this.#context.signal]);
      progress.removeAttribute('value');
      setText(state, '');
      outcome.replaceChildren();
      running.hidden = false;
      go.disabled = true;
      const onProgress = (done: number, total: number): void => {
        if (total > 0) progress.value = done / total;
        setText(state, total > 0 ? formatPercent(done, total) : '');
      };
      try {
        const said = await job({ signal, onProgress });
        outcome.replaceChildren(said);
        this.#context.announce(`${title}: ${outcome.textContent ?? ''}`);
      } catch (error) {
        const text = abort.signal.aborted ? 'Stopped.' : messageOf(error);
        outcome.replaceChildren(h('p', abort.signal.aborted ? {} : { class: 'problem', role: 'alert' }, text));
        if (abort.signal.aborted) this.#context.announce(`${title}: ${text}`);
      } finally {
        abort = undefined;
        running.hidden = true;
        go.disabled = false;
      }
      if (!this.#context.signal.aborted) await this.#context.refresh(true);
    };
    const go = button(start, () => void run());
    return h(
      'section',
      { class: 'card' },
      h('h2', {}, title),
      h('p', { class: 'soft' }, text),
      ...fields,
      h('div', {}, go),
      running,
      outcome,
    );
  }
}
