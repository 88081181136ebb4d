// The order in which entries are shown: that of their keys, or that of an index.
import type { CollectionLayout, IndexStats, Stats } from 'mangrove-kv';
import { field, h, setText } from './dom.ts';
import { formatCount, formatPercent, plural } from './format.ts';

/** A list of orders, and what is known of each index. */
export class Order {
  readonly control = h('select', { change: () => this.#choose() });
  readonly label = field('Order', this.control);
  readonly list = h('ul', { class: 'soft small', 'aria-label': 'Indexes' });
  readonly #onChoose: () => void;
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
    for (const element of [this.label, this.list]) element.hidden = this.#indexes.length === 0;
    const names = this.#indexes.map(({ name }) => name);
    const options = [...this.control.options].slice(1).map(({ value }) => value);
    // Not while the list may be open, unless it changes.
    if (this.control.options.length === 0 || JSON.stringify(names) !== JSON.stringify(options)) {
      this.control.replaceChildren(h('option', { value: '' }, 'by key'), ...names.map((name) => h('option', { value: name }, `by index ${name}`)));
    }
    if (this.index === undefined) this.#chosen = undefined;
    this.control.selectedIndex = names.indexOf(this.#chosen ?? '') + 1;
    while (this.list.childElementCount > names.length) this.list.lastElementChild?.remove();
    for (const [at, index] of this.#indexes.entries()) {
      setText((this.list.children[at] ?? this.list.appendChild(h('li'))) as HTMLElement, textOf(index));
    }
  }

  #choose(): void {
    this.#chosen = this.#indexes[this.control.selectedIndex - 1]?.name;
    this.#onChoose();
  }
}

/** Describes an index, and how far it is built. */
export function textOf({ name, version, unique, complete, count, done, total }: IndexStats): string {
  const kind = `${unique ? 'Unique index' : 'Index'} ${name}, version ${version}`;
  const size = plural(count, 'entry', 'entries');
  return complete ? `${kind}: ${size}` : `${kind}: being built, ${formatCount(done)} of ${formatCount(total)} (${formatPercent(done, total)}), ${size} so far`;
}
