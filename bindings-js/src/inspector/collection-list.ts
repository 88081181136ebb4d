// The collections with their sizes, of which one is chosen.
import type { CollectionLayout } from 'mangrove-kv';
import { h } from './dom.ts';
import { formatBytes, plural } from './format.ts';
import { nameOf } from './source.ts';
import type { Context } from './view.ts';

/** Bytes of the file that it takes, and of its nodes that have no place there yet. */
export function sizeOf({ levels, valueSize }: CollectionLayout): number {
  return levels.reduce((sum, level) => sum + (level.fileSize > 0 ? level.fileSize : level.usedSize), valueSize);
}

export class CollectionList {
  readonly element = h('ul', { class: 'collections' });
  readonly #context: Context;
  readonly #onChoose: () => void;
  #drawn = '';

  constructor(context: Context, onChoose: () => void) {
    this.#context = context;
    this.#onChoose = onChoose;
  }

  show(collections: readonly CollectionLayout[]): void {
    const rows = collections.map((one) => [one.name, `${plural(one.entries, 'entry', 'entries')} · ${formatBytes(sizeOf(one))}`] as const);
    const now = JSON.stringify([rows, this.#context.chosen]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    const root = this.element.getRootNode() as ShadowRoot;
    const isFocused = this.element.contains(root.activeElement);
    this.element.replaceChildren(...rows.map(([name, size]) => h('li', {}, h(
      'button',
      {
        type: 'button',
        'aria-pressed': String(name === this.#context.chosen),
        click: () => {
          this.#context.chosen = name;
          this.show(collections);
          this.#onChoose();
        },
      },
      h('span', { class: 'name' }, nameOf(name)),
      h('span', { class: 'soft small' }, size),
    ))));
    if (isFocused) this.element.querySelector<HTMLElement>('[aria-pressed="true"]')?.focus();
  }
}
