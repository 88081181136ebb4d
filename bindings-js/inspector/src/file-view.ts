// A map of the file that shows what each part of it holds.
import type { ExtentKind, Layout, LayoutExtent, Stats } from 'mangrove-kv';
import { figures, h, setText } from './dom.ts';
import { formatBytes, formatCount, formatPercent, plural } from './format.ts';
import { nameOf } from './source.ts';
import type { Context, View } from './view.ts';

const KINDS: Readonly<Record<ExtentKind, readonly [name: string, meaning: string]>> = {
  leaf: ['leaves', 'nodes with entries'],
  inner: ['inner nodes', 'nodes that point to other nodes'],
  value: ['large values', 'out-of-line values in their own blocks'],
  index: ['indexes', 'index keys, in their order and for each entry'],
  internal: ['internal', 'the feed and expiry hints'],
  superblock: ['superblocks', 'at the start of the file'],
  catalog: ['catalog', 'the collections and their roots'],
  'free-map': ['free map', 'which space is free'],
  kept: ['kept', 'for snapshots, or until the next checkpoints'],
  free: ['free', 'available for new blocks'],
  pending: ['pending', 'commits that are not visible yet'],
};

const CELL = 11;
const GAP = 2;
/** Keeps the map and the content below it visible together. */
const MOST_ROWS = 32;

interface Cell {
  readonly from: number;
  readonly to: number;
  /** The extent that takes up most of the cell. */
  readonly main: LayoutExtent;
}

/** Divides the file into cells of `cellSize` bytes. */
export function toCells({ extents, fileSize }: Pick<Layout, 'extents' | 'fileSize'>, cellSize: number): Cell[] {
  const cells: Cell[] = [];
  let index = 0;
  for (let from = 0; from < fileSize; from += cellSize) {
    const to = Math.min(from + cellSize, fileSize);
    let main: LayoutExtent | undefined;
    let most = 0;
    while (index < extents.length) {
      const extent = extents[index]!;
      const share = Math.min(extent.offset + extent.length, to) - Math.max(extent.offset, from);
      if (share > most) {
        most = share;
        main = extent;
      }
      if (extent.offset + extent.length > to) break;
      index++;
    }
    if (main !== undefined) cells.push({ from, to, main });
  }
  return cells;
}

