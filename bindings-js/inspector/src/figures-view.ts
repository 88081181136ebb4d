// Current figures of commits, log, cache and file.
import type { Layout, Stats } from 'mangrove-kv';
import { figures, h } from './dom.ts';
import { formatBytes, formatCount, formatPercent } from './format.ts';
import type { View } from './view.ts';

/** Number of samples over which rates are computed. */
const MOMENTS = 60;

interface Moment {
  readonly at: number;
  readonly stats: Stats;
}

function card(title: string, ...content: readonly HTMLElement[]): HTMLElement {
  return h('section', { class: 'card' }, h('h2', {}, title), ...content);
}

function bar(name: string, parts: readonly (readonly [className: string, share: number])[]): HTMLElement {
  const pieces = parts.map(([className, share]) => {
    const piece = h('span', { class: className });
    piece.style.width = `${Math.min(Math.max(share, 0), 1) * 100}%`;
    return piece;
  });
  return h('div', { class: 'bar', role: 'img', 'aria-label': name }, ...pieces);
}

export class FiguresView implements View {
  readonly title = 'Figures';
  readonly isLive = true;
  readonly element = h('div', { class: 'view cards' });
  readonly #moments: Moment[] = [];

  show(stats: Stats, _layout: Layout): void {
    this.#moments.push({ at: performance.now(), stats });
    if (this.#moments.length > MOMENTS) this.#moments.shift();
    const lookups = stats.cacheHits + stats.cacheMisses;
    const inMemory = stats.cacheSize + stats.dirtySize;
    const used = stats.fileSize - stats.freeSize - stats.keptSize;
    const share = (part: number): number => (stats.fileSize === 0 ? 0 : part / stats.fileSize);
    this.element.replaceChildren(
      card(
        'Commits',
        figures([
          ['newest', formatCount(stats.version)],
          ['newest on disk', formatCount(stats.durableVersion)],
          ['per second', this.#rate(({ version }) => version)],
          ['checkpoints', formatCount(stats.checkpoints)],
          ['open snapshots', formatCount(stats.openSnapshots)],
          ['oldest of them', stats.oldestSnapshot === undefined ? '–' : formatCount(stats.oldestSnapshot)],
        ]),
      ),
      card(
        'Log',
        figures([
          ['file', formatBytes(stats.logSize)],
          ['records', formatCount(stats.logRecords)],
          ['flushes', formatCount(stats.logFlushes)],
          ['records per flush', stats.logFlushes === 0 ? '–' : (stats.logRecords / stats.logFlushes).toFixed(1)],
          ['written', formatBytes(stats.logBytesWritten)],
          ['opened from the older checkpoint', stats.recoveredFromOlder ? 'yes' : 'no'],
        ]),
      ),
      card(
        'Cache',
        bar(`${formatBytes(stats.cacheSize)} of nodes, ${formatBytes(stats.dirtySize)} of changes`, [
          ['part-clean', inMemory === 0 ? 0 : stats.cacheSize / inMemory],
          ['part-dirty', inMemory === 0 ? 0 : stats.dirtySize / inMemory],
        ]),
        figures([
          ['nodes', formatBytes(stats.cacheSize)],
          ['changes to be merged', formatBytes(stats.dirtySize)],
          ['found in memory', formatPercent(stats.cacheHits, lookups)],
          ['lookups', formatCount(lookups)],
          ['per second', this.#rate(({ cacheHits, cacheMisses }) => cacheHits + cacheMisses)],
          ['memory of the module', formatBytes(stats.memorySize)],
        ]),
      ),
      card(
        'File',
        bar(`${formatBytes(used)} in use, ${formatBytes(stats.keptSize)} kept, ${formatBytes(stats.freeSize)} free`, [
          ['part-used', share(used)],
          ['part-kept', share(stats.keptSize)],
          ['part-free', share(stats.freeSize)],
        ]),
        figures([
          ['size', formatBytes(stats.fileSize)],
          ['in use', formatBytes(used)],
          ['kept', formatBytes(stats.keptSize)],
          ['free', formatBytes(stats.freeSize)],
          ['read', formatBytes(stats.bytesRead)],
          ['written', formatBytes(stats.bytesWritten)],
        ]),
      ),
    );
  }

  #rate(of: (stats: Stats) => number): string {
    const [first, last] = [this.#moments[0], this.#moments.at(-1)];
    if (first === undefined || last === undefined || last.at - first.at < 500) return '–';
    return formatCount(((of(last.stats) - of(first.stats)) / (last.at - first.at)) * 1000);
  }
}
