// A virtual list of any length: only rows in view are in the page, and only some of the items in
// memory.
import { formatCount } from '../dom.ts';

const ROW_HEIGHT = 40;
/**
 * Browsers cap the height of an element; in longer lists, the scroll bar is proportional to the
 * position.
 */
const MAX_HEIGHT = 8_000_000;
const PAGE = 50;
const MAX_PAGES = 50;
/** The position, plus the cells from `cells`. */
const COLUMNS = 5;

export interface ListSource<T> {
  total: number;
  fetch(offset: number, limit: number): Promise<T[]>;
  /** The items that are in memory, to be drawn in the same frame. */
  now?(offset: number, limit: number): readonly T[] | undefined;
}

export interface ListOptions<T> {
  readonly cells: (item: T) => readonly [string, string, string, string];
  readonly onOpen: (item: T) => void;
  readonly onDelete: (item: T) => void;
  /** Whether the item has just been changed. */
  readonly isFresh: (item: T) => boolean;
}

/** Creates a row with empty cells. */
function makeRow(index: number): HTMLElement {
  const row = document.createElement('div');
  row.className = 'row';
  row.id = `row-${index}`;
  row.dataset['index'] = String(index);
  row.setAttribute('role', 'row');
  row.setAttribute('aria-rowindex', String(index + 1));
  for (let column = 1; column <= COLUMNS; column++) {
    const cell = document.createElement('span');
    cell.setAttribute('aria-colindex', String(column));
    cell.setAttribute('role', 'gridcell');
    row.append(cell);
  }
  return row;
}

export class VirtualList<T> {
  private source: ListSource<T> = { total: 0, fetch: () => Promise.resolve([]) };
  private pages = new Map<number, T[] | 'loading'>();
  private old = new Map<number, T[] | 'loading'>();
  private oldNow: ListSource<T>['now'];
  /** Position of the focused row. */
  private active = 0;
  private generation = 0;
  private isScheduled = false;
  private readonly root: HTMLElement;
  private readonly options: ListOptions<T>;
  private readonly spacer: HTMLElement;
  private readonly rows: HTMLElement;
  /** The rows in the page, by position. */
  private readonly drawn = new Map<number, HTMLElement>();

  constructor(root: HTMLElement, options: ListOptions<T>) {
    this.root = root;
    this.options = options;
    this.spacer = root.querySelector('.spacer') as HTMLElement;
    this.rows = root.querySelector('.rows') as HTMLElement;
    root.addEventListener('scroll', () => this.schedule(), { passive: true });
    root.addEventListener('keydown', (event) => this.onKey(event));
    root.addEventListener('click', (event) => this.onClick(event));
    new ResizeObserver(() => this.schedule()).observe(root);
  }

  /** Shows another source, from its beginning or at the current place. */
  show(source: ListSource<T>, keepPlace = false): void {
    this.oldNow = keepPlace ? this.source.now : undefined;
    this.source = source;
    this.generation++;
    // At the current place, the old rows stay until the new ones have arrived.
    this.old = keepPlace ? this.pages : new Map();
    this.pages = new Map();
    this.spacer.style.height = `${Math.min(source.total * ROW_HEIGHT, MAX_HEIGHT)}px`;
    this.root.setAttribute('aria-rowcount', String(source.total));
    if (!keepPlace) {
      this.active = 0;
      this.root.scrollTop = 0;
    }
    this.active = Math.max(0, Math.min(this.active, source.total - 1));
    this.schedule();
  }

  /** Shows items from a position of the list on, in this frame. */
  showAt(source: ListSource<T>, position: number): void {
    this.show(source);
    this.scrollToFirst(position);
    this.render();
  }

  /** The items in view that have arrived. */
  get visible(): { readonly offset: number; readonly items: readonly T[] } {
    const [from, to] = this.range();
    const items: T[] = [];
    for (let index = from; index < to; index++) {
      const item = this.item(index);
      if (item === undefined) break;
      items.push(item);
    }
    return { offset: from, items };
  }

  /** The focused item, if it has arrived. */
  get current(): T | undefined {
    return this.item(this.active);
  }

  /** Scrolls to a position and focuses it. */
  goTo(index: number): void {
    this.active = Math.max(0, Math.min(index, this.source.total - 1));
    const first = this.first();
    const visible = Math.floor(this.root.clientHeight / ROW_HEIGHT);
    if (this.active < first + 1) this.scrollToFirst(this.active);
    else if (this.active >= first + visible) this.scrollToFirst(this.active - visible + 1);
    this.schedule();
  }

  /** Redraws the rows in view. */
  redraw(): void {
    this.schedule();
  }

  private get isProportional(): boolean {
    return this.source.total * ROW_HEIGHT > MAX_HEIGHT;
  }

