// Pages through the entries of one collection, by range and position.
import type { CollectionLayout, Layout, Stats } from 'mangrove-kv';
import { button, field, h, setText } from './dom.ts';
import { formatCount, messageOf, plural } from './format.ts';
import { keyText, parseRange } from './key-text.ts';
import { Order } from './order.ts';
import { nameOf } from './source.ts';
import type { InspectedCollection, InspectedIndex } from './source.ts';
import { shortText, valueTree } from './value-tree.ts';
import type { Context, View } from './view.ts';

const PAGE = 50;

/** Id of a row. Includes the type, since 1 and "1" are displayed alike. */
const idOf = (key: unknown): string => `${typeof key} ${keyText(key)}`;

interface Row {
  /** The key in the index whose order is shown, if one is. */
  readonly indexKey: unknown;
  readonly key: unknown;
  readonly value: unknown;
}

/** The codec by which to read a range of an index: that of tuples if all its keys are arrays. */
async function codecOf(index: InspectedIndex): Promise<string> {
  const ends = await Promise.all([false, true].map((reverse) => index.entries({ reverse, limit: 1 }).toArray()));
  return ends.flat().every(({ indexKey }) => Array.isArray(indexKey)) ? 'tuple' : 'any';
}

/** Id of an entry in the order shown. */
const idOfRow = ({ indexKey, key }: Row): string =>
  indexKey === undefined ? idOf(key) : `${idOf(indexKey)}\n${idOf(key)}`;

function input(
  label: string,
  placeholder: string,
  onInput: () => void,
): { readonly control: HTMLInputElement; readonly label: HTMLLabelElement } {
  const control = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', placeholder, input: onInput });
  return { control, label: field(label, control) };
}