export class FileView implements View {
  readonly title = 'File';
  readonly element: HTMLElement;
  readonly #canvas = h('canvas', {
    tabindex: 0,
    role: 'slider',
    'aria-label': 'Place in the file',
    'aria-valuemin': 1,
  });
  readonly #place = h('p', { class: 'place' }, 'Point at the map, or move over it with the arrow keys.');
  readonly #figures = h('div');
  readonly #legend = h('tbody');
  readonly #note = h('p', { class: 'soft small' });
  readonly #only = h('select', { change: () => this.#draw() });
  #layout: Layout | undefined;
  #cells: Cell[] = [];
  #columns = 1;
  #active = -1;

  constructor(context: Context) {
    this.element = h(
      'div',
      { class: 'view' },
      this.#figures,
      h('label', { class: 'inline' }, h('span', {}, 'Highlight'), this.#only),
      h('div', { class: 'map' }, this.#canvas),
      this.#place,
      this.#note,
      h(
        'div',
        { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'What the file holds' },
        h(
          'table',
          { class: 'numbers legend' },
          h(
            'thead',
            {},
            h('tr', {}, ...['What', 'Size', 'Share', 'Extents'].map((text) => h('th', { scope: 'col' }, text))),
          ),
          this.#legend,
        ),
      ),
    );
    this.#canvas.addEventListener('pointermove', (event) => this.#point(event));
    this.#canvas.addEventListener('pointerdown', (event) => this.#point(event));
    this.#canvas.addEventListener('keydown', (event) => this.#key(event));
    const resized = new ResizeObserver(() => this.#draw());
    resized.observe(this.#canvas.parentElement!);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const drawAnew = (): void => this.#draw();
    dark.addEventListener('change', drawAnew);
    context.signal.addEventListener('abort', () => {
      resized.disconnect();
      dark.removeEventListener('change', drawAnew);
    });
  }

  show(_stats: Stats, layout: Layout): void {
    if (layout === this.#layout) return;
    this.#layout = layout;
    this.#drawLegend(layout);
    const chosen = this.#only.value;
    const names = layout.collections.map(({ name }, index) => h('option', { value: String(index) }, nameOf(name)));
    this.#only.replaceChildren(h('option', { value: '' }, 'all collections'), ...names);
    this.#only.value = chosen;
    if (this.#only.selectedIndex < 0) this.#only.value = '';
    this.#draw();
  }

  #drawLegend({ extents, fileSize, unitSize, isExact }: Layout): void {
    const sizes = new Map<ExtentKind, { bytes: number; extents: number }>();
    for (const { kind, length } of extents) {
      const known = sizes.get(kind) ?? { bytes: 0, extents: 0 };
      sizes.set(kind, { bytes: known.bytes + length, extents: known.extents + 1 });
    }
    const bytes = (kind: ExtentKind): number => sizes.get(kind)?.bytes ?? 0;
    this.#figures.replaceChildren(
      figures([
        ['file', formatBytes(fileSize)],
        ['in use', formatBytes(fileSize - bytes('free') - bytes('kept'))],
        ['kept', formatBytes(bytes('kept'))],
        ['free', formatBytes(bytes('free'))],
        ['unit', formatBytes(unitSize)],
      ]),
    );
    const shown = (Object.keys(KINDS) as ExtentKind[]).filter((kind) => sizes.has(kind));
    this.#legend.replaceChildren(
      ...shown.map((kind) => {
        const [name, meaning] = KINDS[kind];
        return h(
          'tr',
          {},
          h(
            'th',
            { scope: 'row' },
            h('span', { class: `swatch kind-${kind}`, 'aria-hidden': 'true' }),
            name,
            h('span', { class: 'soft small meaning' }, meaning),
          ),
          ...[
            formatBytes(bytes(kind)),
            formatPercent(bytes(kind), fileSize),
            formatCount(sizes.get(kind)?.extents ?? 0),
          ].map((text) => h('td', {}, text)),
        );
      }),
    );
    setText(
      this.#note,
      isExact ? '' : 'There are more extents than can be shown: each one shows the kind that takes up most of it.',
    );
  }

  #draw(): void {
    const layout = this.#layout;
    const width = this.#canvas.parentElement?.clientWidth ?? 0;
    if (layout === undefined || width === 0) return;
    this.#columns = Math.max(8, Math.floor((width + GAP) / (CELL + GAP)));
    const units = Math.ceil(layout.fileSize / layout.unitSize);
    this.#cells = toCells(layout, Math.ceil(units / Math.min(units, this.#columns * MOST_ROWS)) * layout.unitSize);
    const rows = Math.ceil(this.#cells.length / this.#columns);
    const scale = globalThis.devicePixelRatio || 1;
    const [cssWidth, cssHeight] = [this.#columns * (CELL + GAP) - GAP, rows * (CELL + GAP) - GAP];
    this.#canvas.width = cssWidth * scale;
    this.#canvas.height = cssHeight * scale;
    this.#canvas.style.width = `${cssWidth}px`;
    this.#canvas.style.height = `${cssHeight}px`;
    this.#canvas.setAttribute('aria-valuemax', String(this.#cells.length));
    this.#paint(scale);
    if (this.#active >= 0) this.#tell(Math.min(this.#active, this.#cells.length - 1));
    else this.#canvas.setAttribute('aria-valuenow', '1');
  }

  #paint(scale: number): void {
    const drawing = this.#canvas.getContext('2d');
    if (drawing === null) return;
    drawing.setTransform(scale, 0, 0, scale, 0, 0);
    drawing.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    const colors = this.#colors();
    const only = this.#only.value === '' ? undefined : this.#layout?.collections[Number(this.#only.value)]?.name;
    this.#cells.forEach(({ main }, index) => {
      const [x, y] = [(index % this.#columns) * (CELL + GAP), Math.floor(index / this.#columns) * (CELL + GAP)];
      drawing.globalAlpha = only === undefined || main.collection === only ? 1 : 0.18;
      drawing.fillStyle = colors.get(main.kind) ?? 'gray';
      drawing.fillRect(x, y, CELL, CELL);
      drawing.globalAlpha = 1;
      if (index !== this.#active) return;
      drawing.strokeStyle = colors.get('cursor') ?? 'black';
      drawing.lineWidth = 2;
      drawing.strokeRect(x, y, CELL, CELL);
    });
  }

  /** The colours of the style sheet, which follow the colour scheme. */
  #colors(): ReadonlyMap<string, string> {
    const probe = h('span', { class: 'swatch', 'aria-hidden': 'true' });
    this.element.append(probe);
    const colors = new Map<string, string>();
    for (const kind of Object.keys(KINDS)) {
      probe.className = `swatch kind-${kind}`;
      colors.set(kind, getComputedStyle(probe).backgroundColor);
    }
    colors.set('cursor', getComputedStyle(probe).color);
    probe.remove();
    return colors;
  }

  #point(event: PointerEvent): void {
    const column = Math.floor(event.offsetX / (CELL + GAP));
    const index = Math.floor(event.offsetY / (CELL + GAP)) * this.#columns + column;
    if (column < this.#columns && index >= 0 && index < this.#cells.length) this.#tell(index);
  }

  #key(event: KeyboardEvent): void {
    const steps: Record<string, number> = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: this.#columns,
      ArrowUp: -this.#columns,
      Home: -Infinity,
      End: Infinity,
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.#tell(Math.max(0, Math.min(this.#cells.length - 1, Math.max(this.#active, 0) + step)));
  }

  #tell(index: number): void {
    const cell = this.#cells[index];
    if (cell === undefined) return;
    this.#active = index;
    const { kind, collection, length } = cell.main;
    const owner = collection === undefined ? '' : ` of ${nameOf(collection)}`;
    const text = `${KINDS[kind][0]}${owner} · byte ${formatCount(cell.from)} · in an extent of ${formatBytes(length)}, ${plural(length / (this.#layout?.unitSize ?? 1), 'unit')}`;
    setText(this.#place, text);
    this.#canvas.setAttribute('aria-valuenow', String(index + 1));
    this.#canvas.setAttribute('aria-valuetext', text);
    this.#paint(globalThis.devicePixelRatio || 1);
  }
}
