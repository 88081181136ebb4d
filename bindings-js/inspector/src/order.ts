// The order in which entries are shown: that of their keys, or that of an index. Tells what is known
// of each index.
import type { CollectionLayout, IndexStats, Stats } from 'mangrove-kv';
import { button, field, h, setText } from './dom.ts';
import { formatCount, formatPercent, plural } from './format.ts';

/** The row of an index. It stays the same element while its figures change. */
interface Row {
  readonly item: HTMLElement;
  readonly choose: HTMLElement;
  readonly kind: HTMLElement;
  readonly entries: HTMLElement;
  readonly state: HTMLElement;
  readonly bar: HTMLProgressElement;
}

/** A list of orders, and a table of the indexes. */
export class Order {
  readonly control = h('select', { change: () => this.#choose(this.#indexes[this.control.selectedIndex - 1]?.name) });
  readonly label = field('Order', this.control);
  readonly #body = h('tbody');
  readonly table = h(
    'div',
    { class: 'scroll' },
    h(
      'table',
      { class: 'numbers indexes', 'aria-label': 'Indexes' },
      h('thead', {}, h('tr', {}, ...['Index', 'Entries', 'State'].map((text) => h('th', { scope: 'col' }, text)))),
      this.#body,
    ),
  );
  readonly #onChoose: () => void;
  readonly #rows = new Map<string, Row>();
  #indexes: readonly IndexStats[] = [];
  /** Name of the chosen index; `undefined` for the order of keys. */
  #chosen: string | undefined;

  constructor(onChoose: () => void) {
    this.#onChoose = onChoose;
  }

  /** The chosen index; `undefined` for the order of keys. */
  get index(): IndexStats | undefined {
    return this.#indexes.find(({ name }) => name === this.#chosen);
  }

  /** Chooses the order of keys. */
  reset(): void {
    this.#chosen = undefined;
  }

  /** Shows the indexes of a collection. */
  show({ indexes }: Stats, collection: CollectionLayout | undefined): void {
    this.#indexes = indexes.filter((index) => index.collection === collection?.name);
    for (const element of [this.label, this.table]) element.hidden = this.#indexes.length === 0;
    const names = this.#indexes.map(({ name }) => name);
    const options = [...this.control.options].slice(1).map(({ value }) => value);
    // Not while the list may be open, unless it changes.
    if (this.control.options.length === 0 || JSON.stringify(names) !== JSON.stringify(options)) {
      this.control.replaceChildren(
        h('option', { value: '' }, 'by key'),
        ...names.map((name) => h('option', { value: name }, `by index ${name}`)),
      );
      this.#rows.clear();
      this.#body.replaceChildren(...names.map((name) => this.#add(name)));
    }
    if (this.index === undefined) this.#chosen = undefined;
    for (const index of this.#indexes) this.#draw(index);
    this.#press();
  }

  #add(name: string): HTMLElement {
    // Chosen again, it gives way to the order of keys.
    const choose = button(name, () => this.#choose(name === this.#chosen ? undefined : name), { class: 'link' });
    const [kind, entries, state] = [h('span', { class: 'soft small' }), h('td'), h('span')];
    const bar = h('progress', { max: 1, 'aria-label': `Build of ${name}` });
    const item = h('tr', {}, h('th', { scope: 'row' }, h('div', {}, choose), kind), entries, h('td', {}, state, bar));
    this.#rows.set(name, { item, choose, kind, entries, state, bar });
    return item;
  }

  #draw(index: IndexStats): void {
    const row = this.#rows.get(index.name);
    if (row === undefined) return;
    setText(row.kind, kindOf(index));
    setText(row.entries, formatCount(index.count));
    setText(row.state, stateOf(index));
    row.bar.hidden = index.complete;
    row.bar.value = index.total === 0 ? 0 : index.done / index.total;
  }

  #press(): void {
    this.control.selectedIndex = this.#indexes.findIndex(({ name }) => name === this.#chosen) + 1;
    for (const [name, { choose }] of this.#rows) choose.setAttribute('aria-pressed', String(name === this.#chosen));
  }

  #choose(name: string | undefined): void {
    this.#chosen = name;
    this.#press();
    this.#onChoose();
  }
}

/**
 * Describes an index. That it has several keys per entry is not stored: it is known once it has more
 * entries than the collection.
 */
export function kindOf({ version, unique, complete, count, total }: IndexStats): string {
  const parts = [`version ${version}`];
  if (unique) parts.push('unique');
  if (count > total) parts.push('multi');
  if (complete && count < total) parts.push(`leaves out ${plural(total - count, 'entry', 'entries')}`);
  return parts.join(', ');
}

/** Tells how far an index is built. */
export function stateOf({ complete, done, total }: IndexStats): string {
  return complete ? 'complete' : `${formatCount(done)} of ${formatCount(total)}, ${formatPercent(done, total)}`;
}
