// Draws a collection's tree: its levels, how many nodes each level has, and how full they are.
import type { CollectionLayout, Layout, LevelLayout, Stats } from 'mangrove-kv';
import { figures, h } from './dom.ts';
import { formatBytes, formatCount, formatPercent, plural } from './format.ts';
import { nameOf } from './source.ts';
import type { Context, View } from './view.ts';

const MOST_WIDTH = 800;
const ROW = 78;
const BAR = 30;
/** Maximum number of nodes drawn per level, if there is room. */
const MOST_CELLS = 48;
const LEAST_CELL = 12;
const SVG = 'http://www.w3.org/2000/svg';

function svg(tag: string, attributes: Readonly<Record<string, string | number>>, text?: string): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

function levelName(index: number, count: number): string {
  if (index === 0) return count === 1 ? 'Root, a leaf' : 'Leaves';
  return index === count - 1 ? 'Root' : `Level ${index}`;
}

/**
 * The widest level takes the full width, a level of one node the minimum. In between the width is
 * logarithmic, as levels grow by factors of a hundred.
 */
function widthOf(nodes: number, most: number, all: number): number {
  const least = 56;
  if (most <= 1) return least * 2;
  return least + (all - least) * (Math.log(nodes) / Math.log(most));
}

/** The share of its space in the file that a level uses. Compressed nodes use all of it. */
function fillOf({ usedSize, fileSize }: LevelLayout): number {
  return fileSize === 0 ? 0 : Math.min(1, usedSize / fileSize);
}

function picture({ levels, name }: CollectionLayout, all: number): SVGElement {
  const height = levels.length * ROW;
  const label = `The tree of ${nameOf(name)} has ${plural(levels.length, 'level')}. ${levels
    .map(
      (level, index) =>
        `${levelName(index, levels.length)}: ${plural(level.nodes, 'node')}, ${formatPercent(fillOf(level), 1)} full.`,
    )
    .reverse()
    .join(' ')}`;
  const image = svg('svg', {
    viewBox: `0 0 ${all} ${height}`,
    width: all,
    height,
    role: 'img',
    'aria-label': label,
    class: 'picture',
  });
  const most = Math.max(...levels.map(({ nodes }) => nodes));
  const place = (index: number): { x: number; y: number; width: number } => {
    const width = widthOf(levels[index]?.nodes ?? 1, most, all);
    return { x: (all - width) / 2, y: (levels.length - 1 - index) * ROW + ROW - BAR - 8, width };
  };
  levels.forEach((level, index) => {
    const { x, y, width } = place(index);
    if (index + 1 < levels.length) {
      const above = place(index + 1);
      const bottom = above.y + BAR;
      image.append(
        svg('path', {
          class: 'fan',
          d: `M${above.x} ${bottom} L${above.x + above.width} ${bottom} L${x + width} ${y} L${x} ${y} Z`,
        }),
      );
    }
    const cells = Math.min(level.nodes, MOST_CELLS, Math.floor(all / LEAST_CELL));
    const gap = cells > 24 ? 1.5 : 3;
    const cell = (width - gap * (cells - 1)) / cells;
    // At least 2 pixels, so that it stays visible.
    const filled = Math.max(BAR * fillOf(level), 2);
    for (let at = 0; at < cells; at++) {
      const left = x + at * (cell + gap);
      image.append(svg('rect', { class: 'node', x: left, y, width: cell, height: BAR, rx: 2 }));
      image.append(
        svg('rect', {
          class: index === 0 ? 'full leaf' : 'full inner',
          x: left,
          y: y + BAR - filled,
          width: cell,
          height: filled,
          rx: 2,
        }),
      );
    }
    const text = `${levelName(index, levels.length)} · ${plural(level.nodes, 'node')}`;
    image.append(svg('text', { x: all / 2, y: y - 8, 'text-anchor': 'middle', class: 'label' }, text));
  });
  return image;
}

function table({ levels }: CollectionLayout): HTMLElement {
  const head = ['Level', 'Nodes', 'Fill', 'Used', 'In the file'];
  const rows = levels
    .map((level, index) =>
      h(
        'tr',
        {},
        h('th', { scope: 'row' }, levelName(index, levels.length)),
        ...[
          formatCount(level.nodes),
          formatPercent(fillOf(level), 1),
          formatBytes(level.usedSize),
          formatBytes(level.fileSize),
        ].map((text) => h('td', {}, text)),
      ),
    )
    .reverse();
  return h(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Levels' },
    h(
      'table',
      { class: 'numbers' },
      h('thead', {}, h('tr', {}, ...head.map((text) => h('th', { scope: 'col' }, text)))),
      h('tbody', {}, ...rows),
    ),
  );
}

export class TreeView implements View {
  readonly title = 'Tree';
  readonly element = h('div', { class: 'view' });
  readonly #context: Context;
  #layout: Layout | undefined;
  #drawn = '';

  constructor(context: Context) {
    this.#context = context;
    const resized = new ResizeObserver(() => this.#draw());
    resized.observe(this.element);
    context.signal.addEventListener('abort', () => resized.disconnect());
  }

  show(_stats: Stats, layout: Layout): void {
    this.#layout = layout;
    this.#draw();
  }

  #draw(): void {
    const width = Math.min(this.element.clientWidth, MOST_WIDTH);
    const layout = this.#layout;
    if (layout === undefined || width === 0) return;
    const collection = layout.collections.find(({ name }) => name === this.#context.chosen);
    const now = JSON.stringify([width, collection ?? null]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    if (collection === undefined || collection.levels.length === 0) {
      const note =
        (collection?.entries ?? 0) === 0
          ? 'No entries, so no tree.'
          : 'All entries are in memory and in the log: there is no tree yet.';
      this.element.replaceChildren(h('p', { class: 'note' }, note));
      return;
    }
    const inNodes = collection.levels.reduce((sum, level) => sum + level.fileSize, 0);
    const used = collection.levels.reduce((sum, level) => sum + level.usedSize, 0);
    this.element.replaceChildren(
      figures([
        ['entries', formatCount(collection.entries)],
        ['levels', String(collection.levels.length)],
        ['nodes in the file', formatBytes(inNodes)],
        ['of their size in memory', formatPercent(inNodes, used)],
        [
          'large values',
          collection.valueBlocks === 0
            ? 'none'
            : `${formatBytes(collection.valueSize)} in ${plural(collection.valueBlocks, 'block')}`,
        ],
        ['indexes in the file', collection.indexSize === 0 ? 'none' : formatBytes(collection.indexSize)],
        ['codecs', `${collection.keyCodec}, ${collection.valueCodec}`],
      ]),
      picture(collection, width),
      h(
        'p',
        { class: 'soft small' },
        `Not all nodes are drawn; the filled part of each shows how much of its space in the file the level uses. A node holds up to ${formatBytes(layout.nodeSize)} before compression.`,
      ),
      table(collection),
    );
  }
}
