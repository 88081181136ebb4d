// The list of collections with their sizes, in which one is chosen.
import type { CollectionLayout, IndexStats } from 'mangrove-kv';
import { h, setText } from './dom.ts';
import { formatBytes, plural } from './format.ts';
import { nameOf } from './source.ts';
import type { Context } from './view.ts';

/**
 * Bytes that a collection takes up in the file without its indexes, plus its nodes that have no
 * place there yet.
 */
export function sizeOf({ levels, valueSize }: CollectionLayout): number {
  return levels.reduce((sum, level) => sum + (level.fileSize > 0 ? level.fileSize : level.usedSize), valueSize);
}

/** The row of a collection, with its button and size. */
interface Row {
  readonly item: HTMLElement;
  readonly choose: HTMLElement;
  readonly size: HTMLElement;
}

export class CollectionList {
  readonly element = h('ul', { class: 'collections' });
  readonly #context: Context;
  readonly #onChoose: () => void;
  /**
   * Rows by name. A row stays the same element while its figures change, to preserve the focus and
   * a click in progress.
   */
  readonly #rows = new Map<string, Row>();

  constructor(context: Context, onChoose: () => void) {
    this.#context = context;
    this.#onChoose = onChoose;
  }

  show(collections: readonly CollectionLayout[], indexes: readonly IndexStats[]): void {
    const root = this.element.getRootNode() as ShadowRoot;
    const wasFocused = this.element.contains(root.activeElement);
    const names = new Set(collections.map(({ name }) => name));
    for (const [name, { item }] of this.#rows) {
      if (names.has(name)) continue;
      item.remove();
      this.#rows.delete(name);
    }
    for (const [index, collection] of collections.entries()) {
      const row = this.#rows.get(collection.name) ?? this.#add(collection.name);
      if (this.element.children[index] !== row.item)
        this.element.insertBefore(row.item, this.element.children[index] ?? null);
      const own = indexes.filter((index) => index.collection === collection.name).length;
      const inIndexes = own === 0 ? '' : ` · ${plural(own, 'index', 'indexes')}, ${formatBytes(collection.indexSize)}`;
      setText(
        row.size,
        `${plural(collection.entries, 'entry', 'entries')} · ${formatBytes(sizeOf(collection))}${inIndexes}`,
      );
    }
    this.#press();
    // The focus would be lost with a removed row.
    if (wasFocused && !this.element.contains(root.activeElement)) this.#rows.get(this.#context.chosen)?.choose.focus();
  }

  #add(name: string): Row {
    const size = h('span', { class: 'soft small' });
    const click = (): void => {
      this.#context.chosen = name;
      this.#press();
      this.#onChoose();
    };
    const choose = h('button', { type: 'button', click }, h('span', { class: 'name' }, nameOf(name)), size);
    const row = { item: h('li', {}, choose), choose, size };
    this.#rows.set(name, row);
    return row;
  }

  #press(): void {
    for (const [name, { choose }] of this.#rows)
      choose.setAttribute('aria-pressed', String(name === this.#context.chosen));
  }
}