export class EntriesView implements View {
  readonly title = 'Entries';
  readonly element: HTMLElement;
  readonly #context: Context;
  readonly #prefix;
  readonly #from;
  readonly #to;
  readonly #order = new Order(() => this.#changed());
  readonly #indexHead = h('th', { scope: 'col', class: 'index-key', hidden: true }, 'Index key');
  readonly #reverse = h('input', { type: 'checkbox', change: () => this.#changed() });
  readonly #position = h('input', {
    type: 'number',
    min: 1,
    inputmode: 'numeric',
    'aria-label': 'First position',
    change: () => this.#goTo(),
  });
  readonly #range = h('span', { class: 'soft' });
  readonly #problem = h('p', { class: 'problem', role: 'alert' });
  readonly #body = h('tbody');
  readonly #table: HTMLElement;
  readonly #previous = button('Previous', () => this.#move(-PAGE));
  readonly #next = button('Next', () => this.#move(PAGE));
  /** Ids of the open rows. */
  readonly #open = new Set<string>();
  #collection: CollectionLayout | undefined;
  #offset = 0;
  #total = 0;
  #isReading = false;
  #isStale = false;
  #delay: ReturnType<typeof setTimeout> | undefined;

  constructor(context: Context) {
    this.#context = context;
    const changed = (): void => {
      clearTimeout(this.#delay);
      this.#delay = setTimeout(() => this.#changed(), 120);
    };
    this.#prefix = input('Begins with', 'any', changed);
    this.#from = input('From', 'first', changed);
    this.#to = input('To', 'last', changed);
    this.#table = h(
      'div',
      { class: 'scroll entries-scroll', tabindex: 0, role: 'region', 'aria-label': 'Entries' },
      h(
        'table',
        { class: 'entries' },
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            this.#indexHead,
            h('th', { scope: 'col', class: 'key' }, 'Key'),
            h('th', { scope: 'col' }, 'Value'),
          ),
        ),
        this.#body,
      ),
    );
    this.element = h(
      'div',
      { class: 'view' },
      h(
        'form',
        { class: 'tools', submit: (event) => event.preventDefault() },
        this.#prefix.label,
        this.#from.label,
        this.#to.label,
        h('label', { class: 'check' }, this.#reverse, h('span', {}, 'Backwards')),
        this.#order.label,
      ),
      this.#order.table,
      this.#problem,
      this.#table,
      h(
        'div',
        { class: 'pager' },
        this.#previous,
        h('label', { class: 'position' }, h('span', {}, 'From'), this.#position),
        this.#range,
        this.#next,
      ),
    );
  }

  show(stats: Stats, layout: Layout): Promise<void> {
    const collection = layout.collections.find(({ name }) => name === this.#context.chosen);
    if (collection?.name !== this.#collection?.name) {
      for (const { control } of [this.#prefix, this.#from, this.#to]) control.value = '';
      this.#reverse.checked = false;
      this.#order.reset();
      this.#offset = 0;
      this.#closeAll();
    }
    this.#collection = collection;
    this.#order.show(stats, collection);
    return this.#read();
  }

  #closeAll(): void {
    this.#open.clear();
    this.#body.replaceChildren();
  }

  #changed(): void {
    this.#offset = 0;
    this.#closeAll();
    void this.#read();
  }

  #move(by: number): void {
    this.#offset = Math.max(0, Math.min(this.#offset + by, this.#total - 1));
    this.#table.scrollTop = 0;
    void this.#read().then(() => this.#context.announce(this.#range.textContent ?? ''));
  }

  #goTo(): void {
    const position = this.#position.valueAsNumber;
    // A range typed just before applies too. Reading clamps the position to the number of entries.
    clearTimeout(this.#delay);
    if (Number.isInteger(position) && position > 0) this.#offset = position - 1;
    void this.#read().then(() => {
      this.#position.value = String(this.#offset + 1);
    });
  }

  /** Runs one read at a time, and another one if something changed meanwhile. */
  async #read(): Promise<void> {
    this.#isStale = true;
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#isStale) {
        this.#isStale = false;
        await this.#readOnce();
      }
    } finally {
      this.#isReading = false;
    }
  }

  async #readOnce(): Promise<void> {
    const layout = this.#collection;
    const { index } = this.#order;
    this.#indexHead.hidden = index === undefined;
    if (layout === undefined) return this.#draw([], 'No collection has been written to yet.');
    const collection = this.#context.source.open(layout);
    if (collection === undefined) {
      const text = `Stored with the codecs “${layout.keyCodec}” and “${layout.valueCodec}”, which are unknown here: pass a handle of the collection to the inspector.`;
      return this.#draw([], text);
    }
    if (index !== undefined && !index.complete)
      return this.#draw([], 'This index cannot be read before it is complete.');
    const opened = index && this.#context.source.openIndex(layout, index);
    if (index !== undefined && opened === undefined) {
      return this.#draw(
        [],
        'To read this index, pass a handle of the collection to the inspector that was opened with it; for the default collection, open the database with it.',
      );
    }
    try {
      const rows = opened === undefined ? await this.#page(collection, layout.keyCodec) : await this.#indexPage(opened);
      this.#draw(
        rows,
        rows.length === 0 ? `No entries in ${nameOf(layout.name)}${this.#isFiltered ? ' in this range' : ''}.` : '',
      );
    } catch (error) {
      if (!this.#context.signal.aborted) this.#draw([], '', messageOf(error));
    }
  }

  get #isFiltered(): boolean {
    return [this.#prefix, this.#from, this.#to].some(({ control }) => control.value !== '');
  }

  async #page(collection: InspectedCollection, codec: string): Promise<readonly Row[]> {
    const entries = await collection.entries(await this.#window(collection, codec)).toArray();
    return entries.map(([key, value]) => ({ indexKey: undefined, key, value }));
  }

  async #indexPage(index: InspectedIndex): Promise<readonly Row[]> {
    return index.entries(await this.#window(index, this.#isFiltered ? await codecOf(index) : 'any')).toArray();
  }

  /** Counts the range that was typed, and returns the options that read the page in it. */
  async #window(counted: { count(options: object): Promise<number> }, codec: string): Promise<object> {
    const { signal } = this.#context;
    const range = parseRange(codec, {
      prefix: this.#prefix.control.value,
      from: this.#from.control.value,
      to: this.#to.control.value,
    });
    this.#total = await counted.count({ ...range, signal });
    this.#offset = Math.max(0, Math.min(this.#offset, this.#total - 1));
    return { ...range, reverse: this.#reverse.checked, offset: this.#offset, limit: PAGE, signal };
  }

  #draw(rows: readonly Row[], note: string, problem = ''): void {
    setText(this.#problem, problem);
    this.#drawRows(rows, note);
    const last = this.#offset + rows.length;
    setText(
      this.#range,
      rows.length === 0 ? plural(0, 'entry', 'entries') : `to ${formatCount(last)} of ${formatCount(this.#total)}`,
    );
    // Not while the user is typing.
    if (!this.#position.matches(':focus')) this.#position.value = String(this.#offset + 1);
    this.#position.disabled = rows.length === 0;
    this.#previous.disabled = this.#offset === 0;
    this.#next.disabled = last >= this.#total;
  }

  /**
   * Keeps unchanged rows in place, to preserve a click in progress, the focus and the selection.
   */
  #drawRows(rows: readonly Row[], note: string): void {
    const kept = new Map<string, HTMLElement>();
    for (const row of this.#body.querySelectorAll<HTMLElement>('[data-says]')) kept.set(row.dataset['says'] ?? '', row);
    const drawn = rows.map((row) => {
      const says = `${idOfRow(row)}\n${shortText(row.value, 1000)}`;
      const known = kept.get(says);
      if (known !== undefined) return known;
      const made = this.#row(row);
      made.dataset['says'] = says;
      return made;
    });
    if (note !== '')
      drawn.push(h('tr', {}, h('td', { colspan: this.#order.index === undefined ? 2 : 3, class: 'note' }, note)));
    if (
      drawn.length === this.#body.childElementCount &&
      drawn.every((row, index) => row === this.#body.children[index])
    )
      return;
    const focused = (this.#body.getRootNode() as ShadowRoot).activeElement?.closest<HTMLElement>('[data-key]')?.dataset[
      'key'
    ];
    this.#body.replaceChildren(...drawn);
    if (focused !== undefined)
      this.#body.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"] button`)?.focus();
  }

  #row(row: Row): HTMLElement {
    const { indexKey, key, value } = row;
    const text = keyText(key);
    const cell = h('td', { class: 'value-cell' });
    const id = idOfRow(row);
    const isOpen = (): boolean => this.#open.has(id);
    const toggle = h(
      'button',
      { type: 'button', class: 'row-button' },
      h('span', { class: 'marker', 'aria-hidden': 'true' }),
      text === '' ? '""' : text,
    );
    const draw = (): void => {
      toggle.setAttribute('aria-expanded', String(isOpen()));
      cell.replaceChildren(isOpen() ? valueTree(value) : h('code', {}, shortText(value)));
    };
    const turn = (): void => {
      if (isOpen()) this.#open.delete(id);
      else this.#open.add(id);
      draw();
    };
    toggle.addEventListener('click', turn);
    draw();
    const inIndex =
      indexKey === undefined ? undefined : h('td', { class: 'index-key' }, h('code', {}, keyText(indexKey) || '""'));
    return h('tr', { 'data-key': id }, inIndex, h('th', { scope: 'row', class: 'key' }, toggle), cell);
  }
}