  /** Number of rows above the view, with a fraction. */
  private first(): number {
    if (!this.isProportional) return this.root.scrollTop / ROW_HEIGHT;
    const range = MAX_HEIGHT - this.root.clientHeight;
    return (this.root.scrollTop / range) * (this.source.total - this.root.clientHeight / ROW_HEIGHT);
  }

  private scrollToFirst(index: number): void {
    if (!this.isProportional) {
      this.root.scrollTop = index * ROW_HEIGHT;
      return;
    }
    const range = MAX_HEIGHT - this.root.clientHeight;
    this.root.scrollTop = (index / (this.source.total - this.root.clientHeight / ROW_HEIGHT)) * range;
  }

  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.render();
    });
  }

  /** Positions of the rows in view. */
  private range(): [from: number, to: number] {
    const from = Math.floor(Math.max(0, this.first()));
    return [from, Math.min(this.source.total, from + Math.ceil(this.root.clientHeight / ROW_HEIGHT) + 1)];
  }

  private render(): void {
    const top = Math.max(0, this.first());
    const [from, to] = this.range();
    this.rows.style.transform = `translateY(${(from - top) * ROW_HEIGHT}px)`;
    this.drawRows(from, to);
    const isVisible = this.active >= from && this.active < to;
    if (isVisible) this.root.setAttribute('aria-activedescendant', `row-${this.active}`);
    else this.root.removeAttribute('aria-activedescendant');
  }

  /** A row that stays in view stays the same element, to preserve a click in progress. */
  private drawRows(from: number, to: number): void {
    for (const [index, row] of this.drawn) {
      if (index >= from && index < to) continue;
      row.remove();
      this.drawn.delete(index);
    }
    for (let index = from; index < to; index++) {
      let row = this.drawn.get(index);
      if (row === undefined) {
        row = makeRow(index);
        this.drawn.set(index, row);
        this.rows.insertBefore(row, this.rows.children[index - from] ?? null);
      }
      this.fillRow(row, index);
    }
  }

  private fillRow(row: HTMLElement, index: number): void {
    const item = this.item(index);
    const texts = [formatCount(index + 1), ...(item === undefined ? ['…', '', '', ''] : this.options.cells(item))];
    for (const [column, text] of texts.entries()) {
      const cell = row.children[column];
      if (cell !== undefined && cell.textContent !== text) cell.textContent = text;
    }
    row.setAttribute('aria-selected', String(index === this.active));
    row.classList.toggle('active', index === this.active);
    row.classList.toggle('loading', item === undefined);
    row.classList.toggle('fresh', item !== undefined && this.options.isFresh(item));
  }

  /** Returns the item at a position if it has arrived; otherwise requests it. */
  private item(index: number): T | undefined {
    const number = Math.floor(index / PAGE);
    const [now] = this.source.now?.(index, 1) ?? [];
    if (now !== undefined) return now;
    const page = this.pages.get(number);
    if (page === undefined) void this.load(number);
    const shown = page === undefined || page === 'loading' ? this.old.get(number) : page;
    return shown === undefined || shown === 'loading' ? this.oldNow?.(index, 1)?.[0] : shown[index % PAGE];
  }

  private async load(number: number): Promise<void> {
    const { generation } = this;
    this.pages.set(number, 'loading');
    let items: T[] | undefined;
    try {
      items = await this.source.fetch(number * PAGE, PAGE);
    } finally {
      if (generation === this.generation) {
        if (items === undefined) this.pages.delete(number);
        else this.pages.set(number, items);
        // Evicts the oldest first: a Map keeps insertion order.
        for (const old of this.pages.keys()) {
          if (this.pages.size <= MAX_PAGES) break;
          this.pages.delete(old);
        }
        if (items !== undefined) this.schedule();
      }
    }
  }

  private onKey(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(this.root.clientHeight / ROW_HEIGHT) - 1);
    const targets: Record<string, number> = {
      ArrowDown: this.active + 1,
      ArrowUp: this.active - 1,
      PageDown: this.active + page,
      PageUp: this.active - page,
      Home: 0,
      End: this.source.total - 1,
    };
    const target = targets[event.key];
    const item = this.item(this.active);
    if (target !== undefined) this.goTo(target);
    else if (event.key === 'Enter' && item !== undefined) this.options.onOpen(item);
    else if (event.key === 'Delete' && item !== undefined) this.options.onDelete(item);
    else return;
    event.preventDefault();
  }

  private onClick(event: MouseEvent): void {
    const row = (event.target as Element).closest<HTMLElement>('.row');
    if (row === null) return;
    this.active = Number(row.dataset['index']);
    const item = this.item(this.active);
    this.schedule();
    if (item !== undefined) this.options.onOpen(item);
  }
}
